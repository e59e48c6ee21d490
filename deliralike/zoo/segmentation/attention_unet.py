"""Attention U-Net in 1, 2 and 3 dimensions: gates weigh what comes from the way down.

Unlike the paper, the gates see the level's own size, and what merges is normalised.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.containers import Sequential
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class AttentionUNet(Model):
    """A U-Net whose shortcuts are gated by attention.

    Each level has two convolutions on the way down and a transposed convolution on the way up.

    Source: Oktay et al. 2018, arXiv 1804.03999. Names, order and shapes are those of MONAI's
    ``AttentionUnet``, start values PyTorch's as there. Unlike the paper's, its gates see the
    level's own size, and what merges is normalised by instance.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        channels: The width of each level, the finest first; at least 2 but for the last.
        strides: By what each level but the first divides the size: numbers, or tuples with one for
            each axis.
        kernel_size: Odd; one number or one for each axis.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: Probability of dropping an element after each normalisation in training, but in the
            gates.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``; the sizes must be
        multiples of the product of all strides along their axis.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple (the error names the level); or the input has another
            number of axes or channels (the error names ``model.0.conv.0.conv``).
    """

    stem_paths = ("model.0.conv.0.conv",)
    head_paths = ("model.2.conv",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 2,
        channels: Sequence[int] = (16, 32, 64, 128, 256),
        strides: Sequence[Sizes] = (2, 2, 2, 2),
        kernel_size: Sizes = 3,
        dims: int = 3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        what, nn = "AttentionUNet", self.nn
        widths = numbers(channels, "channels", what, least=2)
        strides = medical.per_stage(strides, len(widths) - 1, "strides", what)
        self.levels = len(strides)
        self.factors = medical.reductions(strides, dims)
        options: dict[str, Any] = {"dims": dims, "dropout": dropout}
        below = None
        for level in reversed(range(self.levels)):
            fine = widths[level]
            coarse = widths[level + 1]
            stride = strides[level]
            down = ConvBlock(fine, coarse, kernel_size, stride, **options)
            inner = down if below is None else nn.Sequential(down, below)
            below = AttentionLayer(fine, coarse, inner, stride, **options)
        first = ConvBlock(in_channels, widths[0], kernel_size, 1, **options)
        last = medical.Convolution(widths[0], out_channels, dims, 1, alone=True)
        self.model = nn.Sequential(first, below, last)

    def forward(self, x):
        return self.model[2](self.last_stage(x))

    def forward_stages(self, x):
        """Return the levels on the way down and on the way up again.

        Those of the way down are ``(batch, channels[level], *size / stride)``.
        """
        medical.divides(self, x, self.factors, f"down_{self.levels}")
        first, layer, _ = self.model
        x = first(x)
        stages = {"down_0": x}
        layers = []
        for level in range(1, self.levels + 1):
            layers.append(layer)
            if level == self.levels:
                down = layer.submodule
            else:
                down, layer = layer.submodule
            x = down(x)
            stages[f"down_{level}"] = x
        skips = list(stages.values())[:-1]
        for level in reversed(range(self.levels)):
            x = layers[level].join(skips.pop(), x)
            stages[f"up_{level}"] = x
        return stages


class ConvBlock(Sequential):
    """Two convolutions, the first with the stride, each with batch normalisation and ReLU.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        dims: int,
        dropout: float,
    ) -> None:
        adn: dict[str, Any] = {"norm": "batch", "act": "relu", "dropout": dropout}
        layers = self.nn.Sequential(
            medical.Convolution(
                in_channels, out_channels, dims, kernel_size, stride, **adn
            ),
            medical.Convolution(out_channels, out_channels, dims, kernel_size, **adn),
        )
        super().__init__({"conv": layers})


class AttentionBlock(Network):
    """A gate for each element, from what comes from below and from the level itself.

    Shapes:
        Twice ``(batch, channels, *size)`` gives the same shape: the level's own input, scaled.
    """

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        nn = self.nn
        inner = checks.positive(channels // 2, "channels // 2", "AttentionUNet")
        self.W_g = nn.Sequential(*_normalised(nn, channels, inner, dims))
        self.W_x = nn.Sequential(*_normalised(nn, channels, inner, dims))
        self.psi = nn.Sequential(*_normalised(nn, inner, 1, dims), nn.Sigmoid())
        self.relu = nn.ReLU()

    def forward(self, g, x):
        gate = self.psi(self.relu(self.W_g(g) + self.W_x(x)))  # (batch, 1, *size)
        return x * gate


class AttentionLayer(Network):
    """One level: what lies below it, brought to its size, and its gated input beside that.

    Shapes:
        ``(batch, fine, *size)`` gives the same shape.
    """

    def __init__(
        self,
        fine: int,
        coarse: int,
        submodule: Any,
        stride: Sizes,
        dims: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = AttentionBlock(fine, dims)
        adn: dict[str, Any] = {"norm": "batch", "act": "relu"}
        up = medical.Convolution(
            coarse, fine, dims, stride=stride, transposed=True, **adn
        )
        self.upconv = self.nn.Sequential({"up": up})
        # By MONAI's defaults this is normalised by instance, not by batch.
        self.merge = medical.Convolution(2 * fine, fine, dims, dropout=dropout)
        self.submodule = submodule

    def forward(self, x):
        return self.join(x, self.submodule(x))

    def join(self, x, below):
        """Join the level's input with what came from below."""
        below = self.upconv(below)
        gated = self.attention(below, x)
        return self.merge(self.nn.concatenate([gated, below], dim=1))


def _normalised(nn: Any, in_channels: int, out_channels: int, dims: int) -> list[Any]:
    """Make a 1x1 convolution and a batch normalisation."""
    conv = medical.Convolution(in_channels, out_channels, dims, 1, alone=True)
    return [conv, by_dims(nn, dims, "BatchNorm")(out_channels)]


register(
    AttentionUNet,
    name="attention_unet",
    task="segmentation",
    dims=(1, 2, 3),
    source="Oktay et al. 2018, arXiv 1804.03999; MONAI AttentionUnet",
    shape=medical.volume((1024, 256, 96)),
)
