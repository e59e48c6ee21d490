"""The names of Swin transformers at timm and Microsoft, from ours, torchvision's."""

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
    if not any(name.endswith(".logit_scale") for name in state):
        return state
    return without(apart(state, _BIASES, ".qkv.bias"), r"\.k_bias$")


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
