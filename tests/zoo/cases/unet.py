"""The plain U-Net, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

BasicUNet = Later("monai.networks.nets.BasicUNet")

FULL = {"unet": partial(BasicUNet, 2)}

CASES = [
    Case(
        "unet",
        {"features": (4, 6, 5, 6, 7, 5)},
        (1, 33, 37),
        zero=("*.conv.bias",),
        reference=partial(BasicUNet, 2, 1, 2, (4, 6, 5, 6, 7, 5)),
    ),
    Case(
        "unet",
        {"dims": 1, "features": (4, 6, 6), "norm": "group", "num_groups": 2},
        (1, 19),
        of="in 1d",
    ),
    Case(
        "unet",
        {"features": (4, 6, 8, 5), "upsample": "nontrainable", "norm": "batch"},
        (1, 13, 11),
        of="resized",
        zero=("*.conv.bias",),
    ),
    Case("unet", {"dims": 3, "features": (4, 6, 5), "norm": None}, (1, 5, 7, 6), of="in 3d"),
]
