"""Densely connected networks, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
DenseNet = Later("torchvision.models.densenet.DenseNet")

NAMES = ("densenet121", "densenet161", "densenet169", "densenet201")
FULL = {name: partial(get_model, name) for name in NAMES}

CASES = [
    Case(
        "densenet121",
        {
            "growth_rate": 4,
            "layers": (1, 2, 1, 2),
            "width": 6,
            "bottleneck": 2,
            "num_classes": 5,
        },
        (3, 33, 67),
        covers=NAMES,
        reference=partial(DenseNet, 4, (1, 2, 1, 2), 6, 2, num_classes=5),
    ),
    Case(
        "densenet121",
        {"growth_rate": 3, "layers": (1, 2), "width": 4, "num_classes": 0, "dims": 3},
        (3, 9, 5, 8),
        of="in 3d, headless",
        zero=("features.norm0.bias",),
    ),  # all maxima are positive, and normalised again
]
