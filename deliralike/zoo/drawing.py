"""Draw an architecture: boxes from left to right in the order of the data.

The smaller a box's arrays, the lower it stands.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from deliralike.errors import SettingError
from deliralike.zoo.flow import Box, columns, flow
from deliralike.zoo.inputs import Shape
from deliralike.zoo.registry import find
from deliralike.zoo.summary import outline

# The size of a box, and the distances from one box to the next, in inches.
_WIDTH = 1.5
_HEIGHT = 0.74
_ACROSS = 1.8
_DOWN = 1.0
# What is left out of each format's metadata, so that equal drawings are equal files.
_SUFFIXES: dict[str, dict[str, None]] = {
    ".svg": {"Date": None},
    ".png": {},
    ".pdf": {"CreationDate": None},
}
# Kinds of layers by a part of their class's name, the first that fits, with a colour that goes with
# black text.
_COLOURS = (
    ("input", "#ffffff"),
    ("Norm", "#f3e3c0"),
    ("Pool", "#f4cccc"),
    ("Conv1d", "#cfe2f3"),
    ("Conv2d", "#cfe2f3"),
    ("Conv3d", "#cfe2f3"),
    ("ConvTranspose", "#cfe2f3"),
    ("Attention", "#e3d6f2"),
    ("Linear", "#d9ead3"),
    ("Embedding", "#d9ead3"),
    ("LU", "#fbf3d5"),
    ("", "#dfe6ec"),
)


def draw(
    network: Any,
    path: str | os.PathLike[str] | None = None,
    input_shape: Shape | Sequence[Shape] | None = None,
    depth: int | None = None,
    **settings: Any,
) -> Figure:
    """Draw an architecture; no framework is loaded.

    A box has the block's name, its class (and how many equal ones follow each other), the shape
    that it gives for one sample, and its parameters. Arrows tell where its inputs come from. What
    has no parameters and keeps the shape (an activation, a dropout) is left out.

    Args:
        network: A name of the zoo, an `Architecture`, or a class written once.
        path: The file to write: ``.svg``, ``.png`` or ``.pdf``.
        input_shape, settings: As for `deliralike.zoo.outline`.
        depth: The number of nested calls that are shown; the default gives about 12 columns.

    Returns:
        The figure; a notebook shows it.

    Raises:
        SettingError: The format is unknown, or the depth is below 1.
        UnknownName, ArgumentError, ShapeError: As `deliralike.zoo.outline` does.

    Example:
        >>> len(draw("resnet18", depth=1).axes[0].patches) > 15
        True
    """
    if path is not None and Path(path).suffix not in _SUFFIXES:
        raise SettingError(
            f"a drawing cannot be written to {str(path)!r}: wanted a suffix of "
            f"{', '.join(_SUFFIXES)}"
        )
    if depth is not None and depth < 1:
        raise SettingError(f"draw: depth={depth!r}; wanted at least 1")
    boxes = flow(network, input_shape, depth, **settings)
    figure = _figure(boxes, _title(network, input_shape, settings))
    if path is not None:
        # Text stays text, and equal drawings are equal files.
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "deliralike"}):
            figure.savefig(path, metadata=_SUFFIXES[Path(path).suffix])
    return figure


def _title(network: Any, input_shape: Any, settings: dict[str, Any]) -> str:
    sketch = outline(network, input_shape, **settings)
    title = f"{sketch.name}, {sketch.parameters:,} parameters"
    if isinstance(network, str) and find(network).source:
        return f"{title}\n{find(network).source}"
    return title


def _figure(boxes: Sequence[Box], title: str) -> Figure:
    places = _places(boxes)
    across = 1 + max(x for x, _ in places)
    down = 1 + max(y for _, y in places)
    size = (across * _ACROSS + 0.2, down * _DOWN + 0.9)
    figure = Figure(figsize=size, dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-_ACROSS / 2 - 0.1, (across - 0.5) * _ACROSS + 0.1)
    axes.set_ylim(-(down - 0.5) * _DOWN - 0.05, _DOWN / 2 + 0.8)
    axes.axis("off")
    top = _DOWN / 2 + 0.6
    axes.text(-_WIDTH / 2, top, title, va="top", fontsize=11, linespacing=1.5)
    for box, place in zip(boxes, places, strict=True):
        _draw_box(axes, box, place)
        for source in box.sources:
            _draw_arrow(axes, places, source, place)
    return figure


def _places(boxes: Sequence[Box]) -> list[tuple[int, int]]:
    """Return the column and row of each box; no two are in one place.

    The column is the length of the longest path to a box. The row is the number of times that its
    arrays were halved.
    """
    input_axis = max((_longest_axis(box) for box in boxes if not box.name), default=1)
    rows: list[int] = []
    occupied = set()
    for column, box in zip(columns(boxes), boxes, strict=True):
        row = max((rows[source] for source in box.sources), default=0)
        longest = _longest_axis(box)
        if longest > 1 and input_axis > 1:
            row = max(0, round(math.log2(input_axis / longest)))
        while (column, row) in occupied:
            row += 1
        occupied.add((column, row))
        rows.append(row)
    used = sorted(set(rows))  # rows without any box are left out
    places = []
    for column, row in zip(columns(boxes), rows, strict=True):
        places.append((column, used.index(row)))
    return places


def _longest_axis(box: Box) -> int:
    """Return the length of the longest spatial axis of a box's outputs; 1 without any."""
    longest = 1
    for shape in box.shapes:
        longest = max([longest, *shape[1:]])
    return longest


