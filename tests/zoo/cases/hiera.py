"""Hiera, beside timm's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

create_model = Later("timm.create_model")
Hiera = Later("timm.models.hiera.Hiera")

SIZES = ("tiny", "small", "base", "base_plus", "large")
NAMES = tuple(f"hiera_{size}_224" for size in SIZES)
FULL = {name: partial(create_model, name) for name in NAMES}

SMALL = {"embed_dim": 6, "num_heads": 2, "num_classes": 5}
LAYERS = (1, 1, 2, 1)


def reference():
    """timm's network, whose classifier does not start at zero, so that gradients reach the rest."""
    module = Hiera((64, 64), 2, stages=LAYERS, **SMALL)
    torch.nn.init.normal_(module.head.fc.weight)
    return module


CASES = [
    Case(
        NAMES[0],
        SMALL | {"image_size": 64, "in_channels": 2, "layers": LAYERS},
        covers=NAMES,
        reference=reference,
    ),
]
