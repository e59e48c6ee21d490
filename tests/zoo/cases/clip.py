"""CLIP, beside Hugging Face's."""

from functools import partial

from deliralike.zoo import Input
from tests.references import Later
from tests.zoo.case import Case

transformers = Later("transformers")

TOWERS = {
    "hidden_size": ("text_hidden_size", "vision_hidden_size"),
    "num_hidden_layers": ("text_num_hidden_layers", "vision_num_hidden_layers"),
    "num_attention_heads": ("text_num_attention_heads", "vision_num_attention_heads"),
    "intermediate_size": ("text_intermediate_size", "vision_intermediate_size"),
}
SMALL = {
    "projection_dim": 7,
    "vocab_size": 11,
    "max_position_embeddings": 8,
    "text_hidden_size": 6,
    "text_num_hidden_layers": 2,
    "text_num_attention_heads": 2,
    "text_intermediate_size": 9,
    "image_size": 10,
    "patch_size": 5,
    "vision_hidden_size": 8,
    "vision_num_hidden_layers": 1,
    "vision_num_attention_heads": 4,
    "vision_intermediate_size": 7,
    "eos_token_id": 2,
}


def reference(projection_dim=512, in_channels=3, hidden_act="quick_gelu", **settings):
    """Hugging Face's network with our settings."""
    text = {
        "projection_dim": projection_dim,
        "hidden_act": hidden_act,
    }
    vision = text | {"num_channels": in_channels}
    for theirs, ours in TOWERS.items():
        for tower, name in zip((text, vision), ours, strict=True):
            if name in settings:
                tower[theirs] = settings[name]
    for tower, names in (
        (text, ("vocab_size", "max_position_embeddings", "eos_token_id")),
        (vision, ("image_size", "patch_size")),
    ):
        tower |= {name: settings[name] for name in names if name in settings}
    config = transformers.CLIPConfig(
        text_config=text, vision_config=vision, projection_dim=projection_dim
    )
    config._attn_implementation = "sdpa"
    return transformers.CLIPModel(config)


def outputs(model, input_ids, pixel_values, attention_mask=None):
    """What our network gives, from theirs."""
    came = model(input_ids, pixel_values, attention_mask)
    names = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
    return {name: came[name] for name in names}


LARGE = {
    "projection_dim": 768,
    "text_hidden_size": 768,
    "text_num_attention_heads": 12,
    "text_intermediate_size": 3072,
    "patch_size": 14,
    "vision_hidden_size": 1024,
    "vision_num_hidden_layers": 24,
    "vision_num_attention_heads": 16,
    "vision_intermediate_size": 4096,
}
FULL = {
    "clip_vit_b_32": reference,
    "clip_vit_b_16": partial(reference, patch_size=16),
    "clip_vit_l_14": partial(reference, **LARGE),
}

MASKED = {
    **SMALL,
    "hidden_act": "gelu",
    "in_channels": 2,
    "eos_token_id": 5,
}

CASES = [
    Case(
        "clip_vit_b_32",
        SMALL,
        [Input((7,), below=11), (3, 10, 10)],
        covers=tuple(FULL),
        reference=partial(reference, **SMALL),
        call=outputs,
        zero=("*.k_proj.bias",),
    ),
]
