"""The flow of data through a network: its blocks as boxes, with their inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deliralike import nest
from deliralike.zoo.inputs import Shape, is_shape
from deliralike.zoo.summary import run_on_shapes

_DEEPEST = 4
_COLUMNS = 12  # boxes of more columns are too small to read
_FEW = 6  # a drawing of fewer columns may become as wide as _MANY
_MANY = 20


@dataclass(frozen=True)
class Box:
    """One block, or a row of equal ones.

    Attributes:
        name: The dotted path, of several blocks that of the first one; empty for an input.
        type: The name of the class.
        sources: The indices of the boxes that the inputs come from.
        output: The shape of the output for a batch of one, or a nest of shapes.
        parameters: The number of parameters of the block and all below it, over all equal ones.
        count: The number of equal blocks that follow each other.
    """

    name: str
    type: str
    sources: tuple[int, ...]
    output: Any
    parameters: int
    count: int = 1

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of the outputs, without the batch."""
        shapes, _ = nest.flatten(self.output, is_shape)
        return [shape[1:] for shape in shapes if shape]


def flow(
    network: Any,
    input_shape: Shape | Sequence[Shape] | None = None,
    depth: int | None = None,
    idle: bool = False,
    **settings: Any,
) -> list[Box]:
    """Return the boxes of a network in the order of their calls, the inputs first.

    No framework is loaded.

    Args:
        network, input_shape, settings: As for `deliralike.zoo.outline`.
        depth: The number of nested calls that are shown; the default gives about 12 columns.
        idle: Whether to show also what has no parameters and keeps the shape: activations, dropout.

    Example:
        >>> for box in flow("resnet18", depth=1)[-3:]:
        ...     print(box.name, box.type, box.sources, box.output, box.parameters)
        layer4 Sequential (6,) (1, 512, 7, 7) 8393728
        avgpool AdaptiveAvgPool2d (7,) (1, 512, 1, 1) 0
        fc Linear (8,) (1, 1000) 513000
    """

    def boxes_at(depth: int) -> list[Box]:
        boxes = _boxes(network, input_shape, depth, settings)
        if not idle:
            boxes = _without_idle(boxes)
        return _collapsed(boxes)

    if depth is not None:
        return boxes_at(depth)
    best = boxes_at(1)
    for deeper in range(2, _DEEPEST + 1):
        boxes = boxes_at(deeper)
        limit = _MANY if len(best) < _FEW else _COLUMNS
        if max(columns(boxes)) >= limit:
            break
        best = boxes
    return best


def columns(boxes: Sequence[Box]) -> list[int]:
    """Return the length of the longest path to each box."""
    lengths: list[int] = []
    for box in boxes:
        longest = max((lengths[source] for source in box.sources), default=-1)
        lengths.append(longest + 1)
    return lengths


def _boxes(
    network: Any, input_shape: Any, depth: int, settings: dict[str, Any]
) -> list[Box]:
    run = run_on_shapes(network, input_shape, settings, depth=depth)
    first = len(run.inputs)
    boxes = []
    for entry in run.inputs:
        boxes.append(Box("", "input", (), (1, *entry.shape), 0))
    for call in run.trace.flow:
        path = call.block.path
        parameters = 0
        for block in run.trace.blocks.values():
            if block.path == path or block.path.startswith(f"{path}."):
                parameters += block.parameters
        sources = tuple(sorted(source + first for source in call.sources))
        boxes.append(Box(path, call.block.type, sources, call.output, parameters))
    return boxes


def _without_idle(boxes: list[Box]) -> list[Box]:
    """Return the boxes without those that have one source, no parameters, and keep the shape.

    The source of such a box becomes the source of the boxes that follow it.
    """
    remaining: list[Box] = []
    place: dict[int, int] = {}  # of each box among the remaining ones
    for index, box in enumerate(boxes):
        box = _with_sources(box, place)
        if _is_idle(box, remaining):
            place[index] = box.sources[0]
        else:
            place[index] = len(remaining)
            remaining.append(box)
    return remaining


def _is_idle(box: Box, boxes: Sequence[Box]) -> bool:
    if len(box.sources) != 1 or box.parameters:
        return False
    return box.output == boxes[box.sources[0]].output


def _with_sources(box: Box, place: Mapping[int, int]) -> Box:
    """Return a box whose sources are counted in another list of boxes."""
    sources = {place[source] for source in box.sources}
    return replace(box, sources=tuple(sorted(sources)))


def _collapsed(boxes: list[Box]) -> list[Box]:
    """Return the boxes with equal ones that only follow each other joined into one."""
    uses: Counter[int] = Counter()
    for box in boxes:
        uses.update(box.sources)
    joined: list[Box] = []
    place: dict[int, int] = {}  # of each box among the joined ones
    for index, box in enumerate(boxes):
        box = _with_sources(box, place)
        only_follows = box.sources == (len(joined) - 1,) and uses[index - 1] == 1
        if only_follows and _are_equal(joined[-1], box):
            before = joined[-1]
            parameters = before.parameters + box.parameters
            joined[-1] = replace(before, count=before.count + 1, parameters=parameters)
        else:
            joined.append(box)
        place[index] = len(joined) - 1
    return joined


def _are_equal(one: Box, other: Box) -> bool:
    return one.type == other.type and one.output == other.output
