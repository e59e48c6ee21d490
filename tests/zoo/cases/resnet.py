"""Residual networks, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
BasicBlock = Later("torchvision.models.resnet.BasicBlock")
Bottleneck = Later("torchvision.models.resnet.Bottleneck")
ResNet = Later("torchvision.models.resnet.ResNet")

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
FULL = {name: partial(get_model, name) for name in NAMES}

BOTTLENECKS = tuple(name for name in NAMES if name not in ("resnet18", "resnet34"))

CASES = [
    Case(
        "resnet18",
        {"layers": (2, 1, 1, 1), "num_classes": 5},
        (3, 33, 35),
        covers=("resnet18", "resnet34"),
        reference=partial(ResNet, BasicBlock, [2, 1, 1, 1], 5),
    ),
    Case(
        "resnext50_32x4d",
        {"layers": (1, 2, 1, 1), "num_classes": 5, "groups": 4, "width_per_group": 8},
        (3, 33, 35),
        reference=partial(ResNet, Bottleneck, [1, 2, 1, 1], 5, groups=4, width_per_group=8),
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
        "resnet8",
        {"num_classes": 4, "depth": 8, "in_channels": 1},
        (1, 9, 7),
        covers=("resnet8", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110"),
    ),
    Case("resnet8", {"dims": 3, "shortcut": "B"}, (1, 5, 7, 6), of="in 3d"),
]
