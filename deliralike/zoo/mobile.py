"""Blocks of the mobile families: convolution with normalisation, squeeze-and-excitation gate."""

import math
from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.containers import Sequential
from deliralike.zoo.blocks import by_dims


class ConvNormActivation(Sequential):
    """A convolution without bias (``0``), a batch normalisation (``1``) and an activation (``2``).

    Source: torchvision's ``Conv2dNormActivation``, whose names are followed.

    Args:
        in_channels, out_channels: Channels before and after.
        kernel_size: An odd number, so that the padding keeps the size at stride 1.
        stride, dilation, groups, padding: As in the convolution; the padding that keeps the size at
            stride 1 when None.
        activation: The name of a layer: ``"ReLU"``, ``"SiLU"``, ``"Hardswish"`` …; None for none.
        eps, momentum: Settings of the normalization.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: Sizes = 1,
        dilation: int = 1,
        groups: int = 1,
        activation: str | None = "ReLU",
        eps: float = 1e-5,
        momentum: float = 0.1,
        dims: int = 2,
        padding: Sizes | None = None,
    ) -> None:
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        if padding is None:
            padding = (kernel_size - 1) // 2 * dilation
        options = {"dilation": dilation, "groups": groups, "bias": False}
        blocks = [
            conv(in_channels, out_channels, kernel_size, stride, padding, **options),
            norm(out_channels, eps, momentum),
        ]
        if activation:
            blocks.append(getattr(self.nn, activation)())
        super().__init__(*blocks)


class SamePadded(ConvNormActivation):
    """`ConvNormActivation` with TensorFlow's padding.

    It is as little as gives ``size / stride``, with the odd element at the end.

    Args:
        side: The size of the input for which the padding is computed, whatever the size is; that of
            each input when None.
    """

    def __init__(self, *args: Any, side: int | None = None, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "padding": 0})
        self.side = side

    def forward(self, x):
        conv = self[0]
        pads = []
        for size, kernel, stride in zip(
            x.shape[2:], conv.kernel_size, conv.stride, strict=True
        ):
            side = size if self.side is None else self.side
            total = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
            pads.append((total // 2, total - total // 2))
        return super().forward(self.nn.pad(x, pads))


def conv_norm_activation(
    in_channels: int,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    same_padding: bool | int = False,
    **options: Any,
) -> Any:
    """Make a `ConvNormActivation`, or a `SamePadded` one.

    Args:
        same_padding: Whether to pad as TensorFlow does where the stride is more than 1; a number
            is the side of the input for which to do so.
    """
    if not same_padding or stride == 1:
        return ConvNormActivation(in_channels, channels, kernel, stride, **options)
    side = None if same_padding is True else same_padding
    return SamePadded(in_channels, channels, kernel, stride, side=side, **options)


def same_padding_after(same_padding: bool | int, stride: int) -> bool | int:
    """Return the padding for what comes after a stride: a side is then smaller.

    Example:
        >>> same_padding_after(225, 2), same_padding_after(True, 2)
        (113, True)
    """
    if isinstance(same_padding, bool):
        return same_padding
    return math.ceil(same_padding / stride)


class SqueezeExcitation(Network):
    """A gate for each channel, computed from the averages of all channels.

    Source: Hu et al. 2018, arXiv 1709.01507, figure 1; torchvision's ``SqueezeExcitation``, whose
    names are followed.

    Args:
        in_channels: Channels of input and output.
        squeeze_channels: Channels between the two 1x1 convolutions `fc1` and `fc2`.
        activation: The name of the layer after `fc1`.
        gate: The name of the layer after `fc2`: ``"Sigmoid"`` or ``"Hardsigmoid"``.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives the same shape.
    """

    def __init__(
        self,
        in_channels: int,
        squeeze_channels: int,
        activation: str = "ReLU",
        gate: str = "Sigmoid",
        dims: int = 2,
    ) -> None:
        super().__init__()
        conv, pool = by_dims(self.nn, dims, "Conv", "AdaptiveAvgPool")
        self.avgpool = pool(1)
        self.fc1 = conv(in_channels, squeeze_channels, 1)
        self.fc2 = conv(squeeze_channels, in_channels, 1)
        self.activation = getattr(self.nn, activation)()
        self.scale_activation = getattr(self.nn, gate)()

    def forward(self, x):
        gate = self.avgpool(x)  # (batch, in_channels, 1, ...)
        gate = self.activation(self.fc1(gate))
        gate = self.scale_activation(self.fc2(gate))
        return gate * x


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round a width to the nearest multiple of `divisor`.

    The result is at least `divisor`, and never below 90 % of the width.

    Source: the MobileNets in TensorFlow's model garden; torchvision.

    Example:
        >>> make_divisible(33), make_divisible(10), make_divisible(11.9)
        (32, 16, 16)
    """
    nearest = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return nearest if nearest >= 0.9 * value else nearest + divisor


def dilation_at(reduction: int, output_stride: int) -> int:
    """Return the dilation that stands for the strides beyond an output stride.

    Args:
        reduction: How many times smaller than the input the output would be with all strides.

    Example:
        >>> dilation_at(16, 32), dilation_at(32, 8)
        (1, 4)
    """
    return max(1, reduction // output_stride)


def check_output_stride(output_stride: int, owner: str) -> None:
    """Check an output stride.

    Raises:
        SettingError: It is not 8, 16 or 32.
    """
    if output_stride not in (8, 16, 32):
        raise SettingError(
            f"{owner}: output_stride={output_stride!r}; wanted 8, 16 or 32"
        )


def stage_ends(strides: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the stages of a row of blocks called ``features``.

    Each ends before a block that halves the size.

    Args:
        strides: The strides of the blocks in order; one more block follows them, which is the end
            of the last stage.

    Returns:
        What `deliralike.zoo.blocks.run_stages` takes; a stage has the name of its last block, as in
        torchvision.

    Example:
        >>> stage_ends([2, 1, 2, 1, 1])
        (('features.1', 2), ('features.5', 6))
    """
    ends = [at for at, stride in enumerate(strides) if stride > 1 and at > 0]
    ends.append(len(strides) + 1)
    return tuple((f"features.{end - 1}", end) for end in ends)
