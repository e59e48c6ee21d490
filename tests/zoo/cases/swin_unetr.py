"""Swin UNETR, beside MONAI's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

SwinUNETR = Later("monai.networks.nets.SwinUNETR")


def full():
    """MONAI's own, which looks at numbers while it is built and so cannot be built on the meta
    device."""
    with torch.device("cpu"):
        return SwinUNETR(1, 14, feature_size=48)


FULL = {"swin_unetr": full}

CASES = [
    Case(
        "swin_unetr",
        {
            "in_channels": 2,
            "out_channels": 2,
            "feature_size": 12,
            "depths": (2, 1, 1, 1),
            "num_heads": (2, 3, 2, 2),
            "window_size": (3, 5),
            "mlp_ratio": 0.5,
            "dims": 2,
        },
        (2, 32, 64),
        reference=partial(
            SwinUNETR,
            2,
            2,
            depths=(2, 1, 1, 1),
            num_heads=(2, 3, 2, 2),
            window_size=(3, 5),
            mlp_ratio=0.5,
            feature_size=12,
            spatial_dims=2,
        ),
    ),
]
