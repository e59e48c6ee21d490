"""Swin transformers, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
SwinTransformer = Later("torchvision.models.swin_transformer.SwinTransformer")

NAMES = ("swin_t", "swin_s", "swin_b")
FULL = {name: partial(get_model, name) for name in NAMES}

SMALL = {
    "embed_dim": 8,
    "depths": (2, 2),
    "num_heads": (2, 4),
    "window_size": 3,
    "stochastic_depth": 0.0,
    "num_classes": 5,
}

CASES = [
    Case(
        "swin_t",
        SMALL,
        (3, 22, 17),
        covers=NAMES,
        reference=partial(
            SwinTransformer,
            [4, 4],
            8,
            [2, 2],
            [2, 4],
            [3, 3],
            stochastic_depth_prob=0.0,
            num_classes=5,
        ),
    ),
]
