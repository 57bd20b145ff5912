"""A covering design: few rows of values, one per factor, in which every pair of two factors' values occurs."""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]
Pair = frozenset[tuple[str, Any]]  # two times (factor, value)


def pairs_of(row: Row) -> set[Pair]:
    return {frozenset(two) for two in combinations(row.items(), 2)}


def all_pairs(factors: dict[str, Sequence[Any]]) -> list[Pair]:
    """Returns all pairs, always in the same order."""
    return [
        frozenset(((a, x), (b, y))) for a, b in combinations(factors, 2) for x, y in product(factors[a], factors[b])
    ]


def design(factors: dict[str, Sequence[Any]], allowed: Callable[[Row], bool], rare: tuple[str, Any]) -> list[Row]:
    """Returns rows that together contain every allowed pair.

    Args:
        factors: each factor's values, by its name.
        allowed: returns whether a row, or a part of one, is allowed.
        rare: a factor and its expensive value, which gets only as many rows as the pairs with it need.
    """
    uncovered = dict.fromkeys(pair for pair in all_pairs(factors) if allowed(dict(pair)))
    rows: list[Row] = []
    while uncovered:
        # First the pairs with the rare value, backwards: the last factors' pairs have the fewest rows to choose from.
        first = next((pair for pair in reversed(uncovered) if rare in pair), next(iter(uncovered)))
        row = dict(first)
        for factor in sorted((name for name in factors if name not in row), key=lambda name: -len(factors[name])):
            choices = [value for value in factors[factor] if allowed(row | {factor: value})]
            plain = [value for value in choices if (factor, value) != rare]
            if factor != rare[0]:  # each row starts elsewhere, so values that no pair needs vary too
                plain = plain[len(rows) % len(plain) :] + plain[: len(rows) % len(plain)]
            row[factor] = max(
                plain or choices,
                key=lambda value: sum(pair in uncovered for pair in pairs_of(row | {factor: value})),
            )
        rows.append({factor: row[factor] for factor in factors})
        for pair in pairs_of(row):
            uncovered.pop(pair, None)
    return rows
