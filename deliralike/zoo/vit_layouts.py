"""The names of vision transformers at timm and Hugging Face, from ours, torchvision's."""

from functools import partial

import numpy as np

from deliralike.zoo.keymaps import (
    KeyMap,
    State,
    apart,
    by_patterns,
    joined,
    without,
)
from deliralike.zoo.tables import EDGES, SMOOTH

_LAYER = r"encoder\.layers\.encoder_layer_(\d+)"

_POOL = tuple(f"attn_pool.{part}." for part in ("q", "k", "v"))  # of SigLIP
_POOL_PACKED = "attn_pool.qkv."
_POOL_PAIR = "attn_pool.kv."  # timm has one array of keys and values


def _with_pair(state: State) -> State:
    """Split the maps of the pooling into those of queries and those of keys and values."""
    return joined(apart(state, _POOL, _POOL_PACKED), _POOL[1:], _POOL_PAIR)


TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"class_token": "cls_token",
            r"distillation_token": "dist_token",
            r"register_token": "reg_token",
            r"conv_proj\.(\w+)": r"patch_embed.proj.\1",
            r"encoder\.pos_embedding": "pos_embed",
            rf"{_LAYER}\.ln_(\d)\.(\w+)": r"blocks.\1.norm\2.\3",
            rf"{_LAYER}\.ls_(\d)\.gamma": r"blocks.\1.ls\2.gamma",
            rf"{_LAYER}\.self_attention\.in_proj_(\w+)": r"blocks.\1.attn.qkv.\2",
            rf"{_LAYER}\.self_attention\.out_proj\.(\w+)": r"blocks.\1.attn.proj.\2",
            rf"{_LAYER}\.mlp\.0\.(\w+)": r"blocks.\1.mlp.fc1.\2",
            rf"{_LAYER}\.mlp\.3\.(\w+)": r"blocks.\1.mlp.fc2.\2",
            r"encoder\.ln\.(\w+)": r"norm.\1",
            r"heads\.(head|head_dist)\.(\w+)": r"\1.\2",
            r"attn_pool\.attention\.in_proj_(\w+)": rf"{_POOL_PACKED}\1",
            r"attn_pool\.attention\.out_proj\.(\w+)": r"attn_pool.proj.\1",
            r"(attn_pool\..*)": r"\1",
        }
    ),
    mend=partial(joined, parts=(_POOL[0], _POOL_PAIR), packed=_POOL_PACKED),
    complete=_with_pair,
    resampling=SMOOTH,
)


_MASK = "embeddings.mask_token"  # of DINOv2's training alone
_HF = r"encoder.layer.\1"
_HF_PACKED = (
    ".attention.attention.in_proj."  # Hugging Face has three arrays in its place
)
_HF_PARTS = tuple(f".attention.attention.{part}." for part in ("query", "key", "value"))


def _packed(state: State) -> State:
    """Join the maps of queries, keys and values.

    The pooler of the bare model and the token of DINOv2 that hides patches are left out.
    """
    named = {name.removeprefix("deit."): value for name, value in state.items()}
    arrays = without(named, rf"^(pooler\.|{_MASK})")
    return joined(arrays, _HF_PARTS, _HF_PACKED)


def _unpacked(state: State, model: str) -> State:
    """Split the maps of queries, keys and values, and name all but the heads after the model."""
    split = apart(state, _HF_PARTS, _HF_PACKED)
    return {
        name if "classifier." in name else f"{model}.{name}": split[name]
        for name in split
    }


_HF_SHARED = {
    r"class_token": "embeddings.cls_token",
    r"conv_proj\.(\w+)": r"embeddings.patch_embeddings.projection.\1",
    r"encoder\.pos_embedding": "embeddings.position_embeddings",
    rf"{_LAYER}\.self_attention\.in_proj_(\w+)": rf"{_HF}{_HF_PACKED}\2",
    rf"{_LAYER}\.self_attention\.out_proj\.(\w+)": rf"{_HF}.attention.output.dense.\2",
    r"encoder\.ln\.(\w+)": r"layernorm.\1",
}
_HF_NAMES = _HF_SHARED | {
    rf"{_LAYER}\.ln_1\.(\w+)": rf"{_HF}.layernorm_before.\2",
    rf"{_LAYER}\.ln_2\.(\w+)": rf"{_HF}.layernorm_after.\2",
    rf"{_LAYER}\.mlp\.0\.(\w+)": rf"{_HF}.intermediate.dense.\2",
    rf"{_LAYER}\.mlp\.3\.(\w+)": rf"{_HF}.output.dense.\2",
}
_HF_HEAD = {r"heads\.head\.(\w+)": r"classifier.\1"}
_HF_DISTILLED = {
    r"distillation_token": "embeddings.distillation_token",
    r"heads\.head\.(\w+)": r"cls_classifier.\1",
    r"heads\.head_dist\.(\w+)": r"distillation_classifier.\1",
}

TRANSFORMERS = KeyMap(
    "transformers",
    by_patterns(_HF_NAMES | _HF_HEAD),
    mend=_packed,
    complete=partial(_unpacked, model="vit"),
    resampling=EDGES,
)
TRANSFORMERS_DISTILLED = KeyMap(
    "transformers",
    by_patterns(_HF_NAMES | _HF_DISTILLED),
    mend=_packed,
    complete=partial(_unpacked, model="deit"),
    resampling=EDGES,
)

_HF_CLASS = "embeddings.cls_token"
_HF_TABLE = "embeddings.position_embeddings"


def _with_mask(state: State) -> State:
    """Split the maps, and add the token that hides patches as it starts."""
    split = apart(state, _HF_PARTS, _HF_PACKED)
    return split | {_MASK: np.zeros_like(split[_HF_CLASS][0])}


