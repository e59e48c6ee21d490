"""The Attention U-Net, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

AttentionUnet = Later("monai.networks.nets.AttentionUnet")

FULL = {
    "attention_unet": partial(
        AttentionUnet, 3, 1, 2, (16, 32, 64, 128, 256), (2, 2, 2, 2)
    )
}

CASES = [
    Case(
        "attention_unet",
        {"channels": (4, 6, 5), "strides": (2, 3), "dims": 2, "in_channels": 2},
        (2, 12, 6),
        zero=("*.conv.bias",),
        reference=partial(AttentionUnet, 2, 2, 2, (4, 6, 5), (2, 3)),
    ),
]
