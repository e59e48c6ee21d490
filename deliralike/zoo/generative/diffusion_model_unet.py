"""The U-Net of latent diffusion models, as MONAI's DiffusionModelUNet.

It predicts the noise at a time step, given a class or a context where wanted. It follows the
paper's code in 2 and 3 dimensions.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS
from deliralike.zoo import medical
from deliralike.zoo.generative.ddpm import (
    DownLevel,
    UpLevel,
    check_halvings,
    levels_up,
    run_levels,
    time_waves,
    with_skips,
)
from deliralike.zoo.generative.latent_blocks import (
    Attention,
    Residual,
    Shared,
    SpatialAttention,
    head_count,
    per_level,
)
from deliralike.zoo.inputs import Input
from deliralike.zoo.layouts import as_grid, as_tokens
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register


class DiffusionModelUNet(Model):
    """A U-Net of residual blocks that read the time step, with attention at some levels.

    Source: Rombach et al. 2022, arXiv 2112.10752, and Pinaya et al. 2022, arXiv 2209.07162. Names,
    order, shapes and start values are those of MONAI's ``DiffusionModelUNet``. (MONAI computes the
    embedding of time in single precision whatever the network's type; here it is double in a
    network of double precision.)

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        num_res_blocks: Residual blocks of each level on the way down, or one number for all; on the
            way up there is one more.
        channels: The width of each level, from the finest to the coarsest; multiples of
            `norm_num_groups`.
        attention_levels: For each level, whether its residual blocks are followed by attention;
            between the way down and the way up there always is.
        norm_num_groups: Groups of the normalisations.
        norm_eps: Their epsilon.
        num_head_channels: Width of each head of attention, one number or one for each level.
        with_conditioning: Whether attention is a transformer that also attends to a context.
        transformer_num_layers: Blocks of each such transformer.
        cross_attention_dim: Width of the context; wanted with `with_conditioning` alone.
        num_class_embeds: Number of classes that condition the network; None for none.
        dims: Number of spatial axes: 1, 2 or 3. (MONAI's ``spatial_dims``, there 2 or 3.)

    Shapes:
        ``(batch, in_channels, *size)`` and whole numbers ``timesteps`` ``(batch,)`` give
        ``(batch, out_channels, *size)``; each size is a multiple of ``2 ** (len(channels) - 1)``.
        With `with_conditioning` a ``context`` ``(batch, tokens, cross_attention_dim)`` comes third;
        without one the tokens of the picture attend to themselves, if the widths agree.
        With `num_class_embeds` ``class_labels`` ``(batch,)`` come last.

    Raises:
        SettingError: A setting makes no sense, or labels are missing.
        ShapeError: A size is no such multiple, or the input has another number of channels (the
            error names ``conv_in.conv``).
    """

    stem_paths = ("conv_in.conv",)
    head_paths = ("out.2.conv",)
    outputs = "out_channels"
    start_values = {
        "*conv2.conv.*": ZEROS,
        "*proj_out.conv.*": ZEROS,
        "out.2.conv.*": ZEROS,
    }

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        num_res_blocks: int | Sequence[int] = (2, 2, 2, 2),
        channels: Sequence[int] = (32, 64, 64, 64),
        attention_levels: Sequence[bool] = (False, False, True, True),
        norm_num_groups: int = 32,
        norm_eps: float = 1e-6,
        num_head_channels: int | Sequence[int] = 8,
        with_conditioning: bool = False,
        transformer_num_layers: int = 1,
        cross_attention_dim: int | None = None,
        num_class_embeds: int | None = None,
        dims: int = 2,
    ) -> None:
        super().__init__()
        nn = self.nn
        what = "DiffusionModelUNet"
        widths, layers, attends = per_level(
            what, channels, num_res_blocks, attention_levels
        )
        levels = len(widths)
        head_widths = medical.per_stage(
            num_head_channels, levels, "num_head_channels", what
        )
        checks.divides(widths[0], 2, f"{what}: channels[0]", "2 (sines and cosines)")
        _check_conditioning(with_conditioning, cross_attention_dim)
        first = widths[0]
        shared = Shared(
            dims,
            norm_num_groups,
            norm_eps,
            4 * first,
            transformer_num_layers,
            cross_attention_dim or 0,
        )
        self.width = first
        self.halvings = levels - 1
        self.conditioned = bool(with_conditioning)
        self.conv_in = shared.conv(in_channels, first)
        self.time_embed = nn.Sequential(
            nn.Linear(first, 4 * first), nn.SiLU(), nn.Linear(4 * first, 4 * first)
        )
        self.class_embedding = None
        if num_class_embeds is not None:
            self.class_embedding = nn.Embedding(num_class_embeds, 4 * first)
        heads = [
            head if on else None for head, on in zip(head_widths, attends, strict=True)
        ]
        down_blocks = []
        for level, (before, width) in enumerate(pairwise((first, *widths))):
            halves = level < self.halvings
            down_blocks.append(
                Down(before, width, layers[level], heads[level], halves, shared)
            )
        self.down_blocks = nn.ModuleList(down_blocks)
        self.middle_block = Middle(widths[-1], head_widths[-1], shared)
        up_blocks = []
        for level, before, width, finer in levels_up(widths):
            block = Up(
                before, width, finer, layers[level] + 1, heads[level], level > 0, shared
            )
            up_blocks.append(block)
        self.up_blocks = nn.ModuleList(up_blocks)
        last = shared.conv(first, out_channels)
        self.out = nn.Sequential(shared.norm(nn, first), nn.SiLU(), last)

    def forward(self, x, timesteps, context=None, class_labels=None):
        stages = self.forward_stages(x, timesteps, context, class_labels)
        return self.out(next(reversed(stages.values())))

    def forward_stages(self, x, timesteps, context=None, class_labels=None):
        """Return the outputs of the first convolution and of each level, down and up."""
        check_halvings(self, x)
        context, class_labels = self._conditions(context, class_labels)
        time = self.time_embed(time_waves(self, timesteps, self.width, x))
        if self.class_embedding is not None:
            time = time + self.class_embedding(class_labels)  # (batch, 4 * channels[0])
        return run_levels(self, x, "middle", time, context)

    def _conditions(self, context, class_labels):
        """Return context and labels; without cross attention labels may come third."""
        has_classes = self.class_embedding is not None
        if has_classes and not self.conditioned and class_labels is None:
            context, class_labels = None, context
        if has_classes and class_labels is None:
            raise SettingError(
                f"{checks.where(self)}: num_class_embeds is set, so class_labels are wanted: whole "
                "numbers (batch,)"
            )
        if context is not None and not self.conditioned:
            raise SettingError(
                f"{checks.where(self)}: got a context of shape {tuple(context.shape)}, but attends "
                "to none: build it with with_conditioning=True and cross_attention_dim"
            )
        if context is not None and context.ndim != 3:
            wanted = "a context (batch, tokens, cross_attention_dim)"
            raise checks.shape_error(checks.where(self), wanted, context)
        return context, class_labels


def _check_conditioning(
    with_conditioning: bool, cross_attention_dim: int | None
) -> None:
    """Check that the width of the context is given where there is one, and only there."""
    if bool(with_conditioning) != (cross_attention_dim is not None):
        raise SettingError(
            f"DiffusionModelUNet: with_conditioning={with_conditioning!r} and "
            f"cross_attention_dim={cross_attention_dim!r}; wanted both or neither"
        )


class TransformerBlock(Network):
    """Attention of tokens to each other, to a context, and a perceptron, each beside a shortcut.

    Shapes:
        ``(batch, tokens, width)`` and ``(batch, others, cross_attention_dim)`` give
        ``(batch, tokens, width)``.
    """

    def __init__(self, width: int, heads: int, shared: Shared) -> None:
        super().__init__()
        nn = self.nn
        self.attn1 = Attention(width, heads, width)
        self.ff = GatedPerceptron(width, 4 * width)
        self.attn2 = Attention(width, heads, shared.cross_attention_dim)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width)

    def forward(self, x, context):
        y = self.norm1(x)
        x = x + self.attn1(y, y)
        y = self.norm2(x)
        x = x + self.attn2(y, y if context is None else context)
        return x + self.ff(self.norm3(x))


class GatedPerceptron(Network):
    """Two linear maps; between them one half is multiplied by the exact GELU of the other.

    Source: Shazeer 2020, arXiv 2002.05202 (GEGLU).

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.linear1 = self.nn.Linear(width, 2 * inner)
        self.linear2 = self.nn.Linear(inner, width)

    def forward(self, x):
        value, gate = self.nn.chunk(self.linear1(x), 2, dim=-1)
        return self.linear2(value * self.nn.gelu(gate))


class SpatialTransformer(Network):
    """Transformer blocks over the places of a picture or volume, beside a shortcut.

    Shapes:
        ``(batch, channels, *size)`` and ``(batch, tokens, cross_attention_dim)`` give
        ``(batch, channels, *size)``.
    """

    def __init__(self, channels: int, head_width: int, shared: Shared) -> None:
        super().__init__()
        nn = self.nn
        heads = head_count(channels, head_width)
        self.norm = shared.norm(nn, channels)
        self.proj_in = shared.conv(channels, channels, 1)
        blocks = []
        for _ in range(shared.transformer_num_layers):
            blocks.append(TransformerBlock(channels, heads, shared))
        self.transformer_blocks = nn.ModuleList(blocks)
        self.proj_out = shared.conv(channels, channels, 1)

    def forward(self, x, context):
        tokens = as_tokens(self.nn, self.proj_in(self.norm(x)))
        for block in self.transformer_blocks:
            tokens = block(tokens, context)
        return x + self.proj_out(as_grid(self.nn, tokens, x.shape[2:]))


def _attention(channels: int, head_width: int, shared: Shared) -> Any:
    """Make the attention after a residual block: to a context too, if there is any."""
    if shared.cross_attention_dim:
        return SpatialTransformer(channels, head_width, shared)
    return SpatialAttention(channels, head_width, shared)


class Down(DownLevel):
    """The level of `DiffusionModelUNet` on the way down."""

    resizing = "downsampler"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layers: int,
        head_width: int | None,
        halves: bool,
        shared: Shared,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.attentions = _attentions(nn, out_channels, layers, head_width, shared)
        widths = [in_channels, *[out_channels] * (layers - 1)]
        self.resnets = nn.ModuleList(
            [Residual(width, out_channels, shared) for width in widths]
        )
        self.downsampler = None
        if halves:
            conv = shared.conv(out_channels, out_channels, stride=2)
            self.downsampler = nn.Sequential({"op": conv})


class Middle(Network):
    """A residual block, attention, and another residual block; the shape stays."""

    def __init__(self, channels: int, head_width: int, shared: Shared) -> None:
        super().__init__()
        self.resnet_1 = Residual(channels, channels, shared)
        self.attention = _attention(channels, head_width, shared)
        self.resnet_2 = Residual(channels, channels, shared)

    def forward(self, x, time, context):
        x = self.attention(self.resnet_1(x, time), context)
        return self.resnet_2(x, time)


class Up(UpLevel):
    """The level of `DiffusionModelUNet` on the way up."""

    resizing = "upsampler"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        finer: int,
        layers: int,
        head_width: int | None,
        doubles: bool,
        shared: Shared,
    ) -> None:
        super().__init__()
        nn, self.layers = self.nn, layers
        widths = with_skips(in_channels, out_channels, finer, layers)
        resnets = [Residual(width, out_channels, shared) for width in widths]
        attentions = _attentions(nn, out_channels, layers, head_width, shared)
        if not shared.cross_attention_dim:  # the reference's two orders
            self.resnets = nn.ModuleList(resnets)
            self.attentions = attentions
        else:
            self.attentions = attentions
            self.resnets = nn.ModuleList(resnets)
        self.upsampler = None
        if doubles:
            self.upsampler = Double(out_channels, shared)


