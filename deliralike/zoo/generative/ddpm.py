"""The U-Net of denoising diffusion models, as diffusers' UNet2DModel.

It predicts the noise in a picture at a time step.

It follows the paper's code for CIFAR-10, with diffusers' layout of the way up.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.containers import Sequential
from deliralike.zoo.blocks import at_least_single, by_dims
from deliralike.zoo.inputs import Input
from deliralike.zoo.layouts import as_grid, as_tokens, attend
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class DiffusionUNet(Model):
    """A U-Net of residual blocks that read the time step, with attention at some levels.

    Source: Ho et al. 2020, arXiv 2006.11239. Structure, names, order and start values are those of
    diffusers' ``UNet2DModel`` with the positional embedding of time and blocks ``DownBlock2D`` and
    ``AttnDownBlock2D``. (Diffusers computes that embedding in single precision whatever the
    network's type; here it is double in a network of double precision.)

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        features: The width of each level, from the finest to the coarsest.
        attention: For each level, whether its residual blocks are followed by attention; between
            the way down and the way up there always is.
        layers: Residual blocks of a level on the way down; on the way up there is one more.
        num_groups: Groups of the normalisations.
        eps: Their epsilon.
        dropout: Probability of dropping an element within the residual blocks in training.
        dims: Number of spatial axes: 1, 2 or 3. (In diffusers 2.)

    Shapes:
        ``(batch, in_channels, *size)`` and whole numbers ``(batch,)`` give
        ``(batch, out_channels, *size)``; each size is a multiple of ``2 ** (len(features) - 1)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple, or the input has another number of channels (the
            error names ``conv_in``).
    """

    stem_paths = ("conv_in",)
    head_paths = ("conv_out",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 3,
        features: Sequence[int] = (128, 256, 256, 256),
        attention: Sequence[bool] = (False, True, False, False),
        layers: int = 2,
        num_groups: int = 32,
        eps: float = 1e-6,
        dropout: float = 0.0,
        dims: int = 2,
    ) -> None:
        super().__init__()
        nn = self.nn
        widths = _widths(features, attention)
        checks.positive(layers, "layers", "DiffusionUNet")
        conv = by_dims(nn, dims, "Conv")
        self.halvings = len(widths) - 1
        first = widths[0]
        time_width = 4 * widths[0]
        options: dict[str, Any] = {
            "dims": dims,
            "time_width": time_width,
            "num_groups": num_groups,
            "eps": eps,
            "dropout": dropout,
        }
        self.conv_in = conv(in_channels, first, 3, padding=1)
        embedding = {
            "linear_1": nn.Linear(first, time_width),
            "act": nn.SiLU(),
            "linear_2": nn.Linear(time_width, time_width),
        }
        self.time_embedding = nn.Sequential(embedding)
        down_blocks = []
        for level, (before, width) in enumerate(pairwise((first, *widths))):
            halves = level < self.halvings
            down_blocks.append(
                Down(before, width, layers, attention[level], halves, **options)
            )
        self.down_blocks = nn.ModuleList(down_blocks)
        up_blocks = []
        for level, before, width, finer in levels_up(widths):
            block = Up(
                before, width, finer, layers + 1, attention[level], level > 0, **options
            )
            up_blocks.append(block)
        self.up_blocks = nn.ModuleList(up_blocks)
        self.mid_block = Middle(widths[-1], **options)
        self.conv_norm_out = nn.GroupNorm(num_groups, first, eps)
        self.conv_out = conv(first, out_channels, 3, padding=1)

    def forward(self, x, time):
        x = self.last_stage(x, time)
        return self.conv_out(self.nn.silu(self.conv_norm_out(x)))

    def forward_stages(self, x, time):
        """Return the outputs of the first convolution and of each level, down and up."""
        check_halvings(self, x)
        width = self.conv_in.out_channels
        waves = time_waves(self, time, width, x, flip=False, shift=1.0)
        time = self.time_embedding(waves)  # (batch, 4 * features[0])
        return run_levels(self, x, "mid", time)


def check_halvings(model: Any, x: Any) -> None:
    """Check that each size of an input can be halved as often as a model does.

    Raises:
        ShapeError: One cannot.
    """
    multiple = 2**model.halvings
    if any(size % multiple for size in x.shape[2:]):
        raise ShapeError(
            f"{checks.where(model)}: got an input of shape {tuple(x.shape)}, wanted sizes that are "
            f"multiples of {multiple}"
        )


def levels_up(widths: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the levels of the way up from the coarsest.

    Each comes as its number, the width of the level before, its own, and that of the finer one,
    whose output is its last skip.
    """
    before = widths[-1]
    for level in reversed(range(len(widths))):
        yield level, before, widths[level], widths[max(level - 1, 0)]
        before = widths[level]


def with_skips(
    in_channels: int, out_channels: int, finer: int, layers: int
) -> list[int]:
    """Return the channels that each residual block of a level on the way up takes."""
    inner = [out_channels] * (layers - 1)
    pairs = zip([in_channels, *inner], [*inner, finer], strict=True)
    return [width + skip for width, skip in pairs]


def run_levels(model: Any, x: Any, middle: str, *conditions: Any) -> dict[str, Any]:
    """Run the levels down, the middle and the levels up, which take skips, and return all outputs.

    Args:
        model: Has ``conv_in``, ``down_blocks``, ``up_blocks`` and the block in the middle.
        x: The input.
        middle: The name of the stage in the middle, whose block has ``_block`` behind it.
        conditions: Further arguments of each block.
    """
    x = model.conv_in(x)
    stages = {"conv_in": x}
    skips = [x]
    for level, block in enumerate(model.down_blocks):
        x, new = block(x, *conditions)
        stages[f"down_{level}"] = x
        skips += new
    x = getattr(model, f"{middle}_block")(x, *conditions)
    stages[middle] = x
    for level, block in enumerate(model.up_blocks):
        used = [skips.pop() for _ in range(block.layers)]
        x = block(x, used, *conditions)
        stages[f"up_{level}"] = x
    return stages


def time_waves(
    model: Any, time: Any, width: int, like: Any, flip: bool = True, shift: float = 0.0
) -> Any:
    """Return sines and cosines of time steps at falling frequencies.

    Args:
        model: The network; errors name it.
        time: Whole numbers ``(batch,)``.
        width: Number of waves, half of them sines.
        like: An array of the wanted type.
        flip: Whether the cosines come first.
        shift: What is taken off the number of frequencies when they are spaced.

    Returns:
        ``(batch, width)``, computed in single precision at least: half of it cannot count steps.
    """
    nn = model.nn
    checks.whole_numbers(time, f"{checks.where(model)}: time steps")
    half = width // 2
    spaces = max(half - shift, 1.0)  # one wave alone has none
    frequencies = np.exp(-math.log(10000.0) * np.arange(half) / spaces)
    steps = nn.unsqueeze(nn.cast(time, at_least_single(like)), 1)
    angles = steps * nn.constant(frequencies, like=steps)
    waves = [nn.sin(angles), nn.cos(angles)]
    if flip:
        waves.reverse()
    return nn.cast(nn.cat(waves, dim=1), like)


def add_time(nn: Any, y: Any, projection: Any, time: Any) -> Any:
    """Add a linear map of the time's embedding, after SiLU, to each place of a picture."""
    shift = projection(nn.silu(time))  # (batch, channels)
    return y + nn.reshape(shift, (*shift.shape, *(1,) * (len(y.shape) - 2)))


class Residual(Network):
    """Two convolutions, each after a normalisation and SiLU.

    The embedding of time is added between them.

    Shapes:
        ``(batch, in_channels, *size)`` and ``(batch, time_width)`` give
        ``(batch, out_channels, *size)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dims: int,
        time_width: int,
        num_groups: int,
        eps: float,
        dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv = by_dims(nn, dims, "Conv")
        self.norm1 = nn.GroupNorm(num_groups, in_channels, eps)
        self.conv1 = conv(in_channels, out_channels, 3, padding=1)
        self.time_emb_proj = nn.Linear(time_width, out_channels)
        self.norm2 = nn.GroupNorm(num_groups, out_channels, eps)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = conv(out_channels, out_channels, 3, padding=1)
        self.conv_shortcut = None
        if in_channels != out_channels:
            self.conv_shortcut = conv(in_channels, out_channels, 1)

    def forward(self, x, time):
        nn = self.nn
        y = self.conv1(nn.silu(self.norm1(x)))  # (batch, out_channels, *size)
        y = add_time(nn, y, self.time_emb_proj, time)
        y = self.conv2(self.dropout(nn.silu(self.norm2(y))))
        if self.conv_shortcut is not None:
            x = self.conv_shortcut(x)
        return y + x


class Attention(Network):
    """Attention between all places of a picture with one head, added to it.

    Shapes:
        ``(batch, channels, *size)``
    """

    def __init__(self, channels: int, num_groups: int, eps: float) -> None:
        super().__init__()
        nn = self.nn
        self.group_norm = nn.GroupNorm(num_groups, channels, eps)
        self.to_q = nn.Linear(channels, channels)
        self.to_k = nn.Linear(channels, channels)
        self.to_v = nn.Linear(channels, channels)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, x):
        nn = self.nn
        tokens = as_tokens(nn, self.group_norm(x))
        q, k, v = self.to_q(tokens), self.to_k(tokens), self.to_v(tokens)
        y = self.to_out[0](attend(nn, q, k, v, 1))
        return x + as_grid(nn, y, x.shape[2:])


class DownLevel(Network):
    """Residual blocks, perhaps with attention, then perhaps a layer that halves the size.

    A subclass makes `resnets`, `attentions` or None, and the layer that `resizing` names or None.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / 2)``, and a list of
        the outputs of all blocks.
    """

    resizing: ClassVar[str] = "downsamplers"

    def forward(self, x, time, *context):
        outputs = []
        for number, block in enumerate(self.resnets):
            x = block(x, time)
            if self.attentions is not None:
                x = self.attentions[number](x, *context)
            outputs.append(x)
        halve = getattr(self, self.resizing)
        if halve is not None:
            x = halve(x)
            outputs.append(x)
        return x, outputs


class Down(DownLevel):
    """The level of `DiffusionUNet` on the way down."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layers: int,
        attends: bool,
        halves: bool,
        **options: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.attentions = None
        if attends:
            self.attentions = _attentions(nn, out_channels, layers, options)
        widths = [in_channels, *[out_channels] * (layers - 1)]
        self.resnets = nn.ModuleList(
            [Residual(width, out_channels, **options) for width in widths]
        )
        self.downsamplers = None
        if halves:
            self.downsamplers = nn.Sequential(Halve(out_channels, options["dims"]))


