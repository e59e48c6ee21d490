"""How alike two names of layers are: words, their synonyms, and numbers in a series.

``enc1`` of ``enc1, enc2`` is the first of its series, as is ``encoder_0`` of ``encoder_0,
encoder_1``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from deliralike.weights import chainer_names, trees
from deliralike.weights.matching.words import SYNONYMS

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


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
    leaf = name.rpartition(".")[2]
    return trees.neutral_name((chainer_names.neutral([leaf])[0][leaf],))


def spoken(paths: Iterable[str]) -> dict[str, Spoken]:
    """Each path in common words.

    Example:
        >>> spoken(["enc1.conv", "enc2.conv"])["enc2.conv"]
        Spoken(words=('encoder', 'conv'), ranks=(1,))
    """
    paths = list(paths)
    numbers = _series(paths)
    return {path: _speak(path, numbers) for path in paths}


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


def _series(paths: Sequence[str]) -> dict[tuple[str, str], list[tuple[int, ...]]]:
    """The numbers of each series: of parts beside each other that differ only in their number."""
    found: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
    for path in paths:
        for parent, part in _parts(path):
            found[parent, _stem(part)].add(_numbers(part))
    return {key: sorted(numbers) for key, numbers in found.items()}


def _speak(path: str, series: dict[tuple[str, str], list[tuple[int, ...]]]) -> Spoken:
    words: list[str] = []
    ranks: list[int] = []
    for parent, part in _parts(path):
        beside = series[parent, _stem(part)]
        if _numbers(part):
            ranks += [beside.index(_numbers(part))] if len(beside) > 1 else []
        words += [
            SYNONYMS.get(word, word)
            for word in (found.lower() for found in _WORD.findall(part))
            if not word.isdigit()
        ]
    return Spoken(tuple(words), tuple(ranks))


def _parts(path: str) -> list[tuple[str, str]]:
    """Each part with the path above it."""
    parts = path.split(".") if path else []
    return [(".".join(parts[:index]), part) for index, part in enumerate(parts)]


def _stem(part: str) -> str:
    return re.sub(r"\d+", "#", part)


def _numbers(part: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", part))
