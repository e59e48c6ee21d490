"""The names of Swin transformers at timm, Microsoft and Hugging Face, from ours, torchvision's."""

import re

from deliralike.zoo.keymaps import KeyMap, State, apart, by_patterns, joined, without

# What follows from the windows: timm's files lack it, others may have it.
_TABLES = r"attn\.relative_(?:position_index|coords_table)"
_BIASES = (".q_bias", ".k_bias", ".v_bias")  # of which version 2 has no second one
_COMPUTED = "(attn_mask|relative_position_index|relative_coords_table)$"


def _without_structure(state: State) -> State:
    """Leave out masks and indices, which are computed, and move each downsampling to its stage.

    Microsoft's files, and timm's before 0.9, have it at the end of the stage before, and a head
    without ``fc``. Version 2 has the biases of queries and values apart, and none of keys.
    """
    old = any(name.startswith("layers.0.downsample.") for name in state)
    arrays = without(state, _COMPUTED)
    if old:
        arrays = {_newer(name): value for name, value in arrays.items()}
    return joined(arrays, _BIASES, ".qkv.bias")


def _biases_apart(state: State) -> State:
    """Split the biases of version 2, whose attention has a ``logit_scale``."""
    if not _is_second(state):
        return state
    return without(apart(state, _BIASES, ".qkv.bias"), r"\.k_bias$")


def _is_second(state: State) -> bool:
    return any(name.endswith(".logit_scale") for name in state)


def _newer(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "layers" and parts[2] == "downsample":
        parts[1] = str(int(parts[1]) + 1)
    if parts[0] == "head" and "fc" not in parts:
        parts.insert(1, "fc")
    return ".".join(parts)


# our features alternate: the patches, a stage, a merging, a stage …; timm's stages begin with their
# merging
TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"features\.0\.0\.(\w+)": r"patch_embed.proj.\1",
            r"features\.0\.2\.(\w+)": r"patch_embed.norm.\1",
            r"features\.(\d+)\.(\d+)\.mlp\.(0|3)\.(\w+)": lambda m: (
                f"layers.{int(m[1]) // 2}.blocks.{m[2]}.mlp.fc{1 if m[3] == '0' else 2}.{m[4]}"
            ),
            rf"features\.(\d+)\.(\d+)\.((?!{_TABLES}).+)": lambda m: (
                f"layers.{int(m[1]) // 2}.blocks.{m[2]}.{m[3]}"
            ),
            r"features\.(\d+)\.((?:reduction|norm)\.\w+)": lambda m: (
                f"layers.{int(m[1]) // 2}.downsample.{m[2]}"
            ),
            r"(norm\.\w+)": r"\1",
            r"head\.(\w+)": r"head.fc.\1",
        }
    ),
    mend=_without_structure,
    complete=_biases_apart,
)


_PARTS = (".self.query.", ".self.key.", ".self.value.")
_PACKED = ".self.qkv."  # Hugging Face has three arrays in its place, or two biases
_LAYERS = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "mlp.0": "intermediate.dense",
    "mlp.3": "output.dense",
    "attn.qkv": "attention.self.qkv",
    "attn.proj": "attention.output.dense",
    "attn.cpb_mlp.0": "attention.self.continuous_position_bias_mlp.0",
    "attn.cpb_mlp.2": "attention.self.continuous_position_bias_mlp.2",
}


def _packed(state: State) -> State:
    """Join the maps of queries, keys and values; keys of version 2 have no bias, which is zero."""
    arrays = {}
    for name, value in without(state, _COMPUTED).items():
        arrays[name.removeprefix("swin.").removeprefix("swinv2.")] = value
    return joined(arrays, _PARTS, _PACKED)


def _unpacked(state: State) -> State:
    """Split the maps of queries, keys and values, and name all but the head after the model."""
    is_second = _is_second(state)
    model = "swinv2" if is_second else "swin"
    split = apart(state, _PARTS, _PACKED)
    named = {
        name if name.startswith("classifier.") else f"{model}.{name}": split[name]
        for name in split
    }
    return without(named, r"\.key\.bias$") if is_second else named


def _in_block(match: re.Match[str]) -> str:
    path = f"encoder.layers.{int(match[1]) // 2}.blocks.{match[2]}"
    layer, _, array = match[3].rpartition(".")
    if layer == "attn":
        return f"{path}.attention.self.{array}"
    return f"{path}.{_LAYERS[layer]}.{array}"


# Hugging Face's stages end with their merging
TRANSFORMERS = KeyMap(
    "transformers",
    by_patterns(
        {
            r"features\.0\.0\.(\w+)": r"embeddings.patch_embeddings.projection.\1",
            r"features\.0\.2\.(\w+)": r"embeddings.norm.\1",
            rf"features\.(\d+)\.(\d+)\.((?!{_TABLES}).+)": _in_block,
            r"features\.(\d+)\.((?:reduction|norm)\.\w+)": lambda m: (
                f"encoder.layers.{int(m[1]) // 2 - 1}.downsample.{m[2]}"
            ),
            r"norm\.(\w+)": r"layernorm.\1",
            r"head\.(\w+)": r"classifier.\1",
        }
    ),
    mend=_packed,
    complete=_unpacked,
)
