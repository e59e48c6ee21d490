"""Swin UNETR, beside MONAI's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

SwinUNETR = Later("monai.networks.nets.SwinUNETR")


def full(use_v2):
    """MONAI's own, which looks at numbers while it is built and so cannot be built on the meta
    device."""
    with torch.device("cpu"):
        return SwinUNETR(1, 14, feature_size=48, use_v2=use_v2)


FULL = {"swin_unetr": partial(full, False), "swin_unetr_v2": partial(full, True)}

SMALL = {
    "in_channels": 2,
    "out_channels": 2,
    "feature_size": 12,
    "depths": (2, 1, 1, 1),
    "num_heads": (2, 3, 2, 2),
    "window_size": (3, 5),
    "mlp_ratio": 0.5,
}


def case(name, use_v2):
    """Two dimensions, where windows are shifted along one axis."""
    return Case(
        name,
        {**SMALL, "dims": 2},
        (2, 32, 64),
        reference=partial(SwinUNETR, **SMALL, spatial_dims=2, use_v2=use_v2),
    )


CASES = [case("swin_unetr", False), case("swin_unetr_v2", True)]
