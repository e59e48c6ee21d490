"""The only place that reads a spec: which leaves of a nest are split, copied or kept, in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from deliralike import nest
from deliralike.errors import SettingError, StructureError, suggestion

WORDS = ("split", "copy", "keep")
# The root whose two items are the positional and the keyword arguments of a call.
ARGUMENTS = "arguments"


class Part:
    """A leaf with the word that a spec has for it.

    Under ``"split"`` the leaf may be a list or tuple of samples.
    """

    __slots__ = ("value", "word")

    def __init__(self, word: str | None, value: Any) -> None:
        """Store the word and the leaf."""
        self.word = word
        self.value = value


def mark_leaves(
    value: Any, spec: Any, is_array: Callable[[Any], bool], root: str
) -> Any:
    """Return a nest with a `Part` in the place of every leaf.

    Raises:
        SettingError: The spec has an unknown word.
        StructureError: The spec is not built like the nest.
    """
    for path, word in nest.leaves_with_paths(spec, root):
        if word is None or (isinstance(word, str) and word in WORDS):
            continue
        message = f"the spec says {word!r} of {path}. {suggestion(word, WORDS)}"
        raise SettingError(readable(message, root))
    difference = nest.first_difference(
        spec, value, root, ("in the spec", "here"), prefix=True
    )
    if difference:
        message = (
            f"{difference} A spec has the structure of the nest; one word may stand for a whole "
            "subtree."
        )
        raise StructureError(readable(message, root))
    return nest.graft(spec, value, partial(_mark_subtree, is_array))


def array_test(backend: Any) -> Callable[[Any], bool]:
    """Return the test whether a value is an array of a backend; without a backend none is."""
    return _never if backend is None else backend.is_array


def unmarked(leaves: list[Any]) -> tuple[list[str | None], list[Any]]:
    """Return the word for each leaf and the leaves, of a nest that may have been marked."""
    if not leaves or type(leaves[0]) is not Part:
        return [None] * len(leaves), leaves
    return [part.word for part in leaves], [part.value for part in leaves]


def readable(message: str, root: str) -> str:
    """Return a message in which the two parts of a call's arguments are ``args`` and ``kwargs``.

    Messages about any other root are returned as they are.
    """
    if root != ARGUMENTS:
        return message
    return message.replace(f"{root}[0]", "args").replace(f"{root}[1]", "kwargs")


def _mark_subtree(
    is_array: Callable[[Any], bool], word: str | None, subtree: Any
) -> Any:
    """Return the part of a nest for which a spec has one word, with a `Part` for every leaf."""
    mark = partial(Part, word)
    if word != "split":
        return nest.map(mark, subtree)

    def is_samples(value: Any) -> bool:
        """Return whether a value is a list or tuple of samples, rather than a container."""
        if type(value) not in (list, tuple):
            return False
        if not value:  # an empty list is one only where the word stands for it alone
            return type(value) is list and value is subtree
        return not any(is_array(leaf) for leaf in nest.leaves(value))

    return nest.map(mark, subtree, is_leaf=is_samples)


def _never(_: Any) -> bool:
    return False
