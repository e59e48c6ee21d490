"""How alike the names of two classes of layers are, whatever framework they are from."""

from difflib import SequenceMatcher
from functools import cache

_SPELLINGS = {
    "normalization": "norm",
    "deconvolution": "convtranspose",
    "convolution": "conv",
    "embedid": "embedding",
}


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
    for theirs, ours in _SPELLINGS.items():
        name = name.replace(theirs, ours)
    return name
