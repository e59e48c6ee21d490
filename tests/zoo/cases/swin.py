"""Swin transformers, beside torchvision's."""

from functools import partial

import torchvision
from torchvision.models.swin_transformer import SwinTransformer

from tests.zoo.case import Case

NAMES = ("swin_t", "swin_s", "swin_b")
FULL = {name: partial(torchvision.models.get_model, name) for name in NAMES}

SMALL = {"embed_dim": 8, "depths": (2, 2), "num_heads": (2, 4), "window_size": 3, "stochastic_depth": 0.0,
         "num_classes": 5}  # fmt: skip

CASES = [
    Case("swin_t", SMALL, (3, 22, 17), covers=NAMES,
         reference=partial(SwinTransformer, [4, 4], 8, [2, 2], [2, 4], [3, 3], stochastic_depth_prob=0.0,
                           num_classes=5)),
]  # fmt: skip
