"""Small things that several families need when they are built."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks


def by_dims(nn: Any, dims: int, *kinds: str) -> Any:
    """The layers of some kinds for so many spatial axes: one, or a list of several.

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
    return layers[0] if len(layers) == 1 else layers


def classifier(nn: Any, width: int, num_classes: int, what: str) -> Any:
    """The last layer of a classifier; without classes it passes its input on.

    Raises:
        SettingError: `num_classes` is negative or no whole number.
    """
    if num_classes == 0 and not isinstance(num_classes, bool):
        return nn.Identity()
    return nn.Linear(width, checks.positive(num_classes, "num_classes", what))


def images(side: int) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """One sample's shape, from the settings: images (or signals, or volumes) of that side."""
    return lambda settings: (settings["in_channels"], *(side,) * settings.get("dims", 2))


def large_enough(model: Any, x: Any, least: int, stage: str) -> None:
    """Every spatial axis of an input ``(batch, channels, *size)`` has at least so many elements.

    Args:
        stage: The first stage that a smaller input would not survive; the error names it.

    Raises:
        ShapeError: One is too short.
    """
    if min(x.shape[2:], default=least) < least:
        raise ShapeError(
            f"{checks.where(model)}: an input of shape {tuple(x.shape)} is too small for the stage {stage!r}: it needs "
            f"at least {least} elements along each spatial axis"
        )


def run_stages(blocks: Any, x: Any, ends: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Run numbered blocks one after the other; what some of them put out, by name.

    Args:
        blocks: An ``nn.Sequential``.
        x: The first block's input.
        ends: The stages' names in order, each with the number of blocks up to its end.
    """
    stages: dict[str, Any] = {}
    start = 0
    for name, end in ends:
        for index in range(start, end):
            x = blocks[index](x)
        stages[name], start = x, end
    return stages
