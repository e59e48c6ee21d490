"""DINOv3, beside timm's."""

from functools import partial

import torch

from tests.references import Later
from tests.zoo.case import Case

Eva = Later("timm.models.eva.Eva")
create_model = Later("timm.create_model")

NAMES = tuple(f"vit_{size}_patch16_dinov3" for size in ("small", "base", "large"))
FULL = {name: partial(create_model, name) for name in NAMES}

# Numbers of patches and a width of heads for which the reference's angles, which it computes in
# single precision, are exact.
SMALL = {"patch_size": 5, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}


def reference(qkv_bias=False, global_pool="avg", num_classes=0):
    """timm's network with the settings of its DINOv3."""
    return Eva(
        patch_size=5,
        embed_dim=16,
        depth=2,
        num_heads=2,
        num_classes=num_classes,
        qkv_bias=qkv_bias,
        global_pool=global_pool,
        dynamic_img_size=True,
        init_values=1e-5,
        rope_type="dinov3",
        rope_temperature=100,
        rope_rotate_half=True,
        use_rot_pos_emb=True,
        use_abs_pos_emb=False,
        num_reg_tokens=4,
        use_fc_norm=False,
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-5),
    )


OTHER = {"qkv_bias": True, "global_pool": "token", "num_classes": 5}
CASES = [
    Case(NAMES[0], SMALL, (3, 10, 20), covers=NAMES, reference=reference),
    Case(
        NAMES[0],
        SMALL | OTHER,
        (3, 10, 20),
        of="with a head",
        reference=partial(reference, **OTHER),
    ),
]
