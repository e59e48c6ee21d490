"""MobileNetV4's convolutional networks, as timm builds them.

They follow the paper; the hybrid ones, with attention, are not here.
"""

import re
from collections.abc import Mapping, Sequence

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import by_stage, classifier, images, in_turn
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.mobile import ConvNormActivation, make_divisible
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each

_BLOCK = re.compile(r"(cn|er|uir)_r([1-9])(?:_a(\d))?_k(\d)_s([12])_e([1-9])_c(\d+)")
_HIDDEN = 1280  # channels before the linear layer

_SMALL = (
    ("cn_r1_k3_s2_e1_c32", "cn_r1_k1_s1_e1_c32"),
    ("cn_r1_k3_s2_e1_c96", "cn_r1_k1_s1_e1_c64"),
    ("uir_r1_a5_k5_s2_e3_c96", "uir_r4_a0_k3_s1_e2_c96", "uir_r1_a3_k0_s1_e4_c96"),
    (
        "uir_r1_a3_k3_s2_e6_c128",
        "uir_r1_a5_k5_s1_e4_c128",
        "uir_r1_a0_k5_s1_e4_c128",
        "uir_r1_a0_k5_s1_e3_c128",
        "uir_r2_a0_k3_s1_e4_c128",
    ),
    ("cn_r1_k1_s1_e1_c960",),
)
_MEDIUM = (
    ("er_r1_k3_s2_e4_c48",),
    ("uir_r1_a3_k5_s2_e4_c80", "uir_r1_a3_k3_s1_e2_c80"),
    (
        "uir_r1_a3_k5_s2_e6_c160",
        "uir_r2_a3_k3_s1_e4_c160",
        "uir_r1_a3_k5_s1_e4_c160",
        "uir_r1_a3_k3_s1_e4_c160",
        "uir_r1_a3_k0_s1_e4_c160",
        "uir_r1_a0_k0_s1_e2_c160",
        "uir_r1_a3_k0_s1_e4_c160",
    ),
    (
        "uir_r1_a5_k5_s2_e6_c256",
        "uir_r1_a5_k5_s1_e4_c256",
        "uir_r2_a3_k5_s1_e4_c256",
        "uir_r1_a0_k0_s1_e4_c256",
        "uir_r1_a3_k0_s1_e4_c256",
        "uir_r1_a3_k5_s1_e2_c256",
        "uir_r1_a5_k5_s1_e4_c256",
        "uir_r2_a0_k0_s1_e4_c256",
        "uir_r1_a5_k0_s1_e2_c256",
    ),
    ("cn_r1_k1_s1_e1_c960",),
)
_LARGE = (
    ("er_r1_k3_s2_e4_c48",),
    ("uir_r1_a3_k5_s2_e4_c96", "uir_r1_a3_k3_s1_e4_c96"),
    (
        "uir_r1_a3_k5_s2_e4_c192",
        "uir_r3_a3_k3_s1_e4_c192",
        "uir_r1_a3_k5_s1_e4_c192",
        "uir_r5_a5_k3_s1_e4_c192",
        "uir_r1_a3_k0_s1_e4_c192",
    ),
    (
        "uir_r4_a5_k5_s2_e4_c512",
        "uir_r1_a5_k0_s1_e4_c512",
        "uir_r1_a5_k3_s1_e4_c512",
        "uir_r2_a5_k0_s1_e4_c512",
        "uir_r1_a5_k3_s1_e4_c512",
        "uir_r1_a5_k5_s1_e4_c512",
        "uir_r3_a5_k0_s1_e4_c512",
    ),
    ("cn_r1_k1_s1_e1_c960",),
)


# timm's layers, without those of bottlenecks called "conv" and "bn"
_LAYERS = {
    "conv.0": "conv",
    "conv.1": "bn1",
    "exp.0": "conv_exp",
    "exp.1": "bn1",
    "pwl.0": "conv_pwl",
    "pwl.1": "bn2",
}
_TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"stem\.0\.(\w+)": r"conv_stem.\1",
            r"stem\.1\.(\w+)": r"bn1.\1",
            r"(blocks\.\d+\.\d+)\.layers\.((?:conv|exp|pwl)\.\d)\.(\w+)": lambda m: (
                f"{m[1]}.{_LAYERS[m[2]]}.{m[3]}"
            ),
            r"(blocks\.\d+\.\d+)\.layers\.(\w+)\.0\.(\w+)": r"\1.\2.conv.\3",
            r"(blocks\.\d+\.\d+)\.layers\.(\w+)\.1\.(\w+)": r"\1.\2.bn.\3",
            r"head\.0\.(\w+)": r"conv_head.\1",
            r"head\.1\.(\w+)": r"norm_head.\1",
            r"(classifier\.\w+)": r"\1",
        }
    ),
)


class Block(Network):
    """Convolutions in a row, beside a shortcut where the shape stays.

    Source: Qin et al. 2024, arXiv 2404.10518, figure 4; timm, whose names the layers have.
    """

    def __init__(self, layers: Mapping[str, Network], shortcut: bool) -> None:
        super().__init__()
        self.layers = self.nn.Sequential(layers)
        self.shortcut = shortcut

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.shortcut else y