def _draw_box(axes: Any, box: Box, place: tuple[int, int]) -> None:
    x = place[0] * _ACROSS
    y = -place[1] * _DOWN
    corner = (x - _WIDTH / 2, y - _HEIGHT / 2)
    colour = next(colour for part, colour in _COLOURS if part in box.type)
    frame = FancyBboxPatch(corner, _WIDTH, _HEIGHT, "round,pad=0,rounding_size=0.07")
    frame.set(facecolor=colour, edgecolor="#555555", linewidth=0.8)
    axes.add_patch(frame)
    text = "\n".join(_lines(box))
    axes.text(x, y, text, ha="center", va="center", fontsize=8, linespacing=1.4)


def _lines(box: Box) -> list[str]:
    """Return the lines of text in a box."""
    times = f" \N{MULTIPLICATION SIGN} {box.count}" if box.count > 1 else ""
    lines = [
        _shortened(box.name, 20),
        _shortened(box.type, 23 - len(times)) + times,
        _shortened(_sizes(box)),
    ]
    if box.parameters:
        lines.append(f"{box.parameters:,} parameters")
    return [line for line in lines if line]


def _draw_arrow(
    axes: Any, places: Sequence[tuple[int, int]], source: int, to: tuple[int, int]
) -> None:
    """Draw an arrow from the right of one box to the left of another.

    It is curved where boxes of its row lie between.
    """
    column, row = places[source]
    column_to, row_to = to
    lift: float = 0
    bow: float = 0
    between = {(c, row) for c in range(column + 1, column_to)}
    if row == row_to and not between.isdisjoint(places):
        lift = 0.15
        bow = -min(0.35, 0.7 / (column_to - column))
    start = (column * _ACROSS + _WIDTH / 2, -row * _DOWN + lift)
    end = (column_to * _ACROSS - _WIDTH / 2, -row_to * _DOWN + lift)
    arrow = FancyArrowPatch(
        start,
        end,
        connectionstyle=f"arc3,rad={bow}",
        arrowstyle="-|>",
        mutation_scale=9,
        shrinkA=0,
        shrinkB=0,
        color="#444444",
        lw=0.9,
        zorder=0,
    )
    axes.add_patch(arrow)


def _sizes(box: Box) -> str:
    """Return the first output's shape, and the number of other outputs."""
    shapes = box.shapes
    if not shapes:
        return ""
    first = " \N{MULTIPLICATION SIGN} ".join(map(str, shapes[0])) or "scalar"
    if len(shapes) == 1:
        return first
    return f"{first} + {len(shapes) - 1} more"


def _shortened(text: str, most: int = 24) -> str:
    """Leave out the beginning of a text if it is longer than a box is wide."""
    if len(text) <= most:
        return text
    return "\N{HORIZONTAL ELLIPSIS}" + text[len(text) - most + 1 :]
