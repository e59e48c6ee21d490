"""Residual networks for videos: R3D, MC3 and R(2+1)D, as torchvision builds them.

They are the paper's with 18 layers; in R(2+1)D torchvision splits the stem's convolution as well.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import classifier, in_turn
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import register_each
from deliralike.zoo.setting_checks import numbers, one_of

KINDS = ("3d", "2d", "2+1d")


def _convolution(
    nn: Any, kind: str, in_channels: int, channels: int, inside: int, stride: int
):
    """Make a convolution over frames, height and width.

    Args:
        kind: ``"3d"``: 3x3x3; ``"2d"``: 1x3x3, which never joins frames; ``"2+1d"``: 1x3x3,
            normalisation and ReLU, then 3x1x1.
        inside: Channels between the two convolutions of ``"2+1d"``.
    """
    if kind == "3d":
        return nn.Conv3d(in_channels, channels, 3, stride, 1, bias=False)
    steps = (1, stride, stride)
    if kind == "2d":
        return nn.Conv3d(in_channels, channels, (1, 3, 3), steps, (0, 1, 1), bias=False)
    return nn.Sequential(
        nn.Conv3d(in_channels, inside, (1, 3, 3), steps, (0, 1, 1), bias=False),
        nn.BatchNorm3d(inside),
        nn.ReLU(),
        nn.Conv3d(inside, channels, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False),
    )


class VideoBlock(Network):
    """Two convolutions of one kind, each normalised, and a shortcut.

    Source: Tran et al. 2018, arXiv 1711.11248; torchvision.

    Shapes:
        ``(batch, in_channels, frames, height, width)`` gives `channels`, and every axis divided by
        the stride, rounded up; the kind ``"2d"`` keeps the number of frames.
    """

    def __init__(
        self, kind: str, in_channels: int, channels: int, stride: int = 1
    ) -> None:
        super().__init__()
        nn = self.nn
        # As many weights as a 3x3x3 convolution: the paper's section 3.5.
        inside = in_channels * channels * 27 // (in_channels * 9 + 3 * channels)
        self.conv1 = nn.Sequential(
            _convolution(nn, kind, in_channels, channels, inside, stride),
            nn.BatchNorm3d(channels),
            nn.ReLU(),
        )
        self.conv2 = nn.Sequential(
            _convolution(nn, kind, channels, channels, inside, 1),
            nn.BatchNorm3d(channels),
        )
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or in_channels != channels:
            steps = (1 if kind == "2d" else stride, stride, stride)
            self.downsample = nn.Sequential(
                nn.Conv3d(in_channels, channels, 1, steps, bias=False),
                nn.BatchNorm3d(channels),
            )

    def forward(self, x):
        y = self.conv2(self.conv1(x))
        if self.downsample is not None:
            x = self.downsample(x)
        return self.relu(y + x)


class VideoResNet(PooledClassifier):
    """A residual network over videos, with four stages.

    Source: Tran et al. 2018, arXiv 1711.11248. Names, order, shapes and start values are those of
    ``torchvision.models.video``.

    Args:
        kinds: The kind of convolutions in each stage: ``"3d"``, ``"2d"`` (within a frame) or
            ``"2+1d"`` (within a frame, then along the frames).
        layers: The number of blocks in each stage.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        split_stem: Whether the stem has two convolutions as well, within a frame and along the
            frames.

    Shapes:
        ``(batch, in_channels, frames, height, width)`` gives ``(batch, num_classes)``; height and
        width are halved four times, rounding up, frames in each later stage that is not ``"2d"``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names ``stem.0``.
    """

    stem_paths = ("stem.0",)
    head_paths = ("fc",)
    can_stop = True
    start_values = {
        "stem.[03].weight": HeNormal("out"),
        "layer*.conv?.0.weight": HeNormal("out"),
        "layer*.conv?.0.[03].weight": HeNormal("out"),
        "layer*.downsample.0.weight": HeNormal("out"),
        "fc.weight": Normal(0.01),
        "fc.bias": ZEROS,
    }

    def __init__(
        self,
        kinds: Sequence[str] = ("3d", "3d", "3d", "3d"),
        layers: Sequence[int] = (2, 2, 2, 2),
        num_classes: int = 400,
        in_channels: int = 3,
        split_stem: bool = False,
    ) -> None:
        super().__init__()
        nn = self.nn
        kinds = _kinds(kinds)
        layers = numbers(layers, "layers", "VideoResNet", count=4)
        self.stem = _stem(nn, in_channels, split_stem)
        self.layer1 = _stage(nn, kinds[0], layers[0], 64, 64, 1)
        self.layer2 = _stage(nn, kinds[1], layers[1], 64, 128, 2)
        self.layer3 = _stage(nn, kinds[2], layers[2], 128, 256, 2)
        self.layer4 = _stage(nn, kinds[3], layers[3], 256, 512, 2)
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.fc = classifier(nn, 512, num_classes, "VideoResNet")

    def forward_stages(self, x, until=None):
        """Return the stem and the four stages, with 64, 64, 128, 256 and 512 channels.

        Height and width are halved by the stem and by the last three stages.
        """
        names = ("stem", "layer1", "layer2", "layer3", "layer4")
        return in_turn(x, {name: getattr(self, name) for name in names}, until)


def _stem(nn, in_channels: int, is_split: bool):
    """Make the convolutions before the stages, which halve height and width."""
    if not is_split:
        return nn.Sequential(
            nn.Conv3d(in_channels, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(),
        )
    return nn.Sequential(
        nn.Conv3d(in_channels, 45, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False),
        nn.BatchNorm3d(45),
        nn.ReLU(),
        nn.Conv3d(45, 64, (3, 1, 1), 1, (1, 0, 0), bias=False),
        nn.BatchNorm3d(64),
        nn.ReLU(),
    )


def _stage(nn, kind: str, count: int, in_channels: int, channels: int, stride: int):
    blocks = [VideoBlock(kind, in_channels, channels, stride)]
    for _ in range(1, count):
        blocks.append(VideoBlock(kind, channels, channels))
    return nn.Sequential(*blocks)


def _kinds(kinds: Any) -> tuple[str, ...]:
    if isinstance(kinds, str) or len(kinds) != 4:
        raise SettingError(
            f"VideoResNet: kinds={kinds!r}; wanted one for each of four stages"
        )
    for kind in kinds:
        one_of(kind, KINDS, "kind", "VideoResNet")
    return tuple(kinds)


_VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "r3d_18": ({}, 33_371_472),
    "mc3_18": ({"kinds": ("3d", "2d", "2d", "2d")}, 11_695_440),
    "r2plus1d_18": ({"kinds": ("2+1d",) * 4, "split_stem": True}, 31_505_325),
}

register_each(
    VideoResNet,
    _VARIANTS,
    task="video classification",
    dims=(3,),
    source="Tran et al. 2018, arXiv 1711.11248; torchvision",
    shape=lambda settings: (settings["in_channels"], 16, 112, 112),
)