class Double(Sequential):
    """Each element twice along each axis, then a convolution.

    Shapes:
        ``(batch, channels, *size)`` gives ``(batch, channels, *2 * size)``.
    """

    def __init__(self, channels: int, shared: Shared) -> None:
        double = self.nn.Upsample(scale_factor=2.0)
        super().__init__(
            {"upsample": double, "postconv": shared.conv(channels, channels)}
        )


def _attentions(
    nn: Any, channels: int, count: int, head_width: int | None, shared: Shared
) -> Any:
    if head_width is None:
        return None
    return nn.ModuleList(
        [_attention(channels, head_width, shared) for _ in range(count)]
    )


def _inputs(settings: Mapping[str, Any]) -> list[Any]:
    size = (32,) * settings["dims"]
    inputs = [(settings["in_channels"], *size), Input((), below=1000)]
    if settings["with_conditioning"]:
        inputs.append(Input((1, settings["cross_attention_dim"])))
    if settings["num_class_embeds"] is not None:
        inputs.append(Input((), below=settings["num_class_embeds"]))
    return inputs


register(
    DiffusionModelUNet,
    name="diffusion_model_unet",
    task="generation",
    dims=(1, 2, 3),
    source="Rombach et al. 2022, arXiv 2112.10752; MONAI DiffusionModelUNet",
    shape=_inputs,
    parameters=2_328_449,
)
