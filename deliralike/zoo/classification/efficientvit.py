"""EfficientViT of the MIT, as timm builds it: inverted bottlenecks, later with linear attention.

It follows the paper's code, but that under mixed precision attention is not computed in single
precision.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo.blocks import by_stage, classifier, images, in_turn
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers

_EXPANSION = 4  # of the bottlenecks
_EPS = 1e-5  # added to the sums that attention divides by


class EfficientViT(Model):
    """A stem and four stages of inverted bottlenecks; the last two attend as well.

    Source: Cai et al. 2023, arXiv 2205.14756. Names, order, shapes and start values are those of
    timm's ``EfficientVit``.

    Args:
        widths: The channels of the stem and of each stage; the last two are multiples of
            `head_dim`.
        depths: The number of blocks in the stem and in each stage; in the last two, of those that
            attend.
        head_dim: Width of each head of attention.
        head_widths: The channels before and after pooling in the head.
        num_classes: Number of outputs; 0 for no head: the features before the last layer.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the stem and each stage
        halve the size, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names
            ``stem.in_conv.conv``.
    """

    stem_paths = ("stem.in_conv.conv",)
    head_paths = ("head.classifier.4",)
    can_stop = True

    def __init__(
        self,
        widths: Sequence[int] = (8, 16, 32, 64, 128),
        depths: Sequence[int] = (1, 2, 2, 2, 2),
        head_dim: int = 16,
        head_widths: Sequence[int] = (1024, 1280),
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        what = "EfficientViT"
        widths = numbers(widths, "widths", what, count=5)
        depths = numbers(depths, "depths", what, count=5)
        before_pooling, features = numbers(head_widths, "head_widths", what, count=2)
        checks.positive(head_dim, "head_dim", what)
        nn = self.nn
        self.stem = _stem(nn, in_channels, widths[0], depths[0])
        # of each stage the width before it, its width, and its number of blocks
        steps = list(zip(widths, widths[1:], depths[1:], strict=False))
        stages = [_stage(nn, *step) for step in steps[:2]]
        stages += [_attending_stage(nn, *step, head_dim) for step in steps[2:]]
        self.stages = nn.Sequential(*stages)
        layers = [
            nn.Linear(before_pooling, features, bias=False),
            nn.LayerNorm(features),
            nn.Hardswish(),
            nn.Identity(),  # timm's dropout, which is off in every published network
            classifier(nn, features, num_classes, what),
        ]
        in_conv = _conv(nn, widths[-1], before_pooling)
        head = {"in_conv": in_conv, "classifier": nn.Sequential(*layers)}
        self.head = nn.ModuleDict(head)

    def forward(self, x):
        last = self.last_stage(x)
        pooled = self.nn.mean(self.head["in_conv"](last), dim=(2, 3))
        return self.head["classifier"](pooled)

    def forward_stages(self, x, until=None):
        """Return the stem and each stage, ``stage1`` …: / 2, / 4, / 8, / 16 and / 32."""
        return in_turn(x, by_stage(self.stem, self.stages), until)


class Residual(Network):
    """Layers beside a shortcut."""

    def __init__(self, main: Network) -> None:
        super().__init__()
        self.main = main

    def forward(self, x):
        return x + self.main(x)


class LinearAttention(Network):
    """Attention whose scores are products of ReLUs, so that its cost grows with the places alone.

    Half of the heads see each place, the other half sums over its neighbourhood.

    Source: Cai et al. 2023, arXiv 2205.14756, section 3.1.

    Shapes:
        ``(batch, width, *size)`` gives the same.
    """

    def __init__(self, width: int, head_dim: int) -> None:
        super().__init__()
        nn = self.nn
        checks.divides(width, head_dim, "EfficientViT: a stage's width", "head_dim")
        self.head_dim = head_dim
        packed = 3 * width
        self.qkv = nn.Sequential({"conv": nn.Conv2d(width, packed, 1, bias=False)})
        groups = packed // head_dim
        neighbourhood = nn.Sequential(
            nn.Conv2d(packed, packed, 5, padding=2, groups=packed, bias=False),
            nn.Conv2d(packed, packed, 1, groups=groups, bias=False),
        )
        self.aggreg = nn.ModuleList([neighbourhood])
        self.proj = _conv(nn, 2 * width, width, activation=False)

    def forward(self, x):
        nn = self.nn
        packed = self.qkv(x)
        packed = nn.concatenate([packed, self.aggreg[0](packed)], 1)
        packed = nn.unflatten(nn.flatten(packed, 2), 1, (-1, 3 * self.head_dim))
        query, key, value = nn.chunk(packed, 3, 2)  # (batch, heads, head_dim, places)
        # both sums over keys are scaled, so that they stay within float16
        scale = packed.shape[3] ** -0.5
        query, key = nn.relu(query), nn.relu(key) * scale
        products = nn.einsum("bhdn,bhen->bhde", value, key)
        weighted = nn.einsum("bhde,bhen->bhdn", products, query)
        total = nn.einsum("bhe,bhen->bhn", nn.sum(key, dim=-1), query)
        y = weighted / (nn.unsqueeze(total, 2) + _EPS * scale)
        return self.proj(nn.unflatten(nn.flatten(y, 1, 2), 2, x.shape[2:]))


def _stem(nn: Any, in_channels: int, width: int, depth: int) -> Any:
    """Make a convolution that halves the size, and bottlenecks that are no wider within."""
    layers = {"in_conv": _conv(nn, in_channels, width, 3, stride=2)}
    for number in range(depth):
        layers[f"res{number}"] = Residual(_bottleneck(nn, width, width, expansion=1))
    return nn.Sequential(layers)


def _stage(nn: Any, before: int, width: int, count: int) -> Any:
    """Make so many bottlenecks, the first of which halves the size."""
    blocks = [nn.Sequential({"main": _bottleneck(nn, before, width, stride=2)})]
    for _ in range(count - 1):
        blocks.append(Residual(_bottleneck(nn, width, width)))
    return nn.Sequential({"blocks": nn.Sequential(*blocks)})


def _attending_stage(
    nn: Any, before: int, width: int, count: int, head_dim: int
) -> Any:
    """Make a bottleneck that halves the size, and so many pairs of attention and a bottleneck."""
    halving = _bottleneck(nn, before, width, stride=2, normed=False)
    blocks = [nn.Sequential({"main": halving})]
    for _ in range(count):
        pair = {
            "context_module": Residual(LinearAttention(width, head_dim)),
            "local_module": Residual(_bottleneck(nn, width, width, normed=False)),
        }
        blocks.append(nn.Sequential(pair))
    return nn.Sequential({"blocks": nn.Sequential(*blocks)})


def _bottleneck(
    nn: Any,
    width: int,
    out_width: int,
    stride: int = 1,
    expansion: int = _EXPANSION,
    normed: bool = True,
) -> Any:
    """Make an inverted bottleneck; only its last layer is normalised where `normed` is not set."""
    inner = width * expansion
    layers = {}
    if expansion != 1:
        layers["inverted_conv"] = _conv(nn, width, inner, normed=normed)
    layers["depth_conv"] = _conv(nn, inner, inner, 3, stride, inner, normed=normed)
    layers["point_conv"] = _conv(nn, inner, out_width, activation=False)
    return nn.Sequential(layers)


def _conv(
    nn: Any,
    width: int,
    out_width: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    normed: bool = True,
    activation: bool = True,
) -> Any:
    """Make a convolution with a normalisation, or else a bias, and an activation."""
    options = {"groups": groups, "bias": not normed}
    conv = nn.Conv2d(width, out_width, kernel, stride, kernel // 2, **options)
    layers = {"conv": conv}
    if normed:
        layers["norm"] = nn.BatchNorm2d(out_width)
    if activation:
        layers["act"] = nn.Hardswish()
    return nn.Sequential(layers)


# name: (channels of the stem, blocks of the stem and each stage, width of heads, widths of the
# head, parameters)
_VARIANTS = {
    "efficientvit_b0": (8, (1, 2, 2, 2, 2), 16, (1024, 1280), 3_410_008),
    "efficientvit_b1": (16, (1, 2, 3, 3, 4), 16, (1536, 1600), 9_102_024),
    "efficientvit_b2": (24, (1, 3, 4, 4, 6), 32, (2304, 2560), 24_330_712),
    "efficientvit_b3": (32, (1, 4, 6, 6, 9), 32, (2304, 2560), 48_646_056),
}

for _name, (_width, _depths, _head_dim, _head_widths, _parameters) in _VARIANTS.items():
    register(
        EfficientViT,
        name=_name,
        variant={
            "widths": tuple(_width * 2**number for number in range(5)),
            "depths": _depths,
            "head_dim": _head_dim,
            "head_widths": _head_widths,
        },
        source="Cai et al. 2023, arXiv 2205.14756; timm",
        shape=images(224),
        parameters=_parameters,
    )
