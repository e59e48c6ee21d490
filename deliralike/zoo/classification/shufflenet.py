"""ShuffleNetV2, as torchvision builds it.

It follows the paper.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.zoo.blocks import classifier, images, in_turn
from deliralike.zoo.mobile import ConvNormActivation
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import numbers


class InvertedResidual(Network):
    """A block through which half of the channels pass unchanged; then both halves are shuffled.

    Where the size is halved, the other half goes through a short branch.

    Source: Ma et al. 2018, arXiv 1807.11164, figure 3 c and d; torchvision.

    Shapes:
        ``(batch, in_channels, height, width)`` gives
        ``(batch, out_channels, height / stride, width / stride)``, rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        nn = self.nn
        half = out_channels // 2
        self.stride = stride
        self.branch1 = None
        if stride > 1:
            depthwise: dict[str, Any] = {
                "padding": 1,
                "groups": in_channels,
                "bias": False,
            }
            self.branch1 = nn.Sequential(
                nn.Conv2d(in_channels, in_channels, 3, stride, **depthwise),
                nn.BatchNorm2d(in_channels),
                nn.Conv2d(in_channels, half, 1, bias=False),
                nn.BatchNorm2d(half),
                nn.ReLU(),
            )
        self.branch2 = nn.Sequential(
            nn.Conv2d(in_channels if stride > 1 else half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            nn.Conv2d(half, half, 3, stride, padding=1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(),
        )

    def forward(self, x):
        if self.branch1 is None:
            half = x.shape[1] // 2
            left = x[:, :half]
            right = self.branch2(x[:, half:])
        else:
            left = self.branch1(x)
            right = self.branch2(x)
        # (batch, out_channels / 2, 2, height, width)
        y = self.nn.stack([left, right], 2)
        return self.nn.flatten(y, 1, 2)


class ShuffleNetV2(Model):
    """A convolution, a pooling, three stages of shuffled blocks, a 1x1 convolution.

    Source: Ma et al. 2018, arXiv 1807.11164; names, order, shapes and start values (PyTorch's own)
    are those of ``torchvision.models.shufflenetv2``.

    Args:
        layers: The number of blocks in each of the three stages.
        widths: The channels of the first convolution, of the three stages (even numbers), and of
            the last convolution.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; the size is halved
        five times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names ``conv1.0``.
    """

    stem_paths = ("conv1.0",)
    head_paths = ("fc",)
    can_stop = True

    def __init__(
        self,
        layers: Sequence[int] = (4, 8, 4),
        widths: Sequence[int] = (24, 116, 232, 464, 1024),
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        layers = numbers(layers, "layers", "ShuffleNetV2", count=3)
        first, *stages, last = numbers(widths, "widths", "ShuffleNetV2", count=5)
        if any(width % 2 for width in stages):
            raise SettingError(
                f"ShuffleNetV2: widths={widths!r}; wanted even numbers for the three stages"
            )
        nn = self.nn
        self.conv1 = ConvNormActivation(in_channels, first, 3, stride=2)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stage2 = _stage(nn, first, stages[0], layers[0])
        self.stage3 = _stage(nn, stages[0], stages[1], layers[1])
        self.stage4 = _stage(nn, stages[1], stages[2], layers[2])
        self.conv5 = ConvNormActivation(stages[-1], last, 1)
        self.fc = classifier(nn, last, num_classes, "ShuffleNetV2")

    def forward(self, x):
        x = self.forward_stages(x)["conv5"]
        return self.fc(self.nn.mean(x, (2, 3)))

    def forward_stages(self, x, until=None):
        """Return the first convolution, the pooling, the three stages and the last convolution.

        Their sizes are / 2, / 4, / 8 to / 32, and / 32.

        The last convolution keeps the size.
        """
        names = ("conv1", "maxpool", "stage2", "stage3", "stage4", "conv5")
        return in_turn(x, {name: getattr(self, name) for name in names}, until)


def _stage(nn, in_channels: int, out_channels: int, count: int):
    """Make blocks in a row, of which the first halves the size."""
    blocks = [InvertedResidual(in_channels, out_channels, 2)]
    for _ in range(1, count):
        blocks.append(InvertedResidual(out_channels, out_channels, 1))
    return nn.Sequential(*blocks)


# name: (channels, parameters)
_VARIANTS = {
    "shufflenet_v2_x0_5": ((24, 48, 96, 192, 1024), 1_366_792),
    "shufflenet_v2_x1_0": ((24, 116, 232, 464, 1024), 2_278_604),
    "shufflenet_v2_x1_5": ((24, 176, 352, 704, 1024), 3_503_624),
    "shufflenet_v2_x2_0": ((24, 244, 488, 976, 2048), 7_393_996),
}

register_each(
    ShuffleNetV2,
    by_column(("widths",), _VARIANTS),
    source="Ma et al. 2018, arXiv 1807.11164; torchvision",
    shape=images(224),
)
