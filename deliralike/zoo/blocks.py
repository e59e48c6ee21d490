"""Small things that several families need when they are built."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.layers.containers import Sequential


def by_dims(nn: Any, dims: int, *kinds: str) -> Any:
    """Return the layers of some kinds for `dims` spatial axes: one, or a list of several.

    Raises:
        SettingError: `dims` is not 1, 2 or 3.

    Example:
        >>> from deliralike import backends
        >>> by_dims(backends.get("torch").nn, 3, "Conv").__name__
        'Conv3d'
    """
    if dims not in (1, 2, 3):
        raise SettingError(f"dims={dims!r}; wanted 1, 2 or 3")
    layers = [getattr(nn, f"{kind}{dims}d") for kind in kinds]
    if len(layers) == 1:
        return layers[0]
    return layers


def classifier(
    nn: Any, width: int, num_classes: int, what: str, bias: bool = True
) -> Any:
    """Make the last layer of a classifier; without classes it passes its input on.

    Raises:
        SettingError: `num_classes` is negative or no whole number.
    """
    if num_classes == 0 and not isinstance(num_classes, bool):
        return nn.Identity()
    return nn.Linear(width, checks.positive(num_classes, "num_classes", what), bias)


def at_least_single(like: Any) -> str:
    """Return the precision to count positions in: double beside an array of it, else single."""
    return "float64" if "float64" in str(like.dtype) else "float32"


class Mlp(Sequential):
    """Two linear layers and a GELU between them, over the last axis."""

    def __init__(self, width: int, inner: int, approximate: str = "none") -> None:
        nn = self.nn
        layers = {
            "fc1": nn.Linear(width, inner),
            "act": nn.GELU(approximate),
            "fc2": nn.Linear(inner, width),
        }
        super().__init__(layers)


def images(side: int) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """Return a function from the settings to one sample's shape: images of that side.

    They are signals or volumes where the settings have another number of `dims`.
    """

    def shape(settings: Mapping[str, Any]) -> tuple[int, ...]:
        return (settings["in_channels"], *(side,) * settings.get("dims", 2))

    return shape


def images_of_size(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return one sample's shape from the settings: images whose side is ``image_size``."""
    return images(settings["image_size"])(settings)


def has_side(model: Any, x: Any, side: int, advice: str = "") -> None:
    """Check that every spatial axis of an input has the length that a network was built for.

    Args:
        advice: What to do otherwise; the error ends with it.

    Raises:
        ShapeError: An axis has another length.
    """
    if any(size != side for size in x.shape[2:]):
        raise ShapeError(
            f"{checks.where(model)}: got an input of shape {tuple(x.shape)}, wanted {side} "
            f"elements along each spatial axis{advice}"
        )


def large_enough(model: Any, x: Any, least: int, stage: str) -> None:
    """Check that every spatial axis of an input is long enough.

    Args:
        least: The number of elements that each axis needs.
        stage: The first stage that a smaller input would not survive; the error names it.

    Raises:
        ShapeError: An axis is too short.
    """
    if min(x.shape[2:], default=least) < least:
        raise ShapeError(
            f"{checks.where(model)}: an input of shape {tuple(x.shape)} is too small for the stage "
            f"{stage!r}: it needs at least {least} elements along each spatial axis"
        )


def in_turn(
    x: Any,
    steps: Mapping[str, Callable[[Any], Any]],
    until: Collection[str] | None = None,
) -> dict[str, Any]:
    """Run stages one after the other, each on the output of the one before it.

    Args:
        x: The first stage's input.
        steps: The stages in order.
        until: The names of the stages after which to stop; all stages run when None.
    """
    stages: dict[str, Any] = {}
    for name, step in steps.items():
        x = step(x)
        stages[name] = x
        if until is not None and all(wanted in stages for wanted in until):
            break
    return stages


def each_output(x: Any, layers: Iterable[Any], *inputs: Any) -> list[Any]:
    """Run layers one after the other, and return the output of each.

    Args:
        x: The first layer's input.
        layers: The layers in order.
        inputs: What each layer takes beside the output of the one before it.
    """
    outputs = []
    for layer in layers:
        x = layer(x, *inputs)
        outputs.append(x)
    return outputs


def numbered(name: str, outputs: Iterable[Any], first: int = 0) -> dict[str, Any]:
    """Return outputs by a name with a number behind it.

    Example:
        >>> numbered("layer", ["x", "y"], first=1)
        {'layer1': 'x', 'layer2': 'y'}
    """
    return {f"{name}{i}": output for i, output in enumerate(outputs, first)}


def by_stage(stem: Any, stages: Iterable[Any]) -> dict[str, Callable[[Any], Any]]:
    """Return the steps of `in_turn` for a stem and stages, which are ``stage1`` and so on."""
    return {"stem": stem} | {
        f"stage{number}": stage for number, stage in enumerate(stages, 1)
    }


def drop_rates(last: float, counts: Iterable[int]) -> list[list[float]]:
    """Return the rates of stochastic depth of the blocks of each stage.

    They grow linearly from 0 for the first block to that of the last one.

    Example:
        >>> drop_rates(0.5, (2, 1))
        [[0.0, 0.25], [0.5]]
    """
    counts = tuple(counts)
    rates = np.linspace(0.0, last, sum(counts)).tolist()
    stages = []
    for count in counts:
        stages.append(rates[:count])
        rates = rates[count:]
    return stages


def run_stages(
    blocks: Any,
    x: Any,
    ends: Iterable[tuple[str, int]],
    until: Collection[str] | None = None,
) -> dict[str, Any]:
    """Run numbered blocks one after the other, and return outputs at the ends of stages.

    Args:
        blocks: An ``nn.Sequential``.
        x: The first block's input.
        ends: The stages' names in order, each with the number of blocks up to its end.
        until: The names of the stages after which to stop; all blocks run when None.
    """
    steps: dict[str, Callable[[Any], Any]] = {}
    start = 0
    for name, end in ends:
        steps[name] = partial(_through, blocks, range(start, end))
        start = end
    return in_turn(x, steps, until)


def _through(blocks: Any, indices: range, x: Any) -> Any:
    for index in indices:
        x = blocks[index](x)
    return x
