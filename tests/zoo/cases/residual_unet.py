"""The U-Net with residual units, beside MONAI's UNet."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

UNet = Later("monai.networks.nets.UNet")

FULL = {
    "residual_unet": partial(
        UNet,
        3,
        1,
        2,
        (16, 32, 64, 128, 256),
        (2, 2, 2, 2),
        num_res_units=2,
        norm="batch",
    )
}

CASES = [
    Case(
        "residual_unet",
        {
            "channels": (3, 4, 6),
            "strides": ((1, 2, 2), 2),
            "in_channels": 2,
            "norm": "batch",
            "kernel_size": (1, 3, 3),
        },
        (2, 4, 4, 8),
        zero=("*.conv.bias",),
        reference=partial(
            UNet,
            3,
            2,
            2,
            (3, 4, 6),
            ((1, 2, 2), (2, 2, 2)),
            kernel_size=(1, 3, 3),
            num_res_units=2,
            norm="batch",
        ),
    ),
    Case(
        "residual_unet",
        {
            "channels": (3, 4),
            "strides": (3,),
            "num_res_units": 0,
            "dims": 2,
            "norm": "instance",
        },
        (1, 6, 9),
        of="plain",
        zero=("*.conv.bias",),
        reference=partial(UNet, 2, 1, 2, (3, 4), (3,)),
    ),
    Case(
        "residual_unet",
        {
            "channels": (3, 4, 4),
            "strides": (2, 1),
            "dims": 1,
            "norm": "instance",
            "bias": False,
        },
        (1, 8),
        of="in 1d",
        reference=partial(
            UNet, 1, 1, 2, (3, 4, 4), (2, 1), num_res_units=2, bias=False
        ),
    ),
]
