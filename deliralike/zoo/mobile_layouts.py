"""The names that timm and efficientnet_pytorch give the layers of inverted residual blocks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deliralike.zoo.keymaps import KeyMap, by_layers


@dataclass(frozen=True)
class Words:
    """What a library calls the layers of a block, in order.

    Attributes:
        rows: By the number of layers apart from the gate's: their names.
        gate: The names of the gate's two layers.
    """

    rows: Mapping[int, Sequence[str]]
    gate: tuple[str, str]


_TIMM_GATE = ("se.conv_reduce", "se.conv_expand")
_TIMM_INVERTED = ("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3")
TIMM = Words(
    {2: ("conv", "bn1"), 4: ("conv_dw", "bn1", "conv_pw", "bn2"), 6: _TIMM_INVERTED},
    _TIMM_GATE,
)
TIMM_FUSED = Words(
    {2: ("conv", "bn1"), 4: ("conv_exp", "bn1", "conv_pwl", "bn2")}, _TIMM_GATE
)
EFFICIENTNET_PYTORCH = Words(
    {
        4: ("_depthwise_conv", "_bn1", "_project_conv", "_bn2"),
        6: ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2"),
    },
    ("_se_reduce", "_se_expand"),
)


def by_blocks(
    places: Iterable[tuple[str, str, Words]], ends: Mapping[str, str]
) -> Callable[[Sequence[str]], dict[str, str]]:
    """Make a renaming of a network made of blocks.

    Args:
        places: For each block: our path, theirs, and the words for its layers.
        ends: Our layers outside of the blocks, and theirs.

    Example:
        >>> rename = by_blocks([("features.1", "blocks.0.0", TIMM)], {"features.0.0": "conv_stem"})
        >>> rename(["features.0.0.weight", "features.1.0.weight", "features.1.1.bias"])
        {'features.0.0.weight': 'conv_stem.weight', 'features.1.0.weight': 'blocks.0.0.conv.weight',
        'features.1.1.bias': 'blocks.0.0.bn1.bias'}
    """
    places = tuple(places)

    def rename(names: Sequence[str]) -> dict[str, str]:
        layers = _layers_by_block(names, [path for path, _, _ in places])
        table = dict(ends)
        for path, other_path, words in places:
            for layer, word in _in_words(layers[path], words):
                table[layer] = f"{other_path}.{word}"
        return by_layers(table)(names)

    return rename


def timm_ends(last: int) -> dict[str, str]:
    """Return timm's names of the layers before and after the blocks of a row ``features``.

    Args:
        last: The number of the last convolution.
    """
    return {
        "features.0.0": "conv_stem",
        "features.0.1": "bn1",
        f"features.{last}.0": "conv_head",
        f"features.{last}.1": "bn2",
        "classifier.1": "classifier",
    }


def _layers_by_block(
    names: Iterable[str], blocks: Iterable[str]
) -> dict[str, list[str]]:
    """Return the paths of the layers in each block, in order."""
    layers: dict[str, list[str]] = {block: [] for block in blocks}
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in names):
        above = layer
        while above and above not in layers:
            above = above.rpartition(".")[0]
        if above:
            layers[above].append(layer)
    return layers


def _in_words(layers: Iterable[str], words: Words) -> list[tuple[str, str]]:
    gate = []
    others = []
    for layer in layers:
        if layer.endswith((".fc1", ".fc2")):
            gate.append(layer)
        else:
            others.append(layer)
    pairs = list(zip(gate, words.gate, strict=False))
    pairs += zip(others, words.rows.get(len(others), ()), strict=False)
    return pairs


def timm(
    places: Iterable[tuple[str, str, Words]],
    ends: Mapping[str, str],
    eps: float,
    same_padding: bool | int,
) -> KeyMap:
    """Make the layout of a network of timm's that is built like its EfficientNet.

    It notes settings under which the outputs differ from timm's.

    Args:
        places, ends: See `by_blocks`.
        eps, same_padding: The network's.
    """
    as_timm = eps == 1e-5 and not same_padding
    as_tensorflow = eps == 1e-3 and same_padding is True
    notes: tuple[str, ...] = ()
    if not as_timm and not as_tensorflow:
        notes = (
            "timm normalises with eps=1e-5, in its 'tf_' networks with eps=1e-3 and pads with "
            f"same_padding=True; this network has eps={eps:g} and same_padding={same_padding}, so "
            "its outputs are others: build it with timm's",
        )
    return KeyMap("timm", by_blocks(places, ends), notes=notes)
