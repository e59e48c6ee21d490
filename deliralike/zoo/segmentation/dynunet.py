"""MONAI's DynUNet: a U-Net after nnU-Net in 1, 2 and 3 dimensions.

Its kernels, strides and widths are settings.

A network for planning software rather than of one paper; its kernels and strides are arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims, each_output, numbered
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class DynUNet(Model):
    """A U-Net with two convolutions, or a residual block, at each of several sizes.

    With deep supervision it has outputs at some of these sizes.

    Source: Isensee et al. 2019, arXiv 1904.08128; Futrega et al. 2021, arXiv 2110.03352. Names,
    order and shapes are those of MONAI's ``DynUNet``, start values too. The reference keeps all
    blocks a second time under ``skip_layers``; here too these are one block under two names, and a
    file may have either.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Of each stage, at least three: numbers, or tuples with one for each axis.
        strides: By what each stage divides the size, in the same way.
        filters: The width of each stage; when None 32, 64, 128 … up to 320, or 512 with one or two
            axes.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: Probability of dropping an element in training, after each convolution.
        norm: ``"instance"`` (with scale and shift), ``"batch"`` or ``"group"``.
        deep_supervision: Whether to give the outputs of several sizes in training.
        deep_supr_num: How many besides the finest.
        res_block: Whether the blocks on the way down are residual.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / strides[0])``; with
        `deep_supervision` in training
        ``(batch, 1 + deep_supr_num, out_channels, *size / strides[0])``: the finest output, then
        the coarser ones, each repeated to the finest's size. The sizes must be multiples of the
        product of all strides along their axis.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple, or the coarsest stage would have a single element
            (the error names it); or the input has another number of axes or channels (the error
            names the layer).
    """

    outputs = "out_channels"
    # MONAI passes by convolutions with one axis; here they start as all others.
    start_values = {
        "*conv?.conv.weight": HeNormal("in", 0.01),
        "*.conv.conv.weight": HeNormal("in", 0.01),
        "*transp_conv.conv.weight": HeNormal("in", 0.01),
        "*.conv.bias": ZEROS,
    }

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 2,
        kernel_size: Sequence[Sizes] = (3, 3, 3, 3, 3, 3),
        strides: Sequence[Sizes] = (1, 2, 2, 2, 2, 2),
        filters: Sequence[int] | None = None,
        dims: int = 3,
        dropout: float = 0.0,
        norm: str = "instance",
        deep_supervision: bool = False,
        deep_supr_num: int = 1,
        res_block: bool = False,
    ) -> None:
        super().__init__()
        count = _count(kernel_size, strides)
        widths = _widths(filters, count, dims)
        options: dict[str, Any] = {"dims": dims, "norm": norm, "dropout": dropout}
        self.factors = medical.reductions(strides, dims)
        self.several = norm == "instance"
        self.deep_supervision = bool(deep_supervision)
        nn = self.nn
        stages = zip((in_channels, *widths), widths, kernel_size, strides, strict=False)
        first, *downs, last = [
            Block(*stage, res_block=res_block, **options) for stage in stages
        ]
        fine = widths[-2::-1]
        coarse = widths[:0:-1]
        steps = zip(coarse, fine, kernel_size[:0:-1], strides[:0:-1], strict=True)
        self.input_block = first
        self.downsamples = nn.ModuleList(downs)
        self.bottleneck = last
        up_blocks = [UpBlock(*step, **options) for step in steps]
        self.upsamples = nn.ModuleList(up_blocks)
        self.output_block = OutBlock(widths[0], out_channels, dims, dropout)
        heads = []
        for width in widths[1 : 1 + _heads(deep_supr_num, count)]:
            heads.append(OutBlock(width, out_channels, dims, dropout))
        if self.deep_supervision:
            self.deep_supervision_heads = nn.ModuleList(heads)
        else:
            heads = []
        self.skip_layers = _twins([first, *downs], up_blocks[::-1], last, heads)

    @property
    def stem_paths(self) -> tuple[str, ...]:  # type: ignore[override]
        """The convolution that reads the input, or two of a residual block."""
        layers = (
            ("conv1", "conv3") if hasattr(self.input_block, "conv3") else ("conv1",)
        )
        return tuple(f"input_block.{layer}.conv" for layer in layers)

    @property
    def head_paths(self) -> tuple[str, ...]:  # type: ignore[override]
        """The output's layer, and those of deep supervision."""
        paths = ["output_block.conv.conv"]
        if self.deep_supervision:
            for i in range(len(self.deep_supervision_heads)):
                paths.append(f"deep_supervision_heads.{i}.conv.conv")
        return tuple(paths)

    def forward(self, x):
        nn = self.nn
        stages = list(self.forward_stages(x).values())
        y = self.output_block(stages[-1])
        if not (self.training and self.deep_supervision):
            return y
        outputs = [y]
        size = tuple(y.shape[2:])
        for i, head in enumerate(self.deep_supervision_heads):
            coarser = head(stages[-2 - i])
            outputs.append(nn.interpolate(coarser, size))
        return nn.stack(outputs, dim=1)

    def forward_stages(self, x):
        """Return the outputs of the blocks on the way down and up, by their paths."""
        medical.divides(self, x, self.factors, "bottleneck", self.several)
        x = self.input_block(x)
        skips = [x, *each_output(x, self.downsamples)]
        stages = {"input_block": x} | numbered("downsamples.", skips[1:])
        x = self.bottleneck(skips[-1])
        stages["bottleneck"] = x
        for i, up in enumerate(self.upsamples):
            x = up(x, skips.pop())
            stages[f"upsamples.{i}"] = x
        return stages

    def adapt_state(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Leave one name for each array.

        A file with both names may then be adapted, and an older one may lack ``skip_layers``.
        """
        return medical.without_twins(self, state)


class SkipLayer(Network):
    """The blocks of one level and the next level, under the reference's second names for them."""

    def __init__(
        self, downsample: Any, upsample: Any, next_layer: Any, super_head: Any = None
    ) -> None:
        super().__init__()
        self.downsample = downsample
        self.next_layer = next_layer
        self.upsample = upsample
        self.super_head = super_head


class Block(Network):
    """Two convolutions, each with normalisation and leaky ReLU.

    With `res_block` there is a shortcut before the last activation, which is a 1x1 convolution
    where size or width change.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 3,
        stride: Sizes = 1,
        *,
        dims: int,
        norm: str,
        dropout: float = 0.0,
        affine: bool = True,
        res_block: bool = False,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.conv1 = Conv(in_channels, out_channels, kernel_size, stride, dims, dropout)
        self.conv2 = Conv(out_channels, out_channels, kernel_size, 1, dims, dropout)
        self.lrelu = nn.LeakyReLU(0.01)
        self.norm1 = medical.normalisation(nn, norm, out_channels, dims, affine)
        self.norm2 = medical.normalisation(nn, norm, out_channels, dims, affine)
        self.res_block = bool(res_block)
        halves = max(geometry.steps(stride, dims, "strides")) > 1
        self.changes = self.res_block and (in_channels != out_channels or halves)
        if self.changes:
            self.conv3 = Conv(in_channels, out_channels, 1, stride, dims, dropout)
            self.norm3 = medical.normalisation(nn, norm, out_channels, dims, affine)

    def forward(self, x):
        y = self.lrelu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.changes:
            x = self.norm3(self.conv3(x))
        if self.res_block:
            y = y + x
        return self.lrelu(y)


class UpBlock(Network):
    """A transposed convolution, the finer level beside it, and a block.

    Shapes:
        ``(batch, in_channels, *coarse)`` and ``(batch, out_channels, *size)`` give
        ``(batch, out_channels, *size)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        upsample: Sizes,
        *,
        dims: int,
        dropout: float = 0.0,
        **block: Any,
    ) -> None:
        super().__init__()
        self.transp_conv = Conv(
            in_channels,
            out_channels,
            upsample,
            upsample,
            dims,
            dropout,
            transposed=True,
        )
        block |= {"dims": dims, "dropout": dropout}
        self.conv_block = Block(2 * out_channels, out_channels, kernel_size, **block)

    def forward(self, x, skip):
        x = self.transp_conv(x)  # (batch, out_channels, *size)
        return self.conv_block(self.nn.concatenate([x, skip], dim=1))


