"""The plain U-Net, beside MONAI's."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

BasicUNet = Later("monai.networks.nets.BasicUNet")
UpSample = Later("monai.networks.blocks.UpSample")

FULL = {"unet": partial(BasicUNet, 2)}


def resized(dims, features, **settings):
    """MONAI's network, with a convolution before the last resizing, as before all others."""
    network = BasicUNet(dims, 1, 2, features, upsample="nontrainable", **settings)
    convolution = getattr(nn, f"Conv{dims}d")(features[1], features[1], 1)
    network.upcat_1.upsample = UpSample(
        dims, features[1], features[1], mode="nontrainable", pre_conv=convolution
    )
    return network


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
        {"features": (4, 6, 8, 5, 4, 5), "upsample": "nontrainable", "norm": "batch"},
        (1, 33, 35),
        of="resized",
        zero=("*.conv.bias",),
        reference=partial(resized, 2, (4, 6, 8, 5, 4, 5), norm="batch"),
    ),
    Case(
        "unet",
        {"dims": 3, "features": (4, 6, 5, 4, 4, 5), "upsample": "nontrainable"},
        (1, 33, 34, 32),
        batch=1,
        of="in 3d",
        zero=("*.conv.bias",),
        reference=partial(resized, 3, (4, 6, 5, 4, 4, 5)),
    ),
]
