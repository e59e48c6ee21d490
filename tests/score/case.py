"""What is known of a case before it is judged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A mistake that people make.

    Attributes:
        name: What is wrong.
        port: The backend of the candidate.
        edits: Texts that stand exactly once in a port's source, each with the one in its place.
        places: Every answer that counts as the right place: paths of the reference's blocks, names
            of its parameters, ``"loss"``, ``"optimizer mine"`` …
        cause: Regular expressions, all of which must be found in the printed cause, whatever the
            case of letters: the setting, and the number that is wrong or the one that is right.
        effect: Whether outputs in evaluation change; None where nothing is to be said of them.
    """

    name: str
    port: str
    edits: tuple[tuple[str, str], ...] = ()
    places: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    effect: bool | None = None


@dataclass(frozen=True)
class Right:
    """A port or class that computes the same.

    Attributes:
        name: How it is written.
        port: The backend of the candidate.
    """

    name: str
    port: str
