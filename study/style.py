"""Colours and dashes of curves. They are the same in the figures and the report."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow (faint on white) and black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
GREYS = ("#000000", "#666666", "#999999")
# Replacements on a dark page, for the colours that would be too dark there.
ON_DARK = {"#0072B2": "#3d9be0", "#000000": "#f0f0f0", "#666666": "#b5b5b5"}
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (8, 2, 2, 2))  # for the first six labels, the next six, ...
REFERENCE_DASHES: tuple[tuple[float, ...], ...] = ((4, 2), (6, 2, 1, 2), (10, 3))
FEWER_RUNS: tuple[float, ...] = (1, 2)  # for steps that not all runs of a group have reached


@dataclass(frozen=True)
class LineStyle:
    """A curve's colour, and its dashes as lengths on and off in line widths; () is a solid line."""

    colour: str
    dash: tuple[float, ...]

    @property
    def of_matplotlib(self) -> dict[str, Any]:
        """The style as keywords of matplotlib."""
        return {"color": self.colour, "linestyle": (0, self.dash) if self.dash else "-"}


def of_labels(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Assigns a style to each label of the runs."""
    styles = [LineStyle(colour, dash) for dash in DASHES for colour in COLOURS]
    return dict(zip(labels, itertools.cycle(styles), strict=False))


def of_references(labels: Sequence[str]) -> dict[str, LineStyle]:
    """Assigns a grey style to each published method."""
    styles = map(LineStyle, GREYS, REFERENCE_DASHES)
    return dict(zip(labels, itertools.cycle(styles), strict=False))
