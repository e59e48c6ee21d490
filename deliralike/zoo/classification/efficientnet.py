"""EfficientNet and EfficientNetV2, as torchvision builds them.

Unlike the paper's TensorFlow code: symmetric padding (``same_padding=True`` gives TensorFlow's),
and PyTorch's epsilon in B0 to B4.
"""

import math
from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeNormal, Uniform
from deliralike.zoo.blocks import by_dims, classifier, images, run_stages
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.mobile import (
    SqueezeExcitation,
    check_output_stride,
    conv_norm_activation,
    dilation_at,
    make_divisible,
    same_padding_after,
)
from deliralike.zoo.mobile_layouts import (
    EFFICIENTNET_PYTORCH,
    TIMM,
    TIMM_FUSED,
    by_blocks,
    timm,
    timm_ends,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import indices, positive

# kind, expansion, kernel, stride, channels, blocks
Stage = tuple[str, float, int, int, int, int]


class MBConv(Network):
    """Widening, a depthwise convolution, a gate for each channel, narrowing, beside a shortcut.

    Source: Tan and Le 2019, figure 1.

    The gate's inner width is a quarter of the block's input, not of the widened channels.

    Args:
        fused: One full convolution for the widening and the depthwise one, and no gate: Tan and Le
            2021.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        fused: bool,
        in_channels: int,
        channels: int,
        expansion: float,
        kernel: int,
        stride: int,
        dilation: int,
        stochastic_depth: float,
        **options: Any,
    ) -> None:
        super().__init__()
        width = make_divisible(in_channels * expansion)
        widens = width != in_channels
        spatial = options | {"dilation": dilation}
        kernels = (kernel, 1 if dilation > 1 else stride)
        narrowing = conv_norm_activation(
            width, channels, **options | {"activation": None}
        )
        parts = []
        if fused:
            out = width if widens else channels
            parts.append(conv_norm_activation(in_channels, out, *kernels, **spatial))
        else:
            if widens:
                parts.append(conv_norm_activation(in_channels, width, **options))
            squeezed = max(1, in_channels // 4)
            parts += [
                conv_norm_activation(width, width, *kernels, groups=width, **spatial),
                SqueezeExcitation(width, squeezed, "SiLU", dims=options["dims"]),
            ]
        if widens or not fused:
            parts.append(narrowing)
        self.block = self.nn.Sequential(*parts)
        self.stochastic_depth = None
        if stride == 1 and in_channels == channels:
            self.stochastic_depth = self.nn.DropPath(stochastic_depth)

    def forward(self, x):
        y = self.block(x)
        if self.stochastic_depth is not None:
            y = self.stochastic_depth(y)
            y += x  # in place on PyTorch, as torchvision
        return y


class EfficientNet(Model):
    """EfficientNet, versions 1 and 2, as torchvision builds it, in 1, 2 and 3 dimensions.

    Source: Tan and Le 2019, arXiv 1905.11946; V2: Tan and Le 2021, arXiv 2104.00298. Names, order,
    shapes and start values are those of ``torchvision.models.efficientnet``. The key map ``"timm"``
    has timm's names; weights that come from TensorFlow (timm's ``tf_efficientnet…``) need
    ``same_padding=True, eps=1e-3``. The key map ``"efficientnet_pytorch"`` has those of that
    library and of segmentation_models_pytorch's ``efficientnet-b0`` …, which need ``eps=1e-3`` and
    the published side of the images as `same_padding`.

    Args:
        stages: For each stage ``(kind, expansion, kernel, stride, channels, blocks)`` with the kind
            ``"mb"`` or ``"fused"``; the stride is the first block's.
        stem_channels: Channels after the first convolution.
        last_channels: Channels after the last convolution; four times the last stage's when None.
        width_mult, depth_mult: What the channels (not the last ones) and the numbers of blocks are
            multiplied with.
        dropout: Probability before the head.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        eps, momentum: Of the normalisations.
        same_padding: Whether strided convolutions pad as TensorFlow does; a number is the side of
            the images for which they do so, whatever the size of the input.
        feature_blocks: The blocks, counted from 0, after which `forward_stages` returns what it
            has, instead of after each stage. segmentation_models_pytorch's ``efficientnet-b0``
            takes ``(2, 4, 8, 15)``, where 8 is the first block of a stage (and where it dilates, it
            begins one block later, which no setting here does).
        output_stride: 8 or 16 to dilate instead of halving further, as segmentation_models_pytorch
            does it; 32 for none.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved five
        times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``features.0.0``); or, in training, a normalisation sees a single value for each channel
            (the error names it).
    """

    stem_paths = ("features.0.0",)
    head_paths = ("classifier.1",)
    can_stop = True

    def __init__(
        self,
        stages: Sequence[Stage] = (
            ("mb", 1, 3, 1, 16, 1),
            ("mb", 6, 3, 2, 24, 2),
            ("mb", 6, 5, 2, 40, 2),
            ("mb", 6, 3, 2, 80, 3),
            ("mb", 6, 5, 1, 112, 3),
            ("mb", 6, 5, 2, 192, 4),
            ("mb", 6, 3, 1, 320, 1),
        ),
        stem_channels: int = 32,
        last_channels: int | None = None,
        width_mult: float = 1.0,
        depth_mult: float = 1.0,
        dropout: float = 0.2,
        stochastic_depth: float = 0.2,
        num_classes: int = 1000,
        in_channels: int = 3,
        eps: float = 1e-5,
        momentum: float = 0.1,
        same_padding: bool | int = False,
        feature_blocks: Sequence[int] | None = None,
        output_stride: int = 32,
        dims: int = 2,
    ) -> None:
        super().__init__()
        check_output_stride(output_stride, "EfficientNet")
        nn = self.nn
        plan = _plan(stages, width_mult, depth_mult)
        options: dict[str, Any] = {
            "eps": eps,
            "momentum": momentum,
            "dims": dims,
            "activation": "SiLU",
        }
        width = make_divisible(stem_channels * width_mult)
        if same_padding:
            checks.positive(int(same_padding), "same_padding", "EfficientNet")
        layers = [
            conv_norm_activation(in_channels, width, 3, 2, same_padding, **options)
        ]
        padding = same_padding_after(same_padding, 2)
        total = sum(count for *_, count in plan)
        done = 0
        reduction = 2
        for kind, expansion, kernel, stride, channels, count in plan:
            blocks = []
            for index in range(count):
                step = stride if index == 0 else 1
                chance = stochastic_depth * done / total
                reduction *= step
                dilation = dilation_at(reduction, output_stride)
                sizes = (width, channels, expansion, kernel, step, dilation)
                blocks.append(
                    MBConv(
                        kind == "fused", *sizes, chance, same_padding=padding, **options
                    )
                )
                width = channels
                padding = same_padding_after(padding, step)
                done += 1
            layers.append(nn.Sequential(*blocks))
        last = 4 * width if last_channels is None else last_channels
        self.features = nn.Sequential(
            *layers, conv_norm_activation(width, last, **options)
        )
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        head = classifier(nn, last, num_classes, "EfficientNet")
        self.classifier = nn.Sequential(nn.Dropout(dropout), head)
        self.num_classes = num_classes
        self.eps = eps
        self.same_padding = same_padding
        self.kinds = tuple(kind for kind, *_ in plan)
        self.ends = _ends(plan, feature_blocks)

    @property
    def keymaps(self):  # type: ignore[override]
        """The names of timm and of efficientnet_pytorch."""
        return (self._timm_names(), self._pytorch_names())

    def _timm_names(self) -> KeyMap:
        ends = timm_ends(len(self.features) - 1)
        places = []
        for stage, kind in enumerate(self.kinds):
            words = TIMM if kind == "mb" else TIMM_FUSED
            for block in range(len(self.features[stage + 1])):
                timm_name = f"blocks.{stage}.{block}"
                places.append((f"features.{stage + 1}.{block}", timm_name, words))
        return timm(places, ends, self.eps, self.same_padding)

    def _pytorch_names(self) -> KeyMap:
        last = len(self.features) - 1
        ends = {
            "features.0.0": "_conv_stem",
            "features.0.1": "_bn0",
            f"features.{last}.0": "_conv_head",
            f"features.{last}.1": "_bn1",
            "classifier.1": "_fc",
        }
        places: list[tuple[str, str, Any]] = []
        for stage in range(1, last):
            for block in range(len(self.features[stage])):
                other_name = f"_blocks.{len(places)}"
                places.append(
                    (f"features.{stage}.{block}", other_name, EFFICIENTNET_PYTORCH)
                )
        notes: tuple[str, ...] = ()
        if self.eps != 1e-3 or not self.same_padding:
            notes = (
                "efficientnet_pytorch normalises with eps=1e-3 and pads as TensorFlow for one side "
                f"of images, as same_padding=224 does; this network has eps={self.eps:g} and "
                f"same_padding={self.same_padding}, so its outputs are others",
            )
        return KeyMap("efficientnet_pytorch", by_blocks(places, ends), notes=notes)

    @property
    def not_for_decoders(self):  # type: ignore[override]
        """The last convolution and, except in version 2, the first stage.

        So segmentation_models_pytorch takes them.
        """
        return ("last",) if "fused" in self.kinds else ("stage1", "last")

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        Convolutions have He normal by fan out, the head a bound by the number of classes.
        """
        return {
            "features*.0.weight": HeNormal("out"),
            "features*.fc?.weight": HeNormal("out"),
            "features*.fc?.bias": ZEROS,
            "classifier.1.weight": Uniform(1 / math.sqrt(max(1, self.num_classes))),
            "classifier.1.bias": ZEROS,
        }

    def forward(self, x):
        x = self.avgpool(self.features(x))
        return self.classifier(self.nn.flatten(x))

    def forward_stages(self, x, until=None):
        """Return the stem, / 2; each stage by its table, ``stage1`` …; and the last convolution.

        With `feature_blocks` there are ``block2`` … instead of the stages.
        """
        stem, *stages, last = self.features
        blocks = [stem]
        for stage in stages:
            blocks.extend(stage)
        return run_stages([*blocks, last], x, self.ends, until)


