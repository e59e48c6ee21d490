"""Other layouts of a state: the names, and here and there the shapes, that another library gives the same weights."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Transform = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class KeyMap:
    """One other layout, described from our names; so it works in both directions.

    Attributes:
        name: Whose layout it is: ``"timm"``, ``"torchvision"`` …
        rename: Our names, in order, as their names: a dict from ours to theirs. Names that they lack are left out.
        shapes: For patterns of our names, how an array comes to our shape and how it goes to theirs.
    """

    name: str
    rename: Callable[[Sequence[str]], Mapping[str, str]]
    shapes: Mapping[str, tuple[Transform, Transform]] = field(default_factory=dict)


def by_patterns(table: Mapping[str, str]) -> Callable[[Sequence[str]], dict[str, str]]:
    """A renaming by regular expressions: each name by the first one that matches it whole; others are left out.

    Example:
        >>> by_patterns({r"fc\\.(.*)": r"head.\\1"})(["fc.weight", "step"])
        {'fc.weight': 'head.weight'}
    """
    patterns = [(re.compile(pattern), replacement) for pattern, replacement in table.items()]

    def rename(names: Sequence[str]) -> dict[str, str]:
        matches = ((name, next(((m, new) for p, new in patterns if (m := p.fullmatch(name))), None)) for name in names)
        return {name: found[0].expand(found[1]) for name, found in matches if found is not None}

    return rename
