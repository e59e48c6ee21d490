"""Swin transformers, beside torchvision's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
SwinTransformer = Later("torchvision.models.swin_transformer.SwinTransformer")

SwinTransformerBlockV2 = Later(
    "torchvision.models.swin_transformer.SwinTransformerBlockV2"
)
PatchMergingV2 = Later("torchvision.models.swin_transformer.PatchMergingV2")

NAMES = ("swin_t", "swin_s", "swin_b")
SECOND = ("swin_v2_t", "swin_v2_s", "swin_v2_b")
FULL = {name: partial(get_model, name) for name in (*NAMES, *SECOND)}

SMALL = {
    "embed_dim": 8,
    "depths": (2, 2),
    "num_heads": (2, 4),
    "window_size": 3,
    "stochastic_depth": 0.0,
    "num_classes": 5,
}

REFERENCE = partial(
    SwinTransformer,
    [4, 4],
    8,
    [2, 2],
    [2, 4],
    [3, 3],
    stochastic_depth_prob=0.0,
    num_classes=5,
)


def second():
    """Version 2, with the scale of one head above its bound."""
    model = REFERENCE(block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2)
    torch.nn.init.constant_(model.features[1][0].attn.logit_scale[0], 5.0)
    return model


CASES = [
    Case("swin_t", SMALL, (3, 22, 17), covers=NAMES, reference=REFERENCE),
    Case("swin_v2_t", SMALL, (3, 22, 17), covers=SECOND, reference=second),
]
