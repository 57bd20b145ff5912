"""Colours and dashes of curves, as keywords of matplotlib. They are the same in the figures and the report."""

import itertools
from collections.abc import Sequence
from typing import Any

LineStyle = dict[str, Any]
# Okabe and Ito's colours, which colour-blind readers can tell apart, without yellow (faint on white) and black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
GREYS = ("#000000", "#666666", "#999999")
# Lengths on and off in line widths: for the first six labels, the next six, ...
DASHES = ("-", (0, (6, 2)), (0, (8, 2, 2, 2)))
REFERENCE_DASHES = ((0, (4, 2)), (0, (6, 2, 1, 2)), (0, (10, 3)))
FEWER_RUNS = (0, (1, 2))  # for steps that not all runs of a group have reached


def choose_styles(labels: Sequence[str], methods: Sequence[str]) -> dict[str, LineStyle]:
    """Assigns a style to each label of the runs, and a grey one to each published method."""
    coloured = [{"color": colour, "linestyle": dash} for dash in DASHES for colour in COLOURS]
    grey = [{"color": colour, "linestyle": dash} for colour, dash in zip(GREYS, REFERENCE_DASHES, strict=True)]
    styles = dict(zip(labels, itertools.cycle(coloured), strict=False))
    return styles | dict(zip(methods, itertools.cycle(grey), strict=False))
