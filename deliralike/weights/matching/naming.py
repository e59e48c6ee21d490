"""How alike two names of layers, or of their classes, are: words, synonyms, numbers in a series.

``enc1`` of ``enc1, enc2`` is the first of its series, as is ``encoder_0`` of ``encoder_0,
encoder_1``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache

from deliralike.weights import chainer_names, trees
from deliralike.weights.matching.parts import last

Numbers = tuple[int, ...]

_ROLES = chainer_names.LEAVES | trees.LEAVES
_ROLES |= {"w": "weight", "weights": "weight", "biases": "bias"}
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class Spoken:
    """A path in common words.

    Attributes:
        words: Without numbers, synonyms replaced.
        ranks: Of each numbered part, its place among those beside it that differ only in their
            number.
    """

    words: tuple[str, ...]
    ranks: tuple[int, ...]


def role(name: str) -> str:
    """The last part of a name by PyTorch's word.

    Example:
        >>> role("conv1.kernel"), role("fc.W"), role("bn.gamma"), role("attn.in_proj_weight")
        ('weight', 'weight', 'weight', 'in_proj_weight')
    """
    leaf = last(name)
    return _ROLES.get(leaf, leaf)


def spoken(paths: Iterable[str]) -> dict[str, Spoken]:
    """Each path in common words.

    Example:
        >>> spoken(["enc1.conv", "enc2.conv"])["enc2.conv"]
        Spoken(words=('encoder', 'conv'), ranks=(1,))
    """
    parts = {path: _parts(path) for path in paths}
    series: dict[str, set[Numbers]] = defaultdict(set)
    for path in parts:
        for part in parts[path]:
            series[part.series].add(part.numbers)
    ordered = {name: sorted(numbers) for name, numbers in series.items()}
    return {path: _speak(parts[path], ordered) for path in parts}


def unnumbered(name: str) -> str:
    """A name with a mark in the place of each number.

    Example:
        >>> unnumbered("layers.0.conv12"), numbers_in("layers.0.conv12")
        ('layers.#.conv#', (0, 12))
    """
    return _NUMBER.sub("#", name)


def numbers_in(name: str) -> Numbers:
    """The numbers in a name, in order."""
    return tuple(map(int, _NUMBER.findall(name)))


def similarity(first: Spoken, second: Spoken) -> float:
    """Return from 0 to 1 how many words two names share and whether their numbers agree.

    The last words count most.

    Example:
        >>> one, two = spoken(["conv1", "conv2"]).values()
        >>> other = spoken(["c0.convolution", "c1.convolution"])["c0.convolution"]
        >>> similarity(one, one), similarity(one, other) > similarity(two, other)
        (1.0, True)
    """
    if first == second:
        return 1.0
    same_words = _ratio(first.words, second.words)
    if not same_words:
        return 0.0  # of two series that have nothing to do with each other, numbers say nothing
    return min(0.99, 0.6 * same_words + 0.4 * _ratio(first.ranks, second.ranks))


def _ratio(first: Sequence[object], second: Sequence[object]) -> float:
    if not first and not second:
        return 1.0
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


@dataclass(frozen=True)
class _Part:
    """A part of a path.

    Attributes:
        name: Its own.
        series: What is equal for the parts beside it that differ only in their number.
        numbers: In its name.
    """

    name: str
    series: str
    numbers: Numbers


def _parts(path: str) -> list[_Part]:
    parts = []
    above = ""
    for name in path.split("."):
        parts.append(_Part(name, f"{above}{unnumbered(name)}", numbers_in(name)))
        above = f"{above}{name}."
    return parts


def _speak(parts: Iterable[_Part], series: Mapping[str, list[Numbers]]) -> Spoken:
    words: list[str] = []
    ranks: list[int] = []
    for part in parts:
        beside = series[part.series]
        if part.numbers and len(beside) > 1:
            ranks.append(beside.index(part.numbers))
        for word in _WORD.findall(part.name):
            word = word.lower()
            words.append(SYNONYMS.get(word, word))
    return Spoken(tuple(words), tuple(ranks))


# Classes -----------------------------------------------------------------------------------------


@cache
def kind_similarity(one: str, two: str) -> float:
    """From 0 to 1: how alike the names of two classes are, whatever framework they are from."""
    if not one or not two:
        return 0.5
    return SequenceMatcher(None, bare(one), bare(two), autojunk=False).ratio()


def bare(kind: str) -> str:
    """A class's name without dimensions, endings and spelling.

    Example:
        >>> bare("BatchNorm2d"), bare("BatchNormalization"), bare("Deconvolution2D")
        ('batchnorm', 'batchnorm', 'convtranspose')
    """
    name = kind.lower()
    for ending in ("nd", "1d", "2d", "3d"):
        name = name.removesuffix(ending)
    for spelling, usual in _SPELLINGS.items():
        name = name.replace(spelling, usual)
    return name


_SPELLINGS = {
    "normalization": "norm",
    "deconvolution": "convtranspose",
    "convolution": "conv",
    "embedid": "embedding",
}
# Words that mean one thing in the names of layers.
_MEANINGS = {
    "encoder": "enc encode down contracting contract analysis",
    "decoder": "dec decode up upsample expanding expand synthesis",
    "conv": "convolution cnn convolve cv",
    "linear": "fc dense lin affine fully",
    "norm": "bn ln gn batchnorm layernorm groupnorm normalization normalisation normalize",
    "head": "classifier out output final last logits readout predictions proj projection wo",
    "middle": "mid bottleneck bridge bottom centre center",
    "stem": "inp input first entry",
    "attention": "attn mha selfattention",
    "mlp": "ffn ff feedforward",
    "query": "q wq",
    "key": "k wk",
    "value": "v wv",
    "embedding": "embed emb wte token tok embeddings",
    "position": "pos wpe positional",
    "block": "blocks layers layer stage stages h",
    "shortcut": "downsample skip residual identity",
    "upconv": "upconvolution deconv deconvolution transposed",
    "recurrent": "rnn lstm gru cell nsteplstm",
}
SYNONYMS = {
    word: meaning for meaning, words in _MEANINGS.items() for word in words.split()
}
