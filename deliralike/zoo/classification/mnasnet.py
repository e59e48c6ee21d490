"""MNASNet (variant B1), as torchvision builds it.

The paper's B1, which has no squeeze and excitation; its normalisations forget slowly (momentum
3e-4).
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeNormal, Uniform
from deliralike.zoo.blocks import classifier, images, run_stages
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.mobile import make_divisible
from deliralike.zoo.mobile_layouts import TIMM, by_blocks
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import number_rows

# figure 7 of the paper
_COLUMNS = "channels, kernel, stride, expansion, number of blocks"
_STACKS = (
    (24, 3, 2, 3, 3),
    (40, 5, 2, 3, 3),
    (80, 5, 2, 6, 3),
    (96, 3, 1, 6, 2),
    (192, 5, 2, 6, 4),
    (320, 3, 1, 6, 1),
)
# The paper's 0.9997 is the weight of the old statistics, as in TensorFlow.
_MOMENTUM = 1 - 0.9997


class InvertedResidual(Network):
    """A residual block that is wide inside, as torchvision builds it.

    It has 1x1, depthwise and 1x1 convolutions; no activation follows the last one.

    Shapes:
        ``(batch, in_channels, height, width)`` gives
        ``(batch, out_channels, height / stride, width / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int,
        expansion: int,
        momentum: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        inside = in_channels * expansion
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, inside, 1, bias=False),
            nn.BatchNorm2d(inside, momentum=momentum),
            nn.ReLU(),
            nn.Conv2d(
                inside, inside, kernel, stride, kernel // 2, groups=inside, bias=False
            ),
            nn.BatchNorm2d(inside, momentum=momentum),
            nn.ReLU(),
            nn.Conv2d(inside, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels, momentum=momentum),
        )
        self.shortcut = stride == 1 and in_channels == out_channels

    def forward(self, x):
        y = self.layers(x)
        return y + x if self.shortcut else y


class MNASNet(Model):
    """A separable convolution, six stacks of inverted residual blocks, a 1x1 convolution.

    Source: Tan et al. 2019, arXiv 1807.11626; names, order, shapes and start values are those of
    ``torchvision.models.mnasnet``; the key map ``"timm"`` has timm's names. Torchvision's files
    hold a version in their metadata; those of version 1 (before 2019) have a stem of 32 and 16
    channels at any width, so that only ``width_mult=1`` reads them here.

    Args:
        stacks: For each stack: channels, kernel, stride of its first block, expansion, number of
            blocks.
        width_mult: Factor for all channels but the last 1280, rounded to multiples of 8.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dropout: Before the linear layer.
        momentum: Of the normalisations; timm's network has 0.1.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; the size is halved
        five times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names ``layers.0``.
    """

    stem_paths = ("layers.0",)
    head_paths = ("classifier.1",)
    can_stop = True

    def __init__(
        self,
        stacks: Sequence[Sequence[int]] = _STACKS,
        width_mult: float = 1.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        dropout: float = 0.2,
        momentum: float = _MOMENTUM,
    ) -> None:
        super().__init__()
        nn = self.nn
        stacks = number_rows(stacks, _COLUMNS, "stacks", "MNASNet")
        first = make_divisible(32 * width_mult)
        width = make_divisible(16 * width_mult)
        blocks = [
            nn.Conv2d(in_channels, first, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(first, momentum=momentum),
            nn.ReLU(),
            nn.Conv2d(first, first, 3, padding=1, groups=first, bias=False),
            nn.BatchNorm2d(first, momentum=momentum),
            nn.ReLU(),
            nn.Conv2d(first, width, 1, bias=False),
            nn.BatchNorm2d(width, momentum=momentum),
        ]
        ends = []
        for channels, kernel, stride, expansion, count in stacks:
            out = make_divisible(channels * width_mult)
            if stride > 1:
                ends.append(len(blocks))
            stack = [InvertedResidual(width, out, kernel, stride, expansion, momentum)]
            for _ in range(1, count):
                stack.append(InvertedResidual(out, out, kernel, 1, expansion, momentum))
            blocks.append(nn.Sequential(*stack))
            width = out
        blocks += [
            nn.Conv2d(width, 1280, 1, bias=False),
            nn.BatchNorm2d(1280, momentum=momentum),
            nn.ReLU(),
        ]
        ends.append(len(blocks))
        self.layers = nn.Sequential(*blocks)
        self.ends = tuple((f"layers.{end - 1}", end) for end in ends)
        head = classifier(nn, 1280, num_classes, "MNASNet")
        self.classifier = nn.Sequential(nn.Dropout(dropout), head)
        self.num_classes = num_classes

    @property
    def keymaps(self):  # type: ignore[override]
        """The names of timm, where the convolutions before the first stack are one too."""
        last = len(self.layers) - 3
        ends = {
            "layers.0": "conv_stem",
            "layers.1": "bn1",
            "layers.3": "blocks.0.0.conv_dw",
            "layers.4": "blocks.0.0.bn1",
            "layers.6": "blocks.0.0.conv_pw",
            "layers.7": "blocks.0.0.bn2",
            f"layers.{last}": "conv_head",
            f"layers.{last + 1}": "bn2",
            "classifier.1": "classifier",
        }
        places = []
        for at in range(8, last):
            for block in range(len(self.layers[at])):
                places.append(
                    (f"layers.{at}.{block}", f"blocks.{at - 7}.{block}", TIMM)
                )
        return (KeyMap("timm", by_blocks(places, ends)),)

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        Convolutions have He normal by fan out, the last layer is uniform with variance 1/fan out.
        """
        convolutions = (
            "layers.[036]",
            "*.layers.[036]",
            f"layers.{len(self.layers) - 3}",
        )
        values: dict[str, Any] = {
            f"{name}.weight": HeNormal("out") for name in convolutions
        }
        values["classifier.1.weight"] = Uniform((3 / max(1, self.num_classes)) ** 0.5)
        values["classifier.1.bias"] = ZEROS
        return values

    def forward(self, x):
        last = self.last_stage(x)
        return self.classifier(self.nn.mean(last, (2, 3)))

    def forward_stages(self, x, until=None):
        """Return what comes before each halving, / 2 to / 16, and the last convolution, / 32."""
        return run_stages(self.layers, x, self.ends, until)


# name: (factor for the channels, parameters)
_VARIANTS = {
    "mnasnet0_5": (0.5, 2_218_512),
    "mnasnet0_75": (0.75, 3_170_208),
    "mnasnet1_0": (1.0, 4_383_312),
    "mnasnet1_3": (1.3, 6_282_256),
}

register_each(
    MNASNet,
    by_column(("width_mult",), _VARIANTS),
    source="Tan et al. 2019, arXiv 1807.11626; torchvision",
    shape=images(224),
)
