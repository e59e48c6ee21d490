"""MLP-Mixer and ResMLP, beside timm's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

create_model = Later("timm.create_model")
Affine = Later("timm.models.mlp_mixer.Affine")
MlpMixer = Later("timm.models.mlp_mixer.MlpMixer")
ResBlock = Later("timm.models.mlp_mixer.ResBlock")

MIXERS = tuple(
    f"mixer_{size}_224" for size in ("s32", "s16", "b32", "b16", "l32", "l16")
)
RESIDUAL = ("resmlp_12_224", "resmlp_24_224", "resmlp_36_224", "resmlp_big_24_224")
FULL = {name: partial(create_model, name) for name in MIXERS + RESIDUAL}

SMALL = {
    "image_size": 15,
    "patch_size": 5,
    "num_blocks": 1,
    "embed_dim": 8,
    "mlp_ratio": (0.5, 2.0),
    "layer_scale": 0.5,
    "num_classes": 5,
}


def reference(**settings):
    """timm's network, with a head that does not start at zero, so that gradients reach the rest."""
    model = MlpMixer(
        num_classes=5, img_size=15, patch_size=5, num_blocks=1, embed_dim=8, **settings
    )
    torch.nn.init.normal_(model.head.weight)
    return model


CASES = [
    Case(
        "mixer_s32_224",
        SMALL,
        covers=MIXERS,
        reference=partial(reference, mlp_ratio=(0.5, 2.0)),
        zero=("*.mlp_tokens.fc2.bias",),
    ),
    Case(
        "resmlp_12_224",
        SMALL,
        covers=RESIDUAL,
        reference=partial(
            reference,
            mlp_ratio=2.0,
            norm_layer=Affine,
            block_layer=partial(ResBlock, init_values=0.5),
        ),
    ),
]
