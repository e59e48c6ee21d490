"""VGG networks, beside torchvision's, with smaller linear layers."""

from functools import partial

import torch
from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
VGG = Later("torchvision.models.vgg.VGG")
make_layers = Later("torchvision.models.vgg.make_layers")

PLAIN = ("vgg11", "vgg13", "vgg16", "vgg19")
WITH_NORM = tuple(f"{name}_bn" for name in PLAIN)
FULL = {name: partial(get_model, name) for name in PLAIN + WITH_NORM}

SMALL = {
    "layers": (1, 2, 1),
    "widths": (6, 8, 10),
    "num_classes": 5,
    "dropout": 0.0,
    "hidden": 12,
    "pooled": 3,
}
LAYERS = [6, "M", 8, 8, "M", 10, "M"]


def reference(batch_norm=False):
    """Torchvision's class with few channels; its linear layers have no settings, so they are put in
    here."""
    with torch.device("meta"):
        net = VGG(make_layers([1]), init_weights=False)
    net.features = make_layers(LAYERS, batch_norm)
    net.avgpool = nn.AdaptiveAvgPool2d(3)
    net.classifier = nn.Sequential(
        nn.Linear(90, 12),
        nn.ReLU(),
        nn.Dropout(0.0),
        nn.Linear(12, 12),
        nn.ReLU(),
        nn.Dropout(0.0),
        nn.Linear(12, 5),
    )
    return net


CASES = [
    Case("vgg11", SMALL, (3, 19, 9), reference=reference, covers=PLAIN),
    Case(
        "vgg11_bn",
        SMALL,
        (3, 19, 9),
        reference=partial(reference, True),
        covers=WITH_NORM,
        zero=("features.*.bias",),
    ),
    Case(
        "vgg11_bn",
        SMALL
        | {
            "dims": 3,
            "num_classes": 0,
            "pooled": 2,
            "layers": (1, 1),
            "widths": (4, 6),
        },
        (3, 5, 7, 4),
        of="in 3d, headless",
        zero=("features.*.bias",),
    ),
]
