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
        {"dims": 1, "features": (4, 6, 6, 4, 4, 6), "norm": "group", "num_groups": 2},
        (1, 35),
        of="in 1d",
        reference=partial(
            BasicUNet, 1, 1, 2, (4, 6, 6, 4, 4, 6), norm=("group", {"num_groups": 2})
        ),
    ),
    Case(
        "unet",
        {"dims": 3, "features": (4, 6, 5, 4, 4, 5), "norm": "batch"},
        (1, 33, 34, 32),
        batch=1,
        of="in 3d",
        zero=("*.conv.bias",),
        reference=partial(BasicUNet, 3, 1, 2, (4, 6, 5, 4, 4, 5), norm="batch"),
    ),
]
