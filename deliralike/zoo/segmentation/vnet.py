"""V-Net: 5x5 convolutions in residual stages, strided ones between them, in 2 and 3 dimensions.

Unlike the paper, as MONAI: ELU instead of PReLU, batch normalisation, dropout, no biases before a
normalisation.
"""

from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register


class VNet(Model):
    """Four stages down and up, each a residual block of 5x5 convolutions.

    Source: Milletari et al. 2016, arXiv 1606.04797. Names, order and shapes are those of MONAI's
    ``VNet``, start values PyTorch's as there.

    Args:
        in_channels: Number of input channels; a divisor of 16, since the first stage adds the
            input, repeated.
        out_channels: Number of output channels.
        dims: Number of spatial axes: 2 or 3.
        dropout: Probability of dropping a channel in training: after the last two steps down,
            before the first two up.
        skip_dropout: The same for what each stage on the way up takes over from the way down.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``; the sizes must be
        multiples of 16.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple; or the input has another number of axes or channels
            (the error names ``in_tr.conv_block.conv``).
    """

    # All of the last transition is as wide as the output.
    stem_paths = ("in_tr.conv_block.conv",)
    head_paths = ("out_tr",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        dims: int = 3,
        dropout: float = 0.5,
        skip_dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if 16 % checks.positive(in_channels, "in_channels", "VNet"):
            raise SettingError(
                f"VNet: in_channels={in_channels}; wanted a divisor of 16: 1, 2, 4, 8 or 16"
            )
        self.factors = (16,) * dims
        self.in_tr = InputTransition(in_channels, 16, dims)
        self.down_tr32 = DownTransition(16, 1, 0.0, dims)
        self.down_tr64 = DownTransition(32, 2, 0.0, dims)
        self.down_tr128 = DownTransition(64, 3, dropout, dims)
        self.down_tr256 = DownTransition(128, 2, dropout, dims)
        self.up_tr256 = UpTransition(256, 256, 2, dropout, skip_dropout, dims)
        self.up_tr128 = UpTransition(256, 128, 2, dropout, skip_dropout, dims)
        self.up_tr64 = UpTransition(128, 64, 1, 0.0, skip_dropout, dims)
        self.up_tr32 = UpTransition(64, 32, 1, 0.0, skip_dropout, dims)
        last = {
            "conv_block": _conv(32, out_channels, dims),
            "act_function1": self.nn.ELU(),
            "conv2": by_dims(self.nn, dims, "Conv")(out_channels, out_channels, 1),
        }
        self.out_tr = self.nn.Sequential(last)

    def forward(self, x):
        return self.out_tr(self.forward_stages(x)["up_tr32"])

    def forward_stages(self, x):
        """Return the stages on the way down, 16 to 256 channels, and on the way up again.

        The coarsest has ``*size / 16``.
        """
        medical.divides(self, x, self.factors, "down_tr256")
        x = self.in_tr(x)
        stages = {"in_tr": x}
        for name in ("down_tr32", "down_tr64", "down_tr128", "down_tr256"):
            x = getattr(self, name)(x)
            stages[name] = x
        skips = list(stages.values())[:-1]
        for name in ("up_tr256", "up_tr128", "up_tr64", "up_tr32"):
            x = getattr(self, name)(x, skips.pop())
            stages[name] = x
        return stages


class InputTransition(Network):
    """A convolution, and the input repeated to its width added.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``.
    """

    def __init__(self, in_channels: int, out_channels: int, dims: int) -> None:
        super().__init__()
        self.repeats = out_channels // in_channels
        self.act_function = self.nn.ELU()
        self.conv_block = _conv(in_channels, out_channels, dims)

    def forward(self, x):
        repeated = self.nn.concatenate([x] * self.repeats, dim=1)
        return self.act_function(self.conv_block(x) + repeated)


def _repeated(nn: Any, count: int, channels: int, dims: int) -> Any:
    """Make so many 5x5 convolutions with normalisation and activation; the shape stays."""
    blocks = []
    for _ in range(count):
        conv = _conv(channels, channels, dims)
        layers = {"conv_block": conv, "act_function": nn.ELU()}
        blocks.append(nn.Sequential(layers))
    return nn.Sequential(*blocks)


class DownTransition(Network):
    """Halve the size and double the width, then a residual block.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, 2 * in_channels, *size / 2)``.
    """

    def __init__(self, in_channels: int, count: int, dropout: float, dims: int) -> None:
        super().__init__()
        nn = self.nn
        width = 2 * in_channels
        conv, norm, drop = by_dims(nn, dims, "Conv", "BatchNorm", "Dropout")
        self.down_conv = conv(in_channels, width, 2, stride=2, bias=False)
        self.bn1 = norm(width)
        self.act_function1 = nn.ELU()
        self.act_function2 = nn.ELU()
        self.ops = _repeated(nn, count, width, dims)
        # MONAI always takes 3-D dropout, which with two axes drops whole samples; here it drops
        # channels with any.
        self.dropout = drop(dropout)

    def forward(self, x):
        # (batch, 2 * in_channels, *size / 2)
        x = self.act_function1(self.bn1(self.down_conv(x)))
        return self.act_function2(self.ops(self.dropout(x)) + x)


class UpTransition(Network):
    """Double the size, join with the finer stage, then a residual block.

    Shapes:
        ``(batch, in_channels, *coarse)`` and ``(batch, out_channels / 2, *size)`` give
        ``(batch, out_channels, *size)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        count: int,
        dropout: float,
        skip_dropout: float,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        half = out_channels // 2
        transposed, norm, drop = by_dims(
            nn, dims, "ConvTranspose", "BatchNorm", "Dropout"
        )
        self.up_conv = transposed(in_channels, half, 2, stride=2)
        self.bn1 = norm(half)
        self.dropout = drop(dropout)
        self.dropout2 = drop(skip_dropout)
        self.act_function1 = nn.ELU()
        self.act_function2 = nn.ELU()
        self.ops = _repeated(nn, count, out_channels, dims)

    def forward(self, x, skip):
        x = self.up_conv(self.dropout(x))  # (batch, out_channels / 2, *size)
        x = self.act_function1(self.bn1(x))
        x = self.nn.concatenate([x, self.dropout2(skip)], dim=1)
        return self.act_function2(self.ops(x) + x)


def _conv(in_channels: int, out_channels: int, dims: int) -> Any:
    return medical.Convolution(
        in_channels, out_channels, dims, 5, bias=False, norm="batch", act=None
    )


register(
    VNet,
    name="vnet",
    task="segmentation",
    dims=(2, 3),
    source="Milletari et al. 2016, arXiv 1606.04797; MONAI VNet",
    shape=medical.volume((0, 256, 96)),
)
