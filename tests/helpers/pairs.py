"""A covering design: few rows of values, one for each factor, with every pair of values of two factors in some row."""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
Pair = frozenset[tuple[str, Any]]  # of two factors, the value of each


def pairs_of(row: Row) -> set[Pair]:
    return {frozenset(two) for two in combinations(row.items(), 2)}


def all_pairs(factors: dict[str, Sequence[Any]]) -> list[Pair]:
    """In an order that is always the same."""
    return [
        frozenset(((a, x), (b, y))) for a, b in combinations(factors, 2) for x, y in product(factors[a], factors[b])
    ]


def design(factors: dict[str, Sequence[Any]], allowed: Callable[[Row], bool], rare: tuple[str, Any]) -> list[Row]:
    """Rows that hold every pair which is allowed.

    Args:
        factors: values by name.
        allowed: whether a row, or the part of one that is known so far, may be.
        rare: a factor and a value of it that costs much: it gets as few rows as the pairs with it need.
    """
    uncovered = dict.fromkeys(pair for pair in all_pairs(factors) if allowed(dict(pair)))
    rows: list[Row] = []
    while uncovered:
        # Backwards, as the last factors' pairs have the fewest rows to choose from.
        first = next((pair for pair in reversed(uncovered) if rare in pair), next(iter(uncovered)))
        row = dict(first)
        for factor in sorted((name for name in factors if name not in row), key=lambda name: -len(factors[name])):
            choices = [value for value in factors[factor] if allowed(row | {factor: value})]
            plain = [value for value in choices if (factor, value) != rare]
            if factor != rare[0]:  # begins elsewhere in each row, so that values that nothing asks for vary too
                plain = plain[len(rows) % len(plain) :] + plain[: len(rows) % len(plain)]
            row[factor] = max(
                plain or choices,
                key=lambda value: sum(pair in uncovered for pair in pairs_of(row | {factor: value})),
            )
        rows.append({factor: row[factor] for factor in factors})
        for pair in pairs_of(row):
            uncovered.pop(pair, None)
    return rows