def _ends(
    plan: Sequence[Stage], feature_blocks: Sequence[int] | None
) -> tuple[tuple[str, int], ...]:
    """Return the names of the stages, each with the number of blocks up to its end."""
    total = sum(count for *_, count in plan)
    ends = [("stem", 1)]
    if feature_blocks is None:
        end = 1
        for number, (*_, count) in enumerate(plan, start=1):
            end += count
            ends.append((f"stage{number}", end))
    else:
        indices(feature_blocks, total, "feature_blocks", "EfficientNet")
        for block in sorted(feature_blocks):
            ends.append((f"block{block}", block + 2))
    return (*ends, ("last", total + 2))


def _plan(stages: Sequence[Stage], width_mult: float, depth_mult: float) -> list[Stage]:
    """Return the stages with their scaled numbers of channels and blocks."""
    rows = () if isinstance(stages, str) else stages
    if not rows or any(len(row) != 6 or row[0] not in ("mb", "fused") for row in rows):
        raise SettingError(
            f"EfficientNet: stages={stages!r}; wanted for each stage (kind, expansion, kernel, "
            "stride, channels, blocks) with the kind 'mb' or 'fused'"
        )
    plan = []
    what = "EfficientNet: stages"
    for kind, expansion, kernel, stride, channels, blocks in rows:
        positive(what, kernel=kernel, stride=stride, channels=channels, blocks=blocks)
        width = make_divisible(channels * width_mult)
        depth = math.ceil(blocks * depth_mult)
        if depth < 1:
            raise SettingError(
                f"EfficientNet: depth_mult={depth_mult!r} leaves a stage no block"
            )
        plan.append((kind, expansion, kernel, stride, width, depth))
    return plan


