"""The image encoder of Segment Anything, beside timm's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

VisionTransformerSAM = Later("timm.models.vision_transformer_sam.VisionTransformerSAM")
SMALL = {
    "patch_size": 3,
    "embed_dim": 6,
    "depth": 2,
    "num_heads": 2,
    "mlp_ratio": 1.5,
    "window_size": 2,
    "global_attn_indexes": (1,),
    "neck_chans": 5,
}


def reference(image_size=1024, in_channels=3, **settings):
    """Timm's network without a classifier, with the paper's epsilon; its tables of positions do not
    start at zero, so that gradients reach what follows."""
    network = VisionTransformerSAM(
        img_size=image_size,
        in_chans=in_channels,
        num_classes=0,
        global_pool="",
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
        use_rel_pos=True,
        **settings,
    )
    for name, value in network.named_parameters():
        if "pos" in name and not value.is_meta:
            torch.nn.init.normal_(value)
    return network


def _full(width, depth, heads, across):
    sizes = {"embed_dim": width, "depth": depth, "num_heads": heads}
    return partial(reference, global_attn_indexes=across, **sizes)


FULL = {
    "samvit_base_patch16": _full(768, 12, 12, (2, 5, 8, 11)),
    "samvit_large_patch16": _full(1024, 24, 16, (5, 11, 17, 23)),
    "samvit_huge_patch16": _full(1280, 32, 16, (7, 15, 23, 31)),
}

CASES = [
    Case(
        "samvit_base_patch16",
        SMALL | {"image_size": 9, "in_channels": 2},
        covers=tuple(FULL),
        reference=partial(reference, 9, 2, **SMALL),
    ),
]
