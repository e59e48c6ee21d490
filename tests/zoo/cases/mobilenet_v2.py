"""MobileNetV2, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
MobileNetV2 = Later("torchvision.models.MobileNetV2")

FULL = {"mobilenet_v2": partial(get_model, "mobilenet_v2")}

BLOCKS = ((1, 16, 1, 1), (2, 24, 2, 2), (3, 24, 1, 1), (2, 32, 1, 2))

CASES = [
    Case(
        "mobilenet_v2",
        {"blocks": BLOCKS, "width_mult": 0.5, "num_classes": 5, "dropout": 0.0},
        (3, 17, 22),
        reference=partial(
            MobileNetV2, 5, 0.5, [list(row) for row in BLOCKS], dropout=0.0
        ),
        zero=("features.*.conv.[23].bias",),
    ),  # of a projection: what follows it is normalised
]
