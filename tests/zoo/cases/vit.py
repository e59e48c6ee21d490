"""Vision transformers, beside torchvision's, and timm's where these are distilled."""

from functools import partial

import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
VisionTransformerDistilled = Later("timm.models.deit.VisionTransformerDistilled")
TimmVisionTransformer = Later("timm.models.vision_transformer.VisionTransformer")
create_model = Later("timm.create_model")
VisionTransformer = Later("torchvision.models.vision_transformer.VisionTransformer")

NAMES = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14")
DEIT = ("deit_tiny_patch16_224", "deit_small_patch16_224", "deit_base_patch16_224")
DEIT_SIZES = {
    "deit_tiny_patch16_224": (3, 192),
    "deit_small_patch16_224": (6, 384),
    "deit_base_patch16_224": (12, 768),
}

DISTILLED = tuple(name.replace("_patch16", "_distilled_patch16") for name in DEIT)


class Renamed(torch.nn.Module):
    """timm's network with its parameters under the names of ours, or another library's."""

    def __init__(self, make, settings, name=DISTILLED[0], layout="timm"):
        super().__init__()
        ours = zoo.find(name).on(OUTLINE)(**settings)
        # in a list, so that its own names do not come too; what it counts stays where it is
        self.timms = [make().double()]
        (keymap,) = [keymap for keymap in ours.keymaps if keymap.name == layout]
        for name, theirs in keymap.table(ours.neutral_slots()).items():
            *path, leaf = name.split(".")
            place = self
            for part in path:
                if part not in place._modules:
                    place.add_module(part, torch.nn.Module())
                place = place._modules[part]
            kept = self.timms[0].state_dict(keep_vars=True)[theirs]
            if isinstance(kept, torch.nn.Parameter):
                place.register_parameter(leaf, kept)
            else:
                place.register_buffer(leaf, kept)

    def forward(self, x):
        return self.timms[0].train(self.training)(x)


class Packed(Renamed):
    """The same for SigLIP, whose pooling has the maps of queries apart from those of keys and
    values."""

    def __init__(self, make, settings, name):
        super().__init__(lambda: with_packed_pool(make()), settings, name)

    def forward(self, x):
        packed = self.attn_pool.attention
        width = self.attn_pool.latent.shape[-1]
        parts = {}
        for kind in ("weight", "bias"):
            whole = getattr(packed, f"in_proj_{kind}")
            parts[f"attn_pool.q.{kind}"] = whole[:width]
            parts[f"attn_pool.kv.{kind}"] = whole[width:]
        timms = self.timms[0].train(self.training)
        return torch.func.functional_call(timms, parts, (x,))


def with_packed_pool(module):
    """Give timm's pooling a layer of all its maps, which Packed hands to those that it has."""
    pool = module.attn_pool
    pool.qkv = torch.nn.Linear(pool.q.in_features, 3 * pool.q.in_features)
    return module


FULL = {name: partial(get_model, name) for name in NAMES} | {
    name: partial(VisionTransformer, 224, 16, 12, heads, width, 4 * width)
    for name, (heads, width) in DEIT_SIZES.items()
}
FULL |= {
    name: partial(Renamed, partial(create_model, name), dict(zoo.find(name).settings))
    for name in DISTILLED
}
DINOV2 = (
    *(f"vit_{size}_patch14_dinov2" for size in ("small", "base", "large")),
    *(f"vit_{size}_patch14_reg4_dinov2" for size in ("small", "base", "large")),
)
FULL |= {
    name: partial(Renamed, partial(create_model, name), {}, name) for name in DINOV2
}

SIGLIP = (
    "vit_base_patch16_siglip_224",
    "vit_large_patch16_siglip_256",
    "vit_so400m_patch14_siglip_224",
)
FULL |= {
    name: partial(Packed, partial(create_model, name), {}, name) for name in SIGLIP
}

SMALL = {
    "image_size": 15,
    "patch_size": 5,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "mlp_dim": 12,
}
TIMM_SMALL = {
    "img_size": 15,
    "patch_size": 5,
    "embed_dim": 8,
    "depth": 2,
    "num_heads": 2,
    "mlp_ratio": 1.5,
}


def reference(**settings):
    """Torchvision's network, with a head that does not start at zero, so that gradients reach the
    rest."""
    model = VisionTransformer(**settings)
    torch.nn.init.normal_(model.heads.head.weight)
    return model


DISTILLED_SMALL = SMALL | {
    "num_classes": 4,
    "distilled": True,
    "distilled_training": True,
}


def distilled():
    """timm's network, whose two heads come one by one in training."""
    model = VisionTransformerDistilled(**TIMM_SMALL, num_classes=4)
    model.set_distilled_training()
    return model


def dinov2(registers):
    """timm's network with scaled blocks, and no head."""
    return TimmVisionTransformer(
        **TIMM_SMALL,
        num_classes=0,
        init_values=1e-5,
        reg_tokens=registers,
        no_embed_class=registers > 0,
    )


def siglip():
    """timm's network without a class token, whose patches attention pools."""
    return TimmVisionTransformer(
        **TIMM_SMALL, num_classes=0, class_token=False, global_pool="map"
    )


CASES = [
    Case(
        "vit_b_16",
        {**SMALL, "num_classes": 5},
        covers=NAMES + DEIT,
        reference=partial(reference, **SMALL, num_classes=5),
    ),
    Case(
        "deit_tiny_distilled_patch16_224",
        DISTILLED_SMALL,
        covers=DISTILLED,
        reference=partial(Renamed, distilled, DISTILLED_SMALL),
    ),
    Case(
        DINOV2[0],
        SMALL,
        covers=DINOV2[:3],
        reference=partial(Renamed, partial(dinov2, 0), SMALL, DINOV2[0]),
    ),
    Case(
        DINOV2[3],
        SMALL,
        covers=DINOV2[3:],
        reference=partial(Renamed, partial(dinov2, 4), SMALL, DINOV2[3]),
    ),
    Case(
        SIGLIP[0],
        SMALL,
        covers=SIGLIP,
        reference=partial(Packed, siglip, SMALL, SIGLIP[0]),
    ),
]
