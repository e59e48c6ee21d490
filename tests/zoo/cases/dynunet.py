"""DynUNet, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

DynUNet = Later("monai.networks.nets.DynUNet")

STRIDES = (1, 2, 2, 2, 2, 2)
FULL = {"dynunet": partial(DynUNet, 3, 1, 2, (3,) * 6, STRIDES, STRIDES[1:])}

KERNELS, STEPS = ((1, 3, 3), 3, 3, 3), (1, (1, 2, 2), 2, 1)

CASES = [
    Case(
        "dynunet",
        {
            "kernel_size": KERNELS,
            "strides": STEPS,
            "filters": (3, 4, 4, 5),
            "in_channels": 2,
            "res_block": True,
            "deep_supervision": True,
            "deep_supr_num": 2,
        },
        (2, 4, 8, 4),
        reference=partial(
            DynUNet,
            3,
            2,
            2,
            [[1, 3, 3], 3, 3, 3],
            [1, [1, 2, 2], 2, 1],
            [[1, 2, 2], 2, 1],
            filters=(3, 4, 4, 5),
            res_block=True,
            deep_supervision=True,
            deep_supr_num=2,
        ),
    ),
    Case(
        "dynunet",
        {
            "kernel_size": (3, 3, 3),
            "strides": (1, 2, 2),
            "filters": (3, 4, 5),
            "dims": 2,
            "norm": "batch",
            "out_channels": 3,
        },
        (1, 4, 8),
        of="in 2d",
        reference=partial(
            DynUNet,
            2,
            1,
            3,
            (3, 3, 3),
            (1, 2, 2),
            (2, 2),
            filters=(3, 4, 5),
            norm_name="batch",
        ),
    ),
]
