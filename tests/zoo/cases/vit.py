"""Vision transformers, beside torchvision's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
VisionTransformer = Later("torchvision.models.vision_transformer.VisionTransformer")

NAMES = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")
DEIT = ("deit_tiny_patch16_224", "deit_small_patch16_224", "deit_base_patch16_224")
DEIT_SIZES = {
    "deit_tiny_patch16_224": (3, 192),
    "deit_small_patch16_224": (6, 384),
    "deit_base_patch16_224": (12, 768),
}

FULL = {name: partial(get_model, name) for name in NAMES} | {
    name: partial(VisionTransformer, 224, 16, 12, heads, width, 4 * width)
    for name, (heads, width) in DEIT_SIZES.items()
}

SMALL = {
    "image_size": 15,
    "patch_size": 5,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "mlp_dim": 12,
}


def reference(**settings):
    """Torchvision's network, with a head that does not start at zero, so that gradients reach the
    rest."""
    model = VisionTransformer(**settings)
    torch.nn.init.normal_(model.heads.head.weight)
    return model


CASES = [
    Case(
        "vit_b_16",
        {**SMALL, "num_classes": 5},
        covers=NAMES + DEIT,
        reference=partial(reference, **SMALL, num_classes=5),
    ),
    Case(
        "vit_b_16",
        {**SMALL, "num_layers": 1, "num_classes": 4, "representation_size": 6},
        of="with a representation",
        reference=partial(
            reference, **SMALL | {"num_layers": 1}, num_classes=4, representation_size=6
        ),
    ),
]
