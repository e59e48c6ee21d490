"""MONAI's SegResNet in 2 and 3 dimensions: residual blocks that begin with a normalisation.

Unlike the paper it has no branch that reconstructs the input.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims, each_output, numbered
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register


class SegResNet(Model):
    """A deep way down and a short way up, whose levels are added to those of the way down.

    Source: Myronenko 2018, arXiv 1810.11654, without its branch that reconstructs the input. Names,
    order and shapes are those of MONAI's ``SegResNet``, start values PyTorch's as there.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        init_filters: The width of the finest level; each further one is twice as wide.
        blocks_down: Residual blocks of each level on the way down.
        blocks_up: The same on the way up, from the coarsest, with one level less.
        dims: Number of spatial axes: 2 or 3.
        dropout: Probability of dropping a channel after the first convolution in training.
        num_groups: Groups of the normalisations.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``; the sizes must be
        multiples of ``2 ** (len(blocks_down) - 1)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple (the error names the coarsest level); or the input
            has another number of axes or channels (the error names the layer).
    """

    stem_paths = ("convInit.conv",)
    head_paths = ("conv_final.2.conv",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 2,
        init_filters: int = 8,
        blocks_down: Sequence[int] = (1, 2, 2, 4),
        blocks_up: Sequence[int] = (1, 1, 1),
        dims: int = 3,
        dropout: float = 0.0,
        num_groups: int = 8,
    ) -> None:
        super().__init__()
        downs, ups = _counts(blocks_down, blocks_up)
        width = init_filters
        nn = self.nn
        self.factors = (2 ** len(ups),) * dims
        self.convInit = _conv(in_channels, width, dims)
        down_layers = []
        for i, count in enumerate(downs):
            wide = width * 2**i
            first = nn.Identity() if i == 0 else _conv(wide // 2, wide, dims, stride=2)
            blocks = [ResBlock(wide, dims, num_groups) for _ in range(count)]
            down_layers.append(nn.Sequential(first, *blocks))
        self.down_layers = nn.ModuleList(down_layers)
        # before each step up
        widths = [width * 2**level for level in range(len(ups), 0, -1)]
        up_layers = []
        for wide, count in zip(widths, ups, strict=True):
            blocks = [ResBlock(wide // 2, dims, num_groups) for _ in range(count)]
            up_layers.append(nn.Sequential(*blocks))
        self.up_layers = nn.ModuleList(up_layers)
        up_samples = []
        for wide in widths:
            conv = _conv(wide, wide // 2, dims, kernel_size=1)
            double = nn.Upsample(scale_factor=2.0, mode="linear")
            up_samples.append(nn.Sequential(conv, double))
        self.up_samples = nn.ModuleList(up_samples)
        self.conv_final = nn.Sequential(
            nn.GroupNorm(num_groups, width),
            nn.ReLU(),
            _conv(width, out_channels, dims, kernel_size=1, bias=True),
        )
        self.dropout = by_dims(nn, dims, "Dropout")(dropout)

    def forward(self, x):
        return self.conv_final(self.last_stage(x))

    def forward_stages(self, x):
        """Return the levels on the way down and up again.

        Each is ``(batch, init_filters * 2**level, *size / 2**level)``.
        """
        depth = len(self.up_layers)
        medical.divides(self, x, self.factors, f"down_layers.{depth}")
        *skips, x = each_output(self.dropout(self.convInit(x)), self.down_layers)
        stages = numbered("down_layers.", [*skips, x])
        for i, (up, blocks) in enumerate(
            zip(self.up_samples, self.up_layers, strict=True)
        ):
            x = blocks(up(x) + skips.pop())
            stages[f"up_layers.{i}"] = x
        return stages


class ResBlock(Network):
    """Normalisation, ReLU and 3x3 convolution, twice, added to the input; the shape stays."""

    def __init__(self, channels: int, dims: int, num_groups: int) -> None:
        super().__init__()
        nn = self.nn
        self.norm1 = nn.GroupNorm(num_groups, channels)
        self.norm2 = nn.GroupNorm(num_groups, channels)
        self.act = nn.ReLU()
        self.conv1 = _conv(channels, channels, dims)
        self.conv2 = _conv(channels, channels, dims)

    def forward(self, x):
        y = self.conv1(self.act(self.norm1(x)))
        y = self.conv2(self.act(self.norm2(y)))
        return x + y


def _conv(
    in_channels: int, out_channels: int, dims: int, bias: bool = False, **options: Any
) -> Any:
    return medical.Convolution(
        in_channels, out_channels, dims, bias=bias, alone=True, **options
    )


def _counts(
    downs: Sequence[int], ups: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lists = not isinstance(downs, int | str) and not isinstance(ups, int | str)
    if not lists or not ups or len(downs) != len(ups) + 1:
        raise SettingError(
            f"SegResNet: blocks_down={downs!r} and blocks_up={ups!r}; wanted one level less on the "
            "way up"
        )
    for count in (*downs, *ups):
        checks.positive(count, "blocks", "SegResNet")
    return tuple(downs), tuple(ups)


register(
    SegResNet,
    name="segresnet",
    task="segmentation",
    dims=(2, 3),
    source="Myronenko 2018, arXiv 1810.11654; MONAI SegResNet",
    shape=medical.volume((0, 256, 96)),
)
