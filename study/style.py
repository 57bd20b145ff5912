"""Colours and dashes of curves, the same in the figures and the report."""

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow (faint on white) and black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
GREYS = ("#000000", "#666666", "#999999")
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (8, 2, 2, 2))  # for the first six labels, the next six, ...
REFERENCE_DASHES: tuple[tuple[float, ...], ...] = ((4, 2), (6, 2, 1, 2), (10, 3))
FEWER_RUNS: tuple[float, ...] = (1, 2)  # where not all runs of a group have a value


@dataclass(frozen=True)
class LineStyle:
    """A curve's colour, and its dashes as lengths on and off in line widths; () is a solid line."""

    colour: str
    dash: tuple[float, ...]


def of_labels(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Assigns a style to each label of the runs."""
    return {
        label: LineStyle(COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)])
        for index, label in enumerate(labels)
    }


def of_references(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Assigns a grey style to each published method."""
    return {
        label: LineStyle(GREYS[index % len(GREYS)], REFERENCE_DASHES[index % len(REFERENCE_DASHES)])
        for index, label in enumerate(labels)
    }
