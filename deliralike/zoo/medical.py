"""Blocks of the medical families, named as in MONAI, and checks of their sizes."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.containers import Sequential
from deliralike.zoo.blocks import by_dims
from deliralike.zoo.setting_checks import one_of

NORMS = ("instance", "batch", "group")
ACTIVATIONS = {
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "prelu": "PReLU",
    "elu": "ELU",
}


def normalisation(
    nn: Any,
    norm: str,
    channels: int,
    dims: int,
    affine: bool = True,
    num_groups: int = 8,
) -> Any:
    """Make a normalisation by name.

    Args:
        norm: ``"instance"``, ``"batch"`` or ``"group"``.
        affine: Whether an instance normalisation has scale and shift; the others always have.
        num_groups: Groups of the group normalisation.

    Raises:
        SettingError: There is no such normalisation.
    """
    one_of(norm, NORMS, "norm", "normalisation")
    if norm == "group":
        return nn.GroupNorm(num_groups, channels)
    if norm == "batch":
        return by_dims(nn, dims, "BatchNorm")(channels)
    return by_dims(nn, dims, "InstanceNorm")(channels, affine=affine)


def activation(nn: Any, act: str, **settings: Any) -> Any:
    """Make an activation by name: ``"relu"``, ``"leaky_relu"``, ``"prelu"`` or ``"elu"``.

    Raises:
        SettingError: There is no such activation.
    """
    one_of(act, ACTIVATIONS, "act", "activation")
    return getattr(nn, ACTIVATIONS[act])(**settings)


class ADN(Sequential):
    """Normalisation N (if any), dropout D and activation A (if any), in this order.

    The shape does not change.

    Source: MONAI's ``ADN``, whose names are followed.

    Args:
        channels: Channels of input and output.
        dims: Number of spatial axes.
        norm: See `normalisation`; None for none.
        act: See `activation`; None for none.
        dropout: Probability of dropping an element in training.
        affine, num_groups: Settings of the normalisation.
        negative_slope: The slope of a leaky ReLU; PyTorch's own when None.
    """

    def __init__(
        self,
        channels: int,
        dims: int,
        norm: str | None = "instance",
        act: str | None = "prelu",
        dropout: float = 0.0,
        affine: bool = False,
        num_groups: int = 8,
        negative_slope: float | None = None,
    ) -> None:
        nn = self.nn
        layers = {"N": nn.Identity(), "D": nn.Dropout(dropout), "A": nn.Identity()}
        if norm is not None:
            layers["N"] = normalisation(nn, norm, channels, dims, affine, num_groups)
        if act is not None:
            slope = (
                None if negative_slope is None else {"negative_slope": negative_slope}
            )
            layers["A"] = activation(nn, act, **(slope or {}))
        super().__init__(layers)


class Convolution(Sequential):
    """A convolution, or a transposed one, that keeps the size at stride 1.

    `ADN` follows it unless it stands alone.

    Source: MONAI's ``Convolution``, whose names are followed.

    Args:
        in_channels, out_channels: Channels before and after.
        dims: Number of spatial axes.
        kernel_size: An odd number, or one for each axis.
        stride: The factor by which the size is divided, or multiplied where `transposed`.
        bias: Whether the convolution has a bias.
        transposed: Whether the convolution is a transposed one.
        alone: Whether nothing follows the convolution.
        adn: Settings of the block that follows; see `ADN`.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up;
        ``*size * stride`` where `transposed`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int,
        kernel_size: Sizes = 3,
        stride: Sizes = 1,
        bias: bool = True,
        transposed: bool = False,
        alone: bool = False,
        **adn: Any,
    ) -> None:
        kernel = odd(kernel_size, dims)
        strides = geometry.steps(stride, dims, "stride")
        options: dict[str, Any] = {"bias": bias}
        options["padding"] = tuple(size // 2 for size in kernel)
        if transposed:
            options["output_padding"] = tuple(step - 1 for step in strides)
        kind = by_dims(self.nn, dims, "ConvTranspose" if transposed else "Conv")
        layers = {"conv": kind(in_channels, out_channels, kernel, strides, **options)}
        if not alone:
            layers["adn"] = ADN(out_channels, dims, **adn)
        super().__init__(layers)


def odd(kernel_size: Sizes, dims: int) -> tuple[int, ...]:
    """Return a kernel's size for each axis; only odd ones keep an image's size.

    Raises:
        SettingError: A size is even, or their number is not that of the axes.
    """
    kernel = geometry.steps(kernel_size, dims, "kernel_size")
    if any(size % 2 == 0 for size in kernel):
        raise SettingError(
            f"kernel_size={kernel_size!r}: wanted odd numbers, which keep the size"
        )
    return kernel


def per_stage(value: Any, count: int, name: str, what: str) -> tuple[Any, ...]:
    """Return one setting for each stage, from one for all or a list of as many.

    Raises:
        SettingError: The number of values is not that of the stages.

    Example:
        >>> per_stage(2, 3, "n_conv_per_stage", "PlainConvUNet")
        (2, 2, 2)
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return (value,) * count
    if len(value) != count:
        raise SettingError(
            f"{what}: {name}={value!r}; wanted one value for each of the {count} stages"
        )
    return tuple(value)


def reductions(strides: Sequence[Sizes], dims: int) -> tuple[int, ...]:
    """Return how many times smaller the last stage is along each axis, from the strides of all.

    Example:
        >>> reductions([1, (1, 2, 2), 2], 3)
        (2, 4, 4)
    """
    per_axis = [geometry.steps(stride, dims, "strides") for stride in strides]
    return tuple(math.prod(axis) for axis in zip(*per_axis, strict=True))


def divides(
    model: Any, x: Any, factors: Sequence[int], stage: str, several: bool = False
) -> None:
    """Check that the size of an input can be divided down to the coarsest stage.

    Args:
        factors: The factor by which that stage is smaller along each axis.
        stage: The name of that stage.
        several: Whether that stage needs more than one element for each sample, as an instance
            normalisation does.

    Raises:
        ShapeError: A size cannot be divided, or the input is too small; the message names the
            stage.
    """
    size = tuple(x.shape[2:])
    if len(size) != len(factors):
        return  # the stem says what is wrong
    if not _are_multiples(size, factors):
        raise ShapeError(
            f"{checks.where(model)}: an input of shape {tuple(x.shape)} does not fit the stage "
            f"{stage!r}: its spatial sizes must be multiples of {tuple(factors)}"
        )
    if several and size == tuple(factors):
        raise ShapeError(
            f"{checks.where(model)}: an input of shape {tuple(x.shape)} is too small for the stage "
            f"{stage!r}, whose normalisation needs more than one element: at least one axis must "
            "be twice as long"
        )


def _are_multiples(size: Sequence[int], factors: Sequence[int]) -> bool:
    """Return whether every size is a positive multiple of its factor."""
    pairs = zip(size, factors, strict=True)
    return all(length >= factor and length % factor == 0 for length, factor in pairs)


def volume(sides: Sequence[int]) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """Return a function from the settings to one sample's shape.

    Args:
        sides: The length of each axis of a signal, of an image and of a volume.
    """

    def shape(settings: Mapping[str, Any]) -> tuple[int, ...]:
        dims = settings["dims"]
        # the network refuses other numbers
        side = sides[dims - 1] if dims in (1, 2, 3) else 0
        return (settings["in_channels"], *(side,) * dims)

    return shape


def without_twins(
    network: Any, state: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Return a state with one name for each array that is tied in a network: its first one.

    The other names are left out where their values are the same.
    """
    firsts: dict[int, str] = {}
    distinct = dict(state)
    for name, slot in network.neutral_slots().items():
        first = firsts.setdefault(id(slot.native), name)
        is_twin = first != name and name in state and first in state
        if is_twin and np.array_equal(state[first], state[name]):
            del distinct[name]
    return distinct
