"""EfficientNets, beside torchvision's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
EfficientNet = Later("torchvision.models.efficientnet.EfficientNet")
FusedMBConvConfig = Later("torchvision.models.efficientnet.FusedMBConvConfig")
MBConvConfig = Later("torchvision.models.efficientnet.MBConvConfig")

NAMES = (
    *(f"efficientnet_b{i}" for i in range(8)),
    *(f"efficientnet_v2_{size}" for size in "sml"),
)
FULL = {name: partial(get_model, name) for name in NAMES}

STAGES = (
    ("fused", 1, 3, 1, 16, 1),
    ("fused", 2, 3, 2, 24, 1),
    ("mb", 1, 3, 1, 16, 1),
    ("mb", 2, 5, 2, 16, 2),
)
SETTINGS = {
    "stages": STAGES,
    "stem_channels": 16,
    "last_channels": 20,
    "width_mult": 1.0,
    "depth_mult": 1.0,
    "dropout": 0.0,
    "stochastic_depth": 0.0,
    "num_classes": 5,
    "eps": 1e-3,
    "momentum": 0.01,
}


def reference():
    """Torchvision's network with those stages; it wants to be told the channels before each."""
    configs, width = [], 16
    for kind, expansion, kernel, stride, channels, blocks in STAGES:
        config = FusedMBConvConfig if kind == "fused" else MBConvConfig
        configs.append(config(expansion, kernel, stride, width, channels, blocks))
        width = channels
    norm = partial(torch.nn.BatchNorm2d, eps=1e-3, momentum=0.01)
    return EfficientNet(configs, 0.0, 0.0, 5, norm, 20)


CASES = [
    Case(
        "efficientnet_b0",
        SETTINGS,
        (3, 19, 23),
        covers=NAMES,
        reference=reference,
        zero=("features.3.0.block.2.1.bias", "features.4.?.block.3.1.bias"),
    ),
]