class OutBlock(Sequential):
    """A 1x1 convolution with bias to the outputs.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, dims: int, dropout: float = 0.0
    ) -> None:
        conv = Conv(in_channels, out_channels, 1, 1, dims, dropout, bias=True)
        super().__init__({"conv": conv})


class Conv(Sequential):
    """A convolution padded by half of what the kernel is longer than the stride, then dropout.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``;
        ``*size * stride`` where `transposed`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        dims: int,
        dropout: float = 0.0,
        bias: bool = False,
        transposed: bool = False,
    ) -> None:
        kernel = geometry.steps(kernel_size, dims, "kernel_size")
        stride = geometry.steps(stride, dims, "strides")
        padding = tuple((k - s + 1) // 2 for k, s in zip(kernel, stride, strict=True))
        if min(padding) < 0:
            raise SettingError(
                f"DynUNet: a kernel of {kernel} is too small for the stride {stride}"
            )
        kind = by_dims(self.nn, dims, "ConvTranspose" if transposed else "Conv")
        conv = kind(in_channels, out_channels, kernel, stride, padding, bias=bias)
        super().__init__({"conv": conv, "dropout": self.nn.Dropout(dropout)})


def _twins(downs: list[Any], ups: list[Any], bottleneck: Any, heads: list[Any]) -> Any:
    """Nest all blocks as the reference does; the level below the input has the first head."""
    layer = bottleneck
    for level in reversed(range(len(downs))):
        head = heads[level - 1] if 0 < level <= len(heads) else None
        layer = SkipLayer(downs[level], ups[level], layer, head)
    return layer


def _count(kernels: Sequence[Sizes], strides: Sequence[Sizes]) -> int:
    lists = not isinstance(kernels, int) and not isinstance(strides, int)
    if not lists or len(kernels) != len(strides) or len(strides) < 3:
        raise SettingError(
            f"DynUNet: kernel_size={kernels!r} and strides={strides!r}; wanted one value for each "
            "of three or more stages"
        )
    return len(strides)


def _widths(filters: Sequence[int] | None, count: int, dims: int) -> tuple[int, ...]:
    if filters is None:
        most = 320 if dims == 3 else 512
        return tuple(min(32 * 2**stage, most) for stage in range(count))
    return numbers(filters, "filters", "DynUNet", least=count)[:count]


def _heads(deep_supr_num: int, count: int) -> int:
    if checks.positive(deep_supr_num, "deep_supr_num", "DynUNet") >= count - 1:
        raise SettingError(
            f"DynUNet: deep_supr_num={deep_supr_num}; wanted 1 to {count - 2}, fewer than stages "
            "go up"
        )
    return deep_supr_num


register(
    DynUNet,
    name="dynunet",
    task="segmentation",
    dims=(1, 2, 3),
    source=(
        "Isensee et al. 2019, arXiv 1904.08128; Futrega et al. 2021, arXiv 2110.03352; MONAI "
        "DynUNet"
    ),
    shape=medical.volume((1024, 512, 128)),
)
