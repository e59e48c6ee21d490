"""Other layouts of a state: the names, and here and there the shapes, that another library gives the same weights."""

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
