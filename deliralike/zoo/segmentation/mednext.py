"""MedNeXt in 2 and 3 dimensions, as in MONAI.

It follows the paper, whose start of large kernels from small ones (UpKern) is not here.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.geometry import Sizes
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import paired


class MedNeXt(Model):
    """A U-Net of ConvNeXt's blocks, which also halve and double the size.

    Source: Roy et al. 2023, arXiv 2303.09975. Names, order, shapes and start values are those of
    MONAI's ``MedNeXt`` with residual connections.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        features: The width of the finest stage, which each halving doubles.
        blocks: The number of blocks of each stage: those on the way down, the coarsest one, and as
            many on the way up.
        expansions: How many times wider the blocks of each stage are inside.
        kernel_size: Of the depthwise convolutions; an odd number, or one for each axis.
        deep_supervision: Whether outputs of all sizes come in training, the finest first.
        dims: Number of spatial axes: 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``, with
        `deep_supervision` a tuple in training; the sizes must be multiples of
        ``2 ** (len(blocks) // 2)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple (the error names ``bottleneck``); or the input has
            another number of axes or channels (the error names ``stem``).
    """

    stem_paths = ("stem",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 2,
        features: int = 32,
        blocks: Sequence[int] = (2,) * 9,
        expansions: Sequence[int] = (2,) * 9,
        kernel_size: Sizes = 3,
        deep_supervision: bool = False,
        dims: int = 3,
    ) -> None:
        super().__init__()
        blocks, expansions = paired("MedNeXt", blocks=blocks, expansions=expansions)
        depth = len(blocks) // 2
        if depth == 0 or len(blocks) % 2 == 0:
            raise SettingError(
                f"MedNeXt: blocks={blocks!r}; wanted as many stages down as up, and one between"
            )
        nn = self.nn
        self.factors = (2**depth,) * dims
        kernel = medical.odd(kernel_size, dims)
        stages = []
        steps = []
        for stage, (count, expansion) in enumerate(
            zip(blocks, expansions, strict=True)
        ):
            width = features * 2 ** min(stage, 2 * depth - stage)
            if stage > depth:
                steps.append(Block(2 * width, width, expansion, kernel, "up"))
            row = [Block(width, width, expansion, kernel) for _ in range(count)]
            stages.append(nn.Sequential(*row))
            if stage < depth:
                steps.append(Block(width, 2 * width, expansion, kernel, "down"))
        self.stem = by_dims(nn, dims, "Conv")(in_channels, features, 1)
        self.enc_stages = nn.ModuleList(stages[:depth])
        self.down_blocks = nn.ModuleList(steps[:depth])
        self.bottleneck = stages[depth]
        self.up_blocks = nn.ModuleList(steps[depth:])
        self.dec_stages = nn.ModuleList(stages[depth + 1 :])
        self.out_0 = _head(nn, features, out_channels, dims)
        self.out_blocks = None
        if deep_supervision:
            widths = [features * 2**level for level in range(depth, 0, -1)]
            heads = [_head(nn, width, out_channels, dims) for width in widths]
            self.out_blocks = nn.ModuleList(heads)

    @property
    def head_paths(self):  # type: ignore[override]
        """The last layer of each output."""
        coarser = range(len(self.out_blocks or ()))
        return ("out_0.conv_out", *(f"out_blocks.{i}.conv_out" for i in coarser))

    def forward(self, x):
        stages = list(self.forward_stages(x).values())
        x = self.out_0(stages[-1])
        if self.out_blocks is None or not self.training:
            return x
        outputs = []
        coarser = stages[len(self.out_blocks) : -1]  # from the bottleneck on
        for head, stage in zip(self.out_blocks, coarser, strict=True):
            outputs.append(head(stage))
        return (x, *reversed(outputs))

    def forward_stages(self, x):
        """Return the stages down, the bottleneck, and the stages up.

        Each is ``(batch, features * 2**level, *size / 2**level)``.
        """
        medical.divides(self, x, self.factors, "bottleneck")
        x = self.stem(x)
        stages = {}
        for i, stage in enumerate(self.enc_stages):
            x = stage(x)
            stages[f"enc_stages.{i}"] = x
            x = self.down_blocks[i](x)
        skips = list(stages.values())
        x = self.bottleneck(x)
        stages["bottleneck"] = x
        for i, stage in enumerate(self.dec_stages):
            x = stage(self.up_blocks[i](x) + skips.pop())
            stages[f"dec_stages.{i}"] = x
        return stages


class Block(Network):
    """A depthwise convolution, then two of size 1 with a GELU between, beside a shortcut.

    Each channel is normalised by itself after the first.

    Args:
        direction: ``"down"`` to halve the size, ``"up"`` to double it.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``, or half or twice
        the size.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        expansion: int,
        kernel: tuple[int, ...],
        direction: str = "",
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, transposed = by_dims(nn, len(kernel), "Conv", "ConvTranspose")
        resample = transposed if direction == "up" else conv
        stride = 2 if direction else 1
        padding = tuple(side // 2 for side in kernel)
        inside = expansion * in_channels
        self.conv1 = resample(
            in_channels, in_channels, kernel, stride, padding, groups=in_channels
        )
        self.norm = nn.GroupNorm(in_channels, in_channels)
        self.conv2 = conv(in_channels, inside, 1)
        self.conv3 = conv(inside, out_channels, 1)
        self.res_conv = nn.Identity()
        if direction:
            self.res_conv = resample(in_channels, out_channels, 1, 2)
        self.doubles = direction == "up"

    def forward(self, x):
        nn = self.nn
        y = self.conv3(nn.gelu(self.conv2(self.norm(self.conv1(x)))))
        y = y + self.res_conv(x)
        if self.doubles:  # the convolution gives one element less than twice as many
            y = nn.pad(y, [(1, 0)] * (len(x.shape) - 2))
        return y


def _head(nn: Any, in_channels: int, out_channels: int, dims: int) -> Any:
    """Make the map to the classes at each place."""
    transposed = by_dims(nn, dims, "ConvTranspose")
    return nn.Sequential({"conv_out": transposed(in_channels, out_channels, 1)})


# size: (blocks and expansions down to the coarsest stage, parameters in 3 dimensions)
_VARIANTS = {
    "s": ((2, 2, 2, 2, 2), (2, 2, 2, 2, 2), 5_550_914),
    "b": ((2, 2, 2, 2, 2), (2, 3, 4, 4, 4), 10_510_850),
    "m": ((3, 4, 4, 4, 4), (2, 3, 4, 4, 4), 17_533_506),
    "l": ((3, 4, 8, 8, 8), (3, 4, 8, 8, 8), 61_726_754),
}

for _name, (_blocks, _expansions, _count) in _VARIANTS.items():
    register(
        MedNeXt,
        name=f"mednext_{_name}",
        variant={
            "blocks": _blocks + _blocks[-2::-1],
            "expansions": _expansions + _expansions[-2::-1],
        },
        task="segmentation",
        dims=(2, 3),
        source="Roy et al. 2023, arXiv 2303.09975; MONAI MedNeXt",
        shape=medical.volume((0, 256, 128)),
        parameters=_count,
    )
