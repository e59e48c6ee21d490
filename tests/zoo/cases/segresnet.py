"""SegResNet, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

SegResNet = Later("monai.networks.nets.SegResNet")

FULL = {"segresnet": SegResNet}

CASES = [
    Case(
        "segresnet",
        {
            "in_channels": 2,
            "init_filters": 4,
            "blocks_down": (1, 2, 1),
            "blocks_up": (1, 2),
            "num_groups": 2,
        },
        (2, 4, 8, 4),
        reference=partial(
            SegResNet,
            3,
            4,
            2,
            2,
            blocks_down=(1, 2, 1),
            blocks_up=(1, 2),
            norm=("group", {"num_groups": 2}),
        ),
    ),
]
