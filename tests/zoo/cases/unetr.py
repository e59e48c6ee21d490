"""UNETR, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

UNETR = Later("monai.networks.nets.UNETR")

FULL = {"unetr": partial(UNETR, 1, 14, 96)}

CASES = [
    Case(
        "unetr",
        {
            "in_channels": 2,
            "out_channels": 2,
            "img_size": (32, 16),
            "feature_size": 2,
            "hidden_size": 4,
            "mlp_dim": 5,
            "num_heads": 2,
            "dims": 2,
        },
        (2, 32, 16),
        zero=("*norm_cross_attn*",),
        reference=partial(UNETR, 2, 2, (32, 16), 2, 4, 5, 2, spatial_dims=2),
    ),
]