def _class_positioned(state: State) -> State:
    """Add the class token's position to the token, as timm does where there are registers."""
    arrays = dict(_packed(state))
    if _HF_TABLE in arrays:
        table = arrays[_HF_TABLE]
        arrays[_HF_CLASS] = arrays[_HF_CLASS] + table[:, :1]
        arrays[_HF_TABLE] = table[:, 1:]
    return arrays


def _class_unpositioned(state: State) -> State:
    """Give the class token a position of zero, since the token holds its own."""
    arrays = dict(_with_mask(state))
    zeros = np.zeros_like(arrays[_HF_CLASS])
    arrays[_HF_TABLE] = np.concatenate([zeros, arrays[_HF_TABLE]], axis=1)
    return arrays


_HF_DINOV2 = _HF_SHARED | {
    r"register_token": "embeddings.register_tokens",
    rf"{_LAYER}\.ln_(\d)\.(\w+)": rf"{_HF}.norm\2.\3",
    rf"{_LAYER}\.ls_(\d)\.gamma": rf"{_HF}.layer_scale\2.lambda1",
    rf"{_LAYER}\.mlp\.0\.(\w+)": rf"{_HF}.mlp.fc1.\2",
    rf"{_LAYER}\.mlp\.3\.(\w+)": rf"{_HF}.mlp.fc2.\2",
}
TRANSFORMERS_DINOV2 = KeyMap(
    "transformers",
    by_patterns(_HF_DINOV2),
    mend=_packed,
    complete=_with_mask,
    resampling=EDGES,
)
TRANSFORMERS_REGISTERS = KeyMap(
    "transformers",
    by_patterns(_HF_DINOV2),
    mend=_class_positioned,
    complete=_class_unpositioned,
    resampling=SMOOTH,
)

_SIGLIP = r"encoder.layers.\1"
_SIGLIP_PACKED = ".self_attn.in_proj."
_SIGLIP_PARTS = tuple(f".self_attn.{part}_proj." for part in ("q", "k", "v"))


def _of_pictures(state: State) -> State:
    """Join the maps of queries, keys and values, and leave out the transformer over text."""
    of_pictures = without(state, r"^(text_model\.|logit_)")
    return joined(of_pictures, _SIGLIP_PARTS, _SIGLIP_PACKED)


TRANSFORMERS_SIGLIP = KeyMap(
    "transformers",
    by_patterns(
        {
            r"conv_proj\.(\w+)": r"embeddings.patch_embedding.\1",
            r"encoder\.pos_embedding": "embeddings.position_embedding.weight",
            rf"{_LAYER}\.ln_(\d)\.(\w+)": rf"{_SIGLIP}.layer_norm\2.\3",
            rf"{_LAYER}\.self_attention\.in_proj_(\w+)": rf"{_SIGLIP}{_SIGLIP_PACKED}\2",
            rf"{_LAYER}\.self_attention\.(out_proj.*)": rf"{_SIGLIP}.self_attn.\2",
            rf"{_LAYER}\.mlp\.0\.(\w+)": rf"{_SIGLIP}.mlp.fc1.\2",
            rf"{_LAYER}\.mlp\.3\.(\w+)": rf"{_SIGLIP}.mlp.fc2.\2",
            r"encoder\.ln\.(\w+)": r"post_layernorm.\1",
            r"attn_pool\.latent": "head.probe",
            r"attn_pool\.norm\.(\w+)": r"head.layernorm.\1",
            r"attn_pool\.(.*)": r"head.\1",
        }
    ),
    shapes={"encoder.pos_embedding": (lambda rows: rows[None], np.squeeze)},
    mend=_of_pictures,
    complete=partial(apart, parts=_SIGLIP_PARTS, packed=_SIGLIP_PACKED),
    resampling=EDGES,
)

_DINOV3_PARTS = tuple(f".attention.{part}_proj.weight" for part in ("q", "k", "v"))
_DINOV3_PACKED = ".attention.qkv.weight"


def _without_mask(state: State) -> State:
    """Join the maps of queries, keys and values, and leave out the token that hides patches."""
    return joined(without(state, f"^{_MASK}$"), _DINOV3_PARTS, _DINOV3_PACKED)


def _with_row_of_mask(state: State) -> State:
    split = apart(state, _DINOV3_PARTS, _DINOV3_PACKED)
    return split | {_MASK: np.zeros_like(split[_HF_CLASS])}


# in the names of the files; within Hugging Face's model they begin with "model."
TRANSFORMERS_DINOV3 = KeyMap(
    "transformers",
    by_patterns(
        {
            r"cls_token": _HF_CLASS,
            r"reg_token": "embeddings.register_tokens",
            r"patch_embed\.proj\.(\w+)": r"embeddings.patch_embeddings.\1",
            r"blocks\.(\d+)\.gamma_(\d)": r"layer.\1.layer_scale\2.lambda1",
            r"blocks\.(\d+)\.attn\.qkv\.weight": rf"layer.\1{_DINOV3_PACKED}",
            r"blocks\.(\d+)\.attn\.([qv])_bias": r"layer.\1.attention.\2_proj.bias",
            r"blocks\.(\d+)\.attn\.proj\.(\w+)": r"layer.\1.attention.o_proj.\2",
            r"blocks\.(\d+)\.mlp\.fc1\.(\w+)": r"layer.\1.mlp.up_proj.\2",
            r"blocks\.(\d+)\.mlp\.fc2\.(\w+)": r"layer.\1.mlp.down_proj.\2",
            r"blocks\.(\d+\.norm.*)": r"layer.\1",
            r"(norm\.\w+)": r"\1",
        }
    ),
    mend=_without_mask,
    complete=_with_row_of_mask,
)