class MobileNetV4(Model):
    """Convolutions, then universal inverted bottlenecks.

    Source: Qin et al. 2024, arXiv 2404.10518. It is timm's ``MobileNetV3`` of that name, whose
    names the key map ``"timm"`` has; start values are those of our `MobileNetV2`.

    Args:
        stages: The blocks of each stage in timm's notation, ``"uir_r2_a5_k3_s1_e4_c96"``: the kind
            (``cn`` a convolution, ``er`` a fused bottleneck, ``uir`` a universal one), how often it
            stands (``r``), the kernels of the first depthwise convolution (``a``) and of the other
            one (``k``), the stride of the first of them (``s``), the expansion (``e``), and the
            channels (``c``).
        stem_width: Channels of the first convolution.
        width_mult: Factor for the channels of all blocks, which are rounded to multiples of 8.
        num_classes: Number of outputs; 0 for no head: what comes before the linear layer.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; the size is halved
        five times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of channels; the error names ``stem.0``.
    """

    stem_paths = ("stem.0",)
    head_paths = ("classifier",)
    can_stop = True
    keymaps = (_TIMM,)
    start_values = {
        "*.0.weight": HeNormal("out"),
        "classifier.weight": Normal(0.01),
        "classifier.bias": ZEROS,
    }

    def __init__(
        self,
        stages: Sequence[Sequence[str]] = _SMALL,
        stem_width: int = 32,
        width_mult: float = 1.0,
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        nn = self.nn
        width = stem_width
        self.stem = ConvNormActivation(in_channels, width, 3, 2)
        rows = []
        for texts in stages:
            blocks = []
            for text in texts:
                new, width = _blocks(text, width, width_mult)
                blocks += new
            rows.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*rows)
        self.head = ConvNormActivation(width, _HIDDEN, 1)
        self.classifier = classifier(nn, _HIDDEN, num_classes, "MobileNetV4")

    def forward(self, x):
        x = self.last_stage(x)
        x = self.head(self.nn.mean(x, (2, 3), keepdim=True))
        return self.classifier(self.nn.flatten(x))

    def forward_stages(self, x, until=None):
        """Return the stem and each stage, ``stage1`` …: / 2, / 4, / 8, / 16, / 32 and / 32."""
        return in_turn(x, by_stage(self.stem, self.blocks), until)


def _blocks(text: str, width: int, width_mult: float) -> tuple[list[Network], int]:
    """Return the blocks that a text stands for, and their channels."""
    match = _BLOCK.fullmatch(text)
    if match is None:
        raise SettingError(
            f"MobileNetV4: stages has {text!r}; wanted such as 'uir_r2_a5_k3_s1_e4_c96'"
        )
    kind = match[1]
    count, first, kernel, stride, expansion, channels = map(int, match.groups("0")[1:])
    out = make_divisible(channels * width_mult)
    blocks: list[Network] = []
    for _ in range(count):
        inside = make_divisible(width * expansion)
        if kind == "uir":
            layers = _universal(width, inside, out, first, kernel, stride)
        elif kind == "er":
            layers = {
                "exp": ConvNormActivation(width, inside, kernel, stride),
                "pwl": ConvNormActivation(inside, out, 1, activation=None),
            }
        else:
            layers = {"conv": ConvNormActivation(width, out, kernel, stride)}
        shortcut = kind != "cn" and stride == 1 and width == out
        blocks.append(Block(layers, shortcut))
        width, stride = out, 1
    return blocks, width


def _universal(
    width: int, inside: int, out: int, first: int, second: int, stride: int
) -> dict[str, Network]:
    """Make the layers of a bottleneck with two, one or no depthwise convolutions.

    The second of them has the stride, or the first where it is alone.
    """
    layers: dict[str, Network] = {}
    if first:
        early = 1 if second else stride
        layers["dw_start"] = ConvNormActivation(
            width, width, first, early, groups=width, activation=None
        )
    layers["pw_exp"] = ConvNormActivation(width, inside, 1)
    if second:
        layers["dw_mid"] = ConvNormActivation(
            inside, inside, second, stride, groups=inside
        )
    layers["pw_proj"] = ConvNormActivation(inside, out, 1, activation=None)
    return layers


# name: (stages, channels of the stem, factor for the channels, parameters)
_VARIANTS = {
    "mobilenetv4_conv_small_050": (_SMALL, 32, 0.5, 2_238_952),
    "mobilenetv4_conv_small": (_SMALL, 32, 1.0, 3_774_024),
    "mobilenetv4_conv_medium": (_MEDIUM, 32, 1.0, 9_715_512),
    "mobilenetv4_conv_large": (_LARGE, 24, 1.0, 32_590_864),
}

register_each(
    MobileNetV4,
    by_column(("stages", "stem_width", "width_mult"), _VARIANTS),
    source="Qin et al. 2024, arXiv 2404.10518; timm",
    shape=images(224),
)
