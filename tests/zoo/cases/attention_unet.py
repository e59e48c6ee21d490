"""The Attention U-Net, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

AttentionUnet = Later("monai.networks.nets.AttentionUnet")

FULL = {"attention_unet": partial(AttentionUnet, 3, 1, 2, (16, 32, 64, 128, 256), (2, 2, 2, 2))}

CASES = [
    Case(
        "attention_unet",
        {"channels": (4, 6, 5), "strides": (2, 3), "dims": 2, "in_channels": 2},
        (2, 12, 6),
        zero=("*.conv.bias",),
        reference=partial(AttentionUnet, 2, 2, 2, (4, 6, 5), (2, 3)),
    ),
    Case(
        "attention_unet",
        {"channels": (3, 4), "strides": (2,), "dims": 1},
        (1, 8),
        of="in 1d",
        zero=("*.conv.bias",),
        reference=partial(AttentionUnet, 1, 1, 2, (3, 4), (2,)),
    ),
    Case(
        "attention_unet",
        {"channels": (3, 4), "strides": ((1, 2, 2),), "dims": 3},
        (1, 3, 4, 8),
        of="in 3d",
        zero=("*.conv.bias",),
        reference=partial(AttentionUnet, 3, 1, 2, (3, 4), ((1, 2, 2),)),
    ),
]