_V1 = "Tan and Le 2019, arXiv 1905.11946; torchvision"
_V2 = "Tan and Le 2021, arXiv 2104.00298; torchvision"

# name: (width, depth, dropout, published side of the images, parameters)
_SCALED = {
    "efficientnet_b0": (1.0, 1.0, 0.2, 224, 5_288_548),
    "efficientnet_b1": (1.0, 1.1, 0.2, 240, 7_794_184),
    "efficientnet_b2": (1.1, 1.2, 0.3, 288, 9_109_994),
    "efficientnet_b3": (1.2, 1.4, 0.3, 300, 12_233_232),
    "efficientnet_b4": (1.4, 1.8, 0.4, 380, 19_341_616),
    "efficientnet_b5": (1.6, 2.2, 0.4, 456, 30_389_784),
    "efficientnet_b6": (1.8, 2.6, 0.5, 528, 43_040_704),
    "efficientnet_b7": (2.0, 3.1, 0.5, 600, 66_347_960),
}

for _name, (_width, _depth, _dropout, _side, _parameters) in _SCALED.items():
    _large = {"eps": 1e-3, "momentum": 0.01} if _name >= "efficientnet_b5" else {}
    register(
        EfficientNet,
        name=_name,
        variant={"width_mult": _width, "depth_mult": _depth, "dropout": _dropout}
        | _large,
        dims=(1, 2, 3),
        source=_V1,
        shape=images(_side),
        parameters=_parameters,
    )

# name: (stages, channels of the stem, dropout, side of the images, parameters)
_SECOND = {
    "efficientnet_v2_s": (
        (
            ("fused", 1, 3, 1, 24, 2),
            ("fused", 4, 3, 2, 48, 4),
            ("fused", 4, 3, 2, 64, 4),
            ("mb", 4, 3, 2, 128, 6),
            ("mb", 6, 3, 1, 160, 9),
            ("mb", 6, 3, 2, 256, 15),
        ),
        24,
        0.2,
        384,
        21_458_488,
    ),
    "efficientnet_v2_m": (
        (
            ("fused", 1, 3, 1, 24, 3),
            ("fused", 4, 3, 2, 48, 5),
            ("fused", 4, 3, 2, 80, 5),
            ("mb", 4, 3, 2, 160, 7),
            ("mb", 6, 3, 1, 176, 14),
            ("mb", 6, 3, 2, 304, 18),
            ("mb", 6, 3, 1, 512, 5),
        ),
        24,
        0.3,
        480,
        54_139_356,
    ),
    "efficientnet_v2_l": (
        (
            ("fused", 1, 3, 1, 32, 4),
            ("fused", 4, 3, 2, 64, 7),
            ("fused", 4, 3, 2, 96, 7),
            ("mb", 4, 3, 2, 192, 10),
            ("mb", 6, 3, 1, 224, 19),
            ("mb", 6, 3, 2, 384, 25),
            ("mb", 6, 3, 1, 640, 7),
        ),
        32,
        0.4,
        480,
        118_515_272,
    ),
}

for _name, (_stages, _stem, _dropout, _side, _parameters) in _SECOND.items():
    register(
        EfficientNet,
        name=_name,
        variant={
            "stages": _stages,
            "stem_channels": _stem,
            "last_channels": 1280,
            "dropout": _dropout,
            "eps": 1e-3,
        },
        dims=(1, 2, 3),
        source=_V2,
        shape=images(_side),
        parameters=_parameters,
    )
