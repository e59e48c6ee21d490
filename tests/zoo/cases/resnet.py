"""Residual networks, beside torchvision's, timm's and MONAI's."""

from functools import partial

import torch

from deliralike import zoo
from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
BasicBlock = Later("torchvision.models.resnet.BasicBlock")
Bottleneck = Later("torchvision.models.resnet.Bottleneck")
ResNet = Later("torchvision.models.resnet.ResNet")
create_model = Later("timm.create_model")
timm = Later("timm.models.resnet")
monai = Later("monai.networks.nets.resnet")
resnet10 = Later("monai.networks.nets.resnet.resnet10")

NAMES = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "resnext101_64x4d",
    "wide_resnet50_2",
    "wide_resnet101_2",
)
TIMM = tuple(
    name
    for name in zoo.list("*res*")
    if "timm" in zoo.find(name).source
    and zoo.find(name).network is zoo.find("resnet18").network
)
FULL = {name: partial(get_model, name) for name in NAMES}
FULL |= {name: partial(create_model, name) for name in TIMM}
FULL["resnet10"] = partial(
    resnet10, spatial_dims=2, num_classes=1000, bias_downsample=False
)

BOTTLENECKS = tuple(name for name in NAMES if name not in ("resnet18", "resnet34"))


def of_timm(block, **settings):
    """timm's network with a deep stem and its averaging shortcut."""
    block = getattr(timm, block)
    return timm.ResNet(block, (1, 2, 1, 1), 5, avg_down=True, **settings)


def of_monai(block, **settings):
    """MONAI's network in three dimensions, but its shortcut without parameters has a gradient."""

    class WithGradient(monai.ResNet):
        def _downsample_basic_block(self, x, planes, stride, spatial_dims=3):
            value = super()._downsample_basic_block(x, planes, stride, spatial_dims)
            passed = torch.zeros_like(value)
            passed[:, : x.shape[1]] = x[:, :, ::stride, ::stride, ::stride]
            return passed + (value - passed).detach()

    return WithGradient(block, [1, 2, 1, 1], [64, 128, 256, 512], 3, 1, **settings)


DEEP = {"layers": (1, 2, 1, 1), "num_classes": 5, "avg_down": True}
CASES = [
    Case(
        "seresnext26t_32x4d",
        DEEP
        | {
            "stem_type": "tiered",
            "stem_width": 12,
            "squeeze_excitation": True,
            "groups": 4,
            "width_per_group": 8,
        },
        (3, 33, 39),
        reference=partial(
            of_timm,
            "Bottleneck",
            stem_type="deep_tiered",
            stem_width=12,
            block_args={"attn_layer": "se"},
            cardinality=4,
            base_width=8,
        ),
        covers=tuple(
            name for name in TIMM if zoo.find(name).settings["block"] == "bottleneck"
        ),
    ),
    Case(
        "resnet18d",
        DEEP | {"stem_type": "deep", "stem_width": 9, "squeeze_excitation": False},
        (3, 33, 39),
        reference=partial(of_timm, "BasicBlock", stem_type="deep", stem_width=9),
        covers=tuple(
            name for name in TIMM if zoo.find(name).settings["block"] == "basic"
        ),
    ),
    Case(
        "seresnet18",
        {"num_classes": 0, "dims": 1, "layers": (1, 1, 1, 1), "stem_type": "deep"},
        (3, 129),
        of="in 1d, headless",
        batch=3,
    ),
    Case(
        "resnet18",
        {"layers": (2, 1, 1, 1), "num_classes": 5},
        (3, 33, 35),
        covers=("resnet10", "resnet18", "resnet34"),
        reference=partial(ResNet, BasicBlock, [2, 1, 1, 1], 5),
    ),
    Case(
        "resnext50_32x4d",
        {"layers": (1, 2, 1, 1), "num_classes": 5, "groups": 4, "width_per_group": 8},
        (3, 33, 35),
        reference=partial(
            ResNet, Bottleneck, [1, 2, 1, 1], 5, groups=4, width_per_group=8
        ),
        covers=BOTTLENECKS,
    ),
    Case(
        "resnet50",
        {
            "layers": (1, 1, 2, 2),
            "num_classes": 5,
            "width_per_group": 8,
            "replace_stride_with_dilation": (False, True, True),
        },
        (3, 33, 35),
        of="dilated",
        reference=partial(
            ResNet,
            Bottleneck,
            [1, 1, 2, 2],
            5,
            width_per_group=8,
            replace_stride_with_dilation=[False, True, True],
        ),
    ),
    Case(
        "resnet18",
        {"num_classes": 5, "dims": 1, "layers": (1, 1, 1, 1)},
        (3, 65),
        of="in 1d",
        batch=3,
    ),
    Case(
        "resnet50",
        {"num_classes": 0, "dims": 3, "layers": (1, 1, 1, 1), "width_per_group": 8},
        (3, 5, 33, 7),
        of="in 3d, headless",
    ),
    Case(
        "resnet18",
        {
            "num_classes": 0,
            "dims": 3,
            "in_channels": 1,
            "layers": (1, 2, 1, 1),
            "shortcut": "A",
        },
        (1, 17, 33, 19),
        of="of MedicalNet",
        reference=partial(
            of_monai, "basic", conv1_t_stride=2, shortcut_type="A", feed_forward=False
        ),
    ),
    Case(
        "resnet10",
        {
            "num_classes": 5,
            "dims": 3,
            "in_channels": 1,
            "layers": (1, 2, 1, 1),
            "stem_stride": 1,
        },
        (1, 9, 17, 10),
        of="with MONAI's stem",
        reference=partial(of_monai, "basic", num_classes=5, bias_downsample=False),
    ),
    Case(
        "resnet8",
        {"num_classes": 4, "depth": 8, "in_channels": 1},
        (1, 9, 7),
        covers=("resnet8", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110"),
    ),
    Case("resnet8", {"dims": 3, "shortcut": "B"}, (1, 5, 7, 6), of="in 3d"),
]
