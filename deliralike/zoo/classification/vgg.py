"""VGG networks, plain and with batch normalisation, as torchvision builds them.

Unlike the paper: an adaptive pooling before the linear layers, so that other sizes pass; variants
with batch normalisation, which the paper did not know.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import by_dims, classifier, images, large_enough, run_stages
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import paired

_TIMM = by_patterns(
    {
        r"(features\..*)": r"\1",
        r"classifier\.0\.(\w+)": r"pre_logits.fc1.\1",
        r"classifier\.3\.(\w+)": r"pre_logits.fc2.\1",
        r"classifier\.6\.(\w+)": r"head.fc.\1",
    }
)
_NOTES = (
    "timm applies the hidden layers at each place of the last map and averages what they give; "
    "here the map is averaged to 7x7 before: the outputs are equal for images of 224x224",
)


def _flat(weight: np.ndarray) -> np.ndarray:
    return weight.reshape(len(weight), -1)


def _windowed(window: tuple[int, ...], weight: np.ndarray) -> np.ndarray:
    return weight.reshape(len(weight), *window)


class VGG(PooledClassifier):
    """Five blocks of 3x3 convolutions, each followed by a pooling, and three linear layers.

    Source: Simonyan and Zisserman 2015, arXiv 1409.1556; names, order, shapes and start values are
    those of ``torchvision.models.vgg``; the key map ``"timm"`` has timm's names.

    Args:
        layers: The number of convolutions in each block.
        widths: The number of channels in each block.
        batch_norm: Normalise after each convolution (which keeps its bias).
        num_classes: Number of outputs; 0 for no head: the features before the last linear layer.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: Of the two hidden linear layers.
        hidden: Their width.
        pooled: The side to which the last feature map is averaged. The first linear layer grows
            with it: in three dimensions it is 719 million numbers at the default 7.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; each block halves the size,
        rounding down.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``features.0``), or is too small for one of the poolings: the least size is 32 with five
            blocks.
    """

    stem_paths = ("features.0",)
    head_paths = ("classifier.6",)
    can_stop = True

    def __init__(
        self,
        layers: Sequence[int] = (1, 1, 2, 2, 2),
        widths: Sequence[int] = (64, 128, 256, 512, 512),
        batch_norm: bool = False,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.5,
        hidden: int = 4096,
        pooled: int = 7,
    ) -> None:
        super().__init__()
        nn = self.nn
        layers, widths = paired("VGG", layers=layers, widths=widths)
        blocks, self.convolutions, self.ends = _features(
            nn, dims, in_channels, layers, widths, bool(batch_norm)
        )
        self.features = nn.Sequential(*blocks)
        checks.positive(pooled, "pooled", "VGG")
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(pooled)
        self.classifier = nn.Sequential(
            nn.Linear(widths[-1] * pooled**dims, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            classifier(nn, hidden, num_classes, "VGG"),
        )
        # that the first linear layer sees
        self.window = (
            widths[-1],
            *(pooled,) * dims,
        )
        self.least = 2 ** len(layers)

    @property
    def keymaps(self):  # type: ignore[override]
        """The names of timm, whose hidden layers are convolutions."""
        first = (_flat, partial(_windowed, self.window))
        second = (_flat, partial(_windowed, (-1, *(1,) * (len(self.window) - 1))))
        shapes = {"classifier.0.weight": first, "classifier.3.weight": second}
        return (KeyMap("timm", _TIMM, shapes, notes=_NOTES),)

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        Convolutions have He normal by fan out, linear layers normal with 0.01, and biases are zero.
        """
        convolutions = {
            f"features.{at}.weight": HeNormal("out") for at in self.convolutions
        }
        return convolutions | {"classifier.*.weight": Normal(0.01), "*.bias": ZEROS}

    def forward_stages(self, x, until=None):
        """Return each block before its pooling, / 1 to / 16, and the last pooling, / 32."""
        large_enough(self, x, self.least, "features")
        return run_stages(self.features, x, self.ends, until)


def _features(
    nn: Any,
    dims: int,
    width: int,
    layers: Sequence[int],
    widths: Sequence[int],
    batch_norm: bool,
) -> Any:
    """Return the layers in a row, the positions of the convolutions, and the ends of the stages."""
    conv, norm, pool = by_dims(nn, dims, "Conv", "BatchNorm", "MaxPool")
    blocks: list[Any] = []
    convolutions = []
    ends = []
    for block, (count, channels) in enumerate(
        zip(layers, widths, strict=True), start=1
    ):
        for _ in range(count):
            convolutions.append(len(blocks))
            blocks.append(conv(width, channels, 3, padding=1))
            if batch_norm:
                blocks.append(norm(channels))
            blocks.append(nn.ReLU())
            width = channels
        ends.append((f"block{block}", len(blocks)))
        blocks.append(pool(2, 2))
    ends.append(("features", len(blocks)))
    return blocks, tuple(convolutions), tuple(ends)


_SOURCE = "Simonyan and Zisserman 2015, arXiv 1409.1556; torchvision"

# depth: (convolutions in each block, parameters, parameters with normalisation)
_VARIANTS = {
    11: ((1, 1, 2, 2, 2), 132_863_336, 132_868_840),
    13: ((2, 2, 2, 2, 2), 133_047_848, 133_053_736),
    16: ((2, 2, 3, 3, 3), 138_357_544, 138_365_992),
    19: ((2, 2, 4, 4, 4), 143_667_240, 143_678_248),
}

for _depth, (_layers, _plain, _normalised) in _VARIANTS.items():
    register(
        VGG,
        name=f"vgg{_depth}",
        variant={"layers": _layers},
        dims=(1, 2, 3),
        source=_SOURCE,
        shape=images(224),
        parameters=_plain,
    )
    register(
        VGG,
        name=f"vgg{_depth}_bn",
        variant={"layers": _layers, "batch_norm": True},
        dims=(1, 2, 3),
        source=_SOURCE,
        shape=images(224),
        parameters=_normalised,
    )