class Middle(Network):
    """A residual block, attention, and another residual block; the shape stays."""

    def __init__(self, channels: int, **options: Any) -> None:
        super().__init__()
        self.attentions = _attentions(self.nn, channels, 1, options)
        self.resnets = self.nn.ModuleList(
            [Residual(channels, channels, **options) for _ in range(2)]
        )

    def forward(self, x, time):
        first, second = self.resnets
        return second(self.attentions[0](first(x, time)), time)


class UpLevel(Network):
    """Residual blocks, each on its input and a skip, with attention if wanted.

    If wanted, the size is doubled at the end. A subclass makes the same as one of `DownLevel`, and
    `layers`, the number of residual blocks.

    Shapes:
        ``(batch, in_channels, *size)`` and the skips, the coarsest first, give
        ``(batch, out_channels, *2 * size)``.
    """

    resizing: ClassVar[str] = "upsamplers"

    def forward(self, x, skips, time, *context):
        for number, (block, skip) in enumerate(zip(self.resnets, skips, strict=True)):
            x = block(self.nn.cat([x, skip], dim=1), time)
            if self.attentions is not None:
                x = self.attentions[number](x, *context)
        double = getattr(self, self.resizing)
        return x if double is None else double(x)


class Up(UpLevel):
    """The level of `DiffusionUNet` on the way up."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        finer: int,
        layers: int,
        attends: bool,
        doubles: bool,
        **options: Any,
    ) -> None:
        super().__init__()
        nn, self.layers = self.nn, layers
        self.attentions = None
        if attends:
            self.attentions = _attentions(nn, out_channels, layers, options)
        widths = with_skips(in_channels, out_channels, finer, layers)
        self.resnets = nn.ModuleList(
            [Residual(width, out_channels, **options) for width in widths]
        )
        self.upsamplers = None
        if doubles:
            self.upsamplers = nn.Sequential(Double(out_channels, options["dims"]))


class Halve(Network):
    """A convolution with stride 2 that pads the far side only.

    So TensorFlow pads it, in which DDPM was written first.

    Shapes:
        ``(batch, channels, *size)`` gives ``(batch, channels, *size / 2)``.
    """

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        self.conv = by_dims(self.nn, dims, "Conv")(channels, channels, 3, 2)

    def forward(self, x):
        return self.conv(self.nn.pad(x, [(0, 1)] * (len(x.shape) - 2)))


class Double(Sequential):
    """Each element twice along each axis, then a convolution.

    Shapes:
        ``(batch, channels, *size)`` gives ``(batch, channels, *2 * size)``.
    """

    def __init__(self, channels: int, dims: int) -> None:
        conv = by_dims(self.nn, dims, "Conv")(channels, channels, 3, padding=1)
        super().__init__({"upsample": self.nn.Upsample(scale_factor=2.0), "conv": conv})


def _attentions(nn, channels: int, count: int, options: Mapping[str, Any]):
    settings = (channels, options["num_groups"], options["eps"])
    return nn.ModuleList([Attention(*settings) for _ in range(count)])


def _widths(features: Sequence[int], attention: Sequence[bool]) -> tuple[int, ...]:
    widths = numbers(features, "features", "DiffusionUNet")
    if isinstance(attention, bool | str) or len(attention) != len(features):
        raise SettingError(
            f"DiffusionUNet: attention={attention!r}; wanted True or False for each of "
            f"{len(features)} levels"
        )
    checks.divides(widths[0], 2, "DiffusionUNet: features[0]", "2 (sines and cosines)")
    return widths


_STEPS = 1000
# name: (settings, size of the pictures, parameters, source)
_VARIANTS = {
    "ddpm_cifar10": ({}, 32, 35_746_307, "diffusers, google/ddpm-cifar10-32"),
    "ddpm_celebahq": (
        {
            "features": (128, 128, 256, 256, 512, 512),
            "attention": (False, False, False, False, True, False),
        },
        256,
        113_673_219,
        "diffusers, google/ddpm-celebahq-256",
    ),
    "ddpm_small": (
        {
            "in_channels": 1,
            "out_channels": 1,
            "features": (32, 64, 64),
            "attention": (False, False, True),
            "layers": 1,
            "num_groups": 8,
        },
        28,
        None,
        "diffusers' UNet2DModel",
    ),
}


def _inputs(size: int):
    def shapes(settings):
        picture = (settings["in_channels"], *(size,) * settings["dims"])
        return [picture, Input((), below=_STEPS)]

    return shapes


for _name, (_variant, _size, _parameters, _source) in _VARIANTS.items():
    register(
        DiffusionUNet,
        name=_name,
        variant=_variant,
        task="generation",
        dims=(1, 2, 3),
        source=f"Ho et al. 2020, arXiv 2006.11239; {_source}",
        shape=_inputs(_size),
        parameters=_parameters,
    )
