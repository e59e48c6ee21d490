"""MobileNetV2, as torchvision builds it.

It follows the paper; widths are rounded to multiples of 8.
"""

import math
from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import by_dims, classifier, images, run_stages
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.mobile import (
    ConvNormActivation,
    check_output_stride,
    dilation_at,
    make_divisible,
    stage_ends,
)
from deliralike.zoo.mobile_layouts import TIMM, by_blocks, timm_ends
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import number_rows

# table 2 of the paper
_COLUMNS = "expansion, channels, number of blocks, stride"
_BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(Network):
    """A residual block that is wide inside: 1x1, depthwise 3x3 and 1x1 convolutions.

    No activation follows the last one.

    Source: Sandler et al. 2018, arXiv 1801.04381, figure 4d; torchvision. The last convolution and
    its normalisation stand bare in the row, as there.

    Args:
        dilation: Of the depthwise convolution; where it is more than 1, the stride is left out.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        expansion: int,
        dilation: int = 1,
        dims: int = 2,
    ) -> None:
        super().__init__()
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        hidden = in_channels * expansion
        options: dict[str, Any] = {"activation": "ReLU6", "dims": dims}
        layers: list[Any] = []
        if expansion != 1:
            layers.append(ConvNormActivation(in_channels, hidden, 1, **options))
        step = 1 if dilation > 1 else stride
        layers.append(
            ConvNormActivation(
                hidden, hidden, 3, step, dilation, groups=hidden, **options
            )
        )
        self.projection = len(layers)
        layers += [conv(hidden, out_channels, 1, bias=False), norm(out_channels)]
        self.conv = self.nn.Sequential(*layers)
        self.shortcut = stride == 1 and in_channels == out_channels

    @property
    def start_values(self):  # type: ignore[override]
        """He normal by fan out for the bare convolution; the model has those of the others."""
        return {f"conv.{self.projection}.weight": HeNormal("out")}

    def forward(self, x):
        y = self.conv(x)
        return x + y if self.shortcut else y


class MobileNetV2(PooledClassifier):
    """Inverted residual blocks between two convolutions, in 1, 2 and 3 dimensions.

    Source: Sandler et al. 2018, arXiv 1801.04381; names, order, shapes and start values are those
    of ``torchvision.models.mobilenetv2``; the key map ``"timm"`` has timm's names.

    Args:
        blocks: For each group of blocks: expansion, channels, number of blocks, stride of the
            first.
        width_mult: Factor for all channels, which are rounded to multiples of 8; the last 1280
            never become fewer.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: Before the linear layer.
        output_stride: 8 or 16 to dilate instead of halving further, as segmentation_models_pytorch
            does it; 32 for none.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved five
        times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names
            ``features.0.0``.
    """

    stem_paths = ("features.0.0",)
    head_paths = ("classifier.1",)
    can_stop = True
    start_values = {
        "*.0.weight": HeNormal("out"),
        "classifier.1.weight": Normal(0.01),
        "classifier.1.bias": ZEROS,
    }

    def __init__(
        self,
        blocks: Sequence[Sequence[int]] = _BLOCKS,
        width_mult: float = 1.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.2,
        output_stride: int = 32,
    ) -> None:
        super().__init__()
        check_output_stride(output_stride, "MobileNetV2")
        nn = self.nn
        width = make_divisible(32 * width_mult)
        last = make_divisible(1280 * max(1.0, width_mult))
        options: dict[str, Any] = {"activation": "ReLU6", "dims": dims}
        features: list[Network] = [
            ConvNormActivation(in_channels, width, 3, 2, **options)
        ]
        strides = [2]
        places = []
        for group, (expansion, channels, count, stride) in enumerate(
            number_rows(blocks, _COLUMNS, "blocks", "MobileNetV2")
        ):
            out = make_divisible(channels * width_mult)
            for index in range(count):
                strides.append(stride if index == 0 else 1)
                dilation = dilation_at(math.prod(strides), output_stride)
                block = InvertedResidual(
                    width, out, strides[-1], expansion, dilation, dims
                )
                places.append((f"features.{len(features)}", f"blocks.{group}.{index}"))
                features.append(block)
                width = out
        self.features = nn.Sequential(
            *features, ConvNormActivation(width, last, 1, **options)
        )
        self.ends = stage_ends(strides)
        self.places = tuple(places)
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        head = classifier(nn, last, num_classes, "MobileNetV2")
        self.classifier = nn.Sequential(nn.Dropout(dropout), head)

    @property
    def keymaps(self):  # type: ignore[override]
        """The names of timm."""
        ends = timm_ends(len(self.features) - 1)
        places = [(path, timm_path, TIMM) for path, timm_path in self.places]
        return (KeyMap("timm", by_blocks(places, ends)),)

    def forward_stages(self, x, until=None):
        """Return what comes before each halving, / 2 to / 16, and the last convolution, / 32."""
        return run_stages(self.features, x, self.ends, until)


register(
    MobileNetV2,
    name="mobilenet_v2",
    dims=(1, 2, 3),
    source="Sandler et al. 2018, arXiv 1801.04381; torchvision",
    shape=images(224),
    parameters=3_504_872,
)
