"""A port of a network with its source edited: a mistake, or another right way to write it."""

from __future__ import annotations

from dataclasses import dataclass

Edit = tuple[str, str]  # the text as it stands exactly once in the port's source, and the new text


@dataclass(frozen=True)
class Mistake:
    """A port with a mistake that people make.

    Attributes:
        name: Unique within the pair and port.
        port: The file that is edited: ``"jax"`` or ``"chainer"``.
        edits: Texts to replace.
        places: Every answer that counts as the right place: paths of the reference's blocks, names
            of its parameters, ``"loss"``, ``"optimizer adam"``, ``"replicas 2"`` … The first one is
            what a careful colleague would say.
        cause: Regular expressions, all of which must be found in the printed cause, whatever the
            case of letters: the setting, and the number that is wrong or the one that is right.
        effect: Whether outputs in evaluation change; None where nothing is to be said of them.
    """

    name: str
    port: str
    edits: tuple[Edit, ...]
    places: tuple[str, ...]
    cause: tuple[str, ...]
    effect: bool | None = None


@dataclass(frozen=True)
class Right:
    """A port that is written in another way and computes the same.

    Attributes:
        name: Unique within the pair and port.
        port: The file that is edited.
        edits: Texts to replace; none for the port as it is.
    """

    name: str
    port: str
    edits: tuple[Edit, ...] = ()
