"""MobileNetV3, large and small, as torchvision builds them.

They follow the paper. Widths are rounded to multiples of 8; normalisations have momentum 0.01.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import by_dims, classifier, images, run_stages
from deliralike.zoo.mobile import (
    ConvNormActivation,
    SqueezeExcitation,
    conv_norm_activation,
    make_divisible,
    stage_ends,
)
from deliralike.zoo.mobile_layouts import TIMM, timm
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import by_column, register_each

Row = tuple[int, int, int, bool, str, int]

# kernel, channels inside, channels outside, squeeze and excitation, activation, stride: tables 1
# and 2 of the paper
LARGE = (
    (3, 16, 16, False, "ReLU", 1),
    (3, 64, 24, False, "ReLU", 2),
    (3, 72, 24, False, "ReLU", 1),
    (5, 72, 40, True, "ReLU", 2),
    (5, 120, 40, True, "ReLU", 1),
    (5, 120, 40, True, "ReLU", 1),
    (3, 240, 80, False, "Hardswish", 2),
    (3, 200, 80, False, "Hardswish", 1),
    (3, 184, 80, False, "Hardswish", 1),
    (3, 184, 80, False, "Hardswish", 1),
    (3, 480, 112, True, "Hardswish", 1),
    (3, 672, 112, True, "Hardswish", 1),
    (5, 672, 160, True, "Hardswish", 2),
    (5, 960, 160, True, "Hardswish", 1),
    (5, 960, 160, True, "Hardswish", 1),
)
SMALL = (
    (3, 16, 16, True, "ReLU", 2),
    (3, 72, 24, False, "ReLU", 2),
    (3, 88, 24, False, "ReLU", 1),
    (5, 96, 40, True, "Hardswish", 2),
    (5, 240, 40, True, "Hardswish", 1),
    (5, 240, 40, True, "Hardswish", 1),
    (5, 120, 48, True, "Hardswish", 1),
    (5, 144, 48, True, "Hardswish", 1),
    (5, 288, 96, True, "Hardswish", 2),
    (5, 576, 96, True, "Hardswish", 1),
    (5, 576, 96, True, "Hardswish", 1),
)
EPS = 1e-3
MOMENTUM = 0.01


class InvertedResidual(Network):
    """A residual block with squeeze and excitation: 1x1, depthwise and 1x1 convolutions.

    Source: Howard et al. 2019, arXiv 1905.02244, figure 4; torchvision.

    Args:
        in_channels: Channels of the input.
        row: Kernel, channels inside, channels outside, whether to squeeze, activation, stride.
        same_padding: See `conv_norm_activation`.
        eps, momentum: Of the normalisations.
        dims: Number of spatial axes.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, row[2], *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        row: Row,
        same_padding: bool,
        eps: float,
        momentum: float,
        dims: int,
    ) -> None:
        super().__init__()
        kernel, inside, outside, squeeze, activation, stride = row
        options: dict[str, Any] = {"eps": eps, "momentum": momentum, "dims": dims}
        active = options | {"activation": activation}
        depthwise = active | {"groups": inside}
        blocks: list[Any] = []
        if inside != in_channels:
            blocks.append(ConvNormActivation(in_channels, inside, 1, **active))
        blocks.append(
            conv_norm_activation(
                inside, inside, kernel, stride, same_padding, **depthwise
            )
        )
        if squeeze:
            width = make_divisible(inside // 4)
            blocks.append(
                SqueezeExcitation(inside, width, gate="Hardsigmoid", dims=dims)
            )
        blocks.append(
            ConvNormActivation(inside, outside, 1, activation=None, **options)
        )
        self.block = self.nn.Sequential(*blocks)
        self.shortcut = stride == 1 and in_channels == outside

    def forward(self, x):
        y = self.block(x)
        return y + x if self.shortcut else y


def _scaled(rows: Sequence[Row], width_mult: float) -> tuple[Row, ...]:
    """Return the rows with their channels multiplied."""
    table = []
    for kernel, inside, outside, *rest in rows:
        inside = make_divisible(inside * width_mult)
        outside = make_divisible(outside * width_mult)
        table.append((kernel, inside, outside, *rest))
    return tuple(table)  # type: ignore[arg-type]


class MobileNetV3(PooledClassifier):
    """Inverted residual blocks with squeeze and excitation.

    There are hard swishes where the channels are many.

    Source: Howard et al. 2019, arXiv 1905.02244; names, order, shapes and start values are those of
    ``torchvision.models.mobilenetv3``. The key map ``"timm"`` has timm's names: its networks need
    ``eps=1e-5``, those that come from TensorFlow (``tf_mobilenetv3…``) ``same_padding=True``, and
    both train with ``momentum=0.1``.

    Args:
        blocks: For each block: kernel, channels inside, channels outside, whether to squeeze and
            excite, activation (``"ReLU"`` or ``"Hardswish"``), stride.
        hidden: Width of the first linear layer.
        width_mult: Factor for all channels, which are rounded to multiples of 8.
        num_classes: Number of outputs; 0 for no head: what comes before the last linear layer.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: Before the last linear layer.
        eps, momentum: Of the normalisations.
        same_padding: Whether strided convolutions pad as TensorFlow does.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved five
        times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names
            ``features.0.0``.
    """

    stem_paths = ("features.0.0",)
    head_paths = ("classifier.3",)
    can_stop = True
    start_values = {
        "*.0.weight": HeNormal("out"),
        "*.fc?.weight": HeNormal("out"),
        "*.fc?.bias": ZEROS,
        "classifier.*.weight": Normal(0.01),
        "classifier.*.bias": ZEROS,
    }

    def __init__(
        self,
        blocks: Sequence[Row] = LARGE,
        hidden: int = 1280,
        width_mult: float = 1.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.2,
        eps: float = EPS,
        momentum: float = MOMENTUM,
        same_padding: bool = False,
    ) -> None:
        super().__init__()
        checks.positive(hidden, "hidden", "MobileNetV3")
        nn = self.nn
        rows = _scaled(_rows(blocks), width_mult)
        width = make_divisible(16 * width_mult)
        options: dict[str, Any] = {"eps": eps, "momentum": momentum, "dims": dims}
        ends = options | {"activation": "Hardswish"}
        layers = [conv_norm_activation(in_channels, width, 3, 2, same_padding, **ends)]
        for row in rows:
            layers.append(InvertedResidual(width, row, same_padding, **options))
            width = row[2]
        layers.append(ConvNormActivation(width, 6 * width, 1, **ends))
        self.features = nn.Sequential(*layers)
        self.ends = stage_ends([2, *(row[5] for row in rows)])
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        hidden = make_divisible(hidden * width_mult)
        self.classifier = nn.Sequential(
            nn.Linear(6 * rows[-1][2], hidden),
            nn.Hardswish(),
            nn.Dropout(dropout),
            classifier(nn, hidden, num_classes, "MobileNetV3"),
        )
        self.eps = eps
        self.same_padding = bool(same_padding)
        self.places = _timm_places(rows)

    @property
    def keymaps(self):  # type: ignore[override]
        """The names of timm, whose first linear layer is a convolution."""
        places = [(path, timm_path, TIMM) for path, timm_path in self.places]
        ends = {
            "features.0.0": "conv_stem",
            "features.0.1": "bn1",
            "classifier.0": "conv_head",
            "classifier.3": "classifier",
        }
        keymap = timm(places, ends, self.eps, self.same_padding)
        as_linear = (_without_kernel, _with_kernel)
        return (replace(keymap, shapes={"classifier.0.weight": as_linear}),)

    def forward_stages(self, x, until=None):
        """Return what comes before each halving, / 2 to / 16, and the last convolution, / 32."""
        return run_stages(self.features, x, self.ends, until)


def _timm_places(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return the path of each block here and in timm, where a new width begins a new group."""
    places = []
    group = -1
    width = index = 0
    for at, (_, _, outside, _, _, stride) in enumerate(rows, start=1):
        if outside != width or stride > 1:
            group += 1
            index = 0
        places.append((f"features.{at}", f"blocks.{group}.{index}"))
        index += 1
        width = outside
    places.append((f"features.{len(rows) + 1}", f"blocks.{group + 1}.0"))
    return tuple(places)


def _without_kernel(weight: np.ndarray) -> np.ndarray:
    """Return the weight of a 1x1 convolution as that of a linear layer."""
    return weight.reshape(weight.shape[:2])


def _with_kernel(weight: np.ndarray) -> np.ndarray:
    return weight[..., None, None]


def _rows(blocks: Any) -> tuple[Row, ...]:
    rows = () if isinstance(blocks, int | str) else tuple(tuple(row) for row in blocks)
    if not rows or any(
        len(row) != 6 or row[4] not in ("ReLU", "Hardswish") for row in rows
    ):
        raise SettingError(
            f"MobileNetV3: blocks={blocks!r}; wanted rows (kernel, channels inside, channels "
            "outside, squeeze, 'ReLU' or 'Hardswish', stride)"
        )
    if max(row[5] for row in rows) < 2:
        raise SettingError("MobileNetV3: no block has a stride of 2")
    return rows


# name: (blocks, width of the first linear layer, parameters)
_VARIANTS = {
    "mobilenet_v3_large": (LARGE, 1280, 5_483_032),
    "mobilenet_v3_small": (SMALL, 1024, 2_542_856),
}

register_each(
    MobileNetV3,
    by_column(("blocks", "hidden"), _VARIANTS),
    dims=(1, 2, 3),
    source="Howard et al. 2019, arXiv 1905.02244; torchvision",
    shape=images(224),
)
