"""The flow of data through a network: its blocks as boxes, with their inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deliralike import nest
from deliralike.zoo.registry import Shape, is_shape
from deliralike.zoo.summary import run_on_shapes

_DEEPEST = 4
_COLUMNS = 12  # boxes of more columns are too small to read
_FEW = 6  # a drawing of fewer columns may become as wide as _MANY
_MANY = 20


@dataclass(frozen=True)
class Box:
    """One block, or a row of equal ones.

    Attributes:
        name: Its dotted path; of several, the first one's. The empty path is an input's.
        type: Its class.
        sources: The indices of the boxes that it takes its input from.
        output: The shape that it gives for a batch of one, or a nest of shapes.
        parameters: Those of the block and all below it, over all equal ones.
        count: How many equal ones follow each other.
    """

    name: str
    type: str
    sources: tuple[int, ...]
    output: Any
    parameters: int
    count: int = 1

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of its outputs, without the batch."""
        return [shape[1:] for shape in nest.flatten(self.output, is_shape)[0] if shape]


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
        depth: How many calls deep blocks are looked into; as deep as gives about 12 columns when
            None.
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
    """Return the length of the longest way to each box."""
    at: list[int] = []
    for box in boxes:
        at.append(1 + max((at[source] for source in box.sources), default=-1))
    return at


def _boxes(network: Any, input_shape: Any, depth: int, settings: dict[str, Any]) -> list[Box]:
    run = run_on_shapes(network, input_shape, settings, depth=depth)
    first = len(run.inputs)
    boxes = [Box("", "input", (), (1, *entry.shape), 0) for entry in run.inputs]
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
    """Leave out boxes that have one source, no parameters, and keep the shape.

    What takes its input from such a box then takes it from that box's source.
    """
    kept: list[Box] = []
    place: dict[int, int] = {}
    for index, box in enumerate(boxes):
        sources = tuple(sorted({place[source] for source in box.sources}))
        if len(sources) == 1 and not box.parameters and box.output == kept[sources[0]].output:
            place[index] = sources[0]
        else:
            kept.append(replace(box, sources=sources))
            place[index] = len(kept) - 1
    return kept


def _collapsed(boxes: list[Box]) -> list[Box]:
    """Join equal boxes that only follow each other into one with a count."""
    uses: Counter[int] = Counter()
    for box in boxes:
        uses.update(box.sources)
    kept: list[Box] = []
    place: dict[int, int] = {}
    for index, box in enumerate(boxes):
        box = replace(box, sources=tuple(sorted({place[source] for source in box.sources})))
        follows = box.sources == (len(kept) - 1,) and uses[index - 1] == 1
        if follows and (box.type, box.output) == (kept[-1].type, kept[-1].output):
            before = kept[-1]
            parameters = before.parameters + box.parameters
            kept[-1] = replace(before, count=before.count + 1, parameters=parameters)
        else:
            kept.append(box)
        place[index] = len(kept) - 1
    return kept
