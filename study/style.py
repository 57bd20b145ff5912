"""Colours and lines, the same in the figures and the report."""

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's colours, which colour-blind readers tell apart; yellow is lost on white, black is for references.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
GREYS = ("#000000", "#666666", "#999999")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (8, 2, 2, 2))  # the second and third round of colours
REFERENCE_DASHES: tuple[tuple[float, ...], ...] = ((4, 2), (6, 2, 1, 2), (10, 3))
FEWER_RUNS: tuple[float, ...] = (1, 2)  # where not all runs of a group have got


@dataclass(frozen=True)
class Look:
    """A line's colour and its dashes: lengths on and off, in line widths; none is a solid line."""

    colour: str
    dash: tuple[float, ...]


def of_labels(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each of our curves."""
    return _looks(labels, COLOURS, DASHES, len(COLOURS))


def of_references(methods: Sequence[str]) -> dict[str, Look]:
    """A look for each published curve."""
    return _looks(methods, GREYS, REFERENCE_DASHES, 1)


def _looks(
    names: Sequence[str], colours: tuple[str, ...], dashes: tuple[tuple[float, ...], ...], dash_every: int
) -> dict[str, Look]:
    return {
        name: Look(colours[place % len(colours)], dashes[place // dash_every % len(dashes)])
        for place, name in enumerate(names)
    }
