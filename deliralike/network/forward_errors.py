"""Explanations of a framework's own errors in a forward pass: which layer was given what."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from traceback import walk_tb
from types import FrameType
from typing import Any

from deliralike import nest
from deliralike.errors import DeliralikeError, DtypeError, ShapeError
from deliralike.network.core import NetworkCore, unwrap
from deliralike.nn import checks

# methods that get a block's arguments
_CALLS = (
    "__call__",
    "_wrapped_call_impl",
    "forward",
)
# Attributes of native layers with the wanted size of an input's last axis
_LAST_AXIS = ("in_features", "in_size")


def explain(error: Exception) -> None:
    """Explain an error that ended a forward pass, for an ``except`` branch that raises it again.

    The blocks and their arguments are read from the traceback: nothing is computed again. An error
    of a block that cannot say more gets a note of what network and block were called with.

    Raises:
        ShapeError, DtypeError: A native layer was given another shape or type than it takes.
    """
    if isinstance(error, DeliralikeError):
        return
    calls = list(_calls(error))
    if not calls:
        return
    path, block, frame = calls[-1]
    name = _Named(block, path)
    note = f"{type(unwrap(calls[0][1])).__name__} was called with {_described(calls[0][2])}"
    try:
        for x in _arrays(frame)[:1]:
            _check(name, block, x)
    except (ShapeError, DtypeError) as clear:
        clear.add_note(note)
        raise clear from error
    if path:
        note += f", and its {checks.where(name)} with {_described(frame)}"
    elif isinstance(error, TypeError | LookupError):
        note += (
            ": forward gets the inputs of a batch, without names and target. A network that wants "
            "the whole batch has a train_step and a val_step of its own"
        )
    error.add_note(note)


class _Named:
    """A native layer as the checks name it."""

    def __init__(self, block: Any, path: str) -> None:
        self.kind = type(block).__name__
        self.block_path = path


def _calls(error: Exception) -> Iterator[tuple[str, Any, FrameType]]:
    """Yield the calls of blocks that the error ended, with their paths, the network's first.

    A network that is compiled or replicated computes by a copy, whose blocks are other objects.
    """
    paths: dict[int, str] = {}
    for frame, _ in walk_tb(error.__traceback__):
        block = frame.f_locals.get("self")
        if isinstance(block, NetworkCore) and id(block) not in paths:
            paths |= {id(each): path for path, each in block.named_blocks()}
        if id(block) in paths and frame.f_code.co_name in _CALLS:
            yield paths[id(block)], block, frame


def _arrays(frame: FrameType) -> list[Any]:
    """Return the arrays among the arguments of a call."""
    names, rest, options, values = inspect.getargvalues(frame)
    arguments = [values[name] for name in (*names[1:], rest, options) if name in values]
    return [leaf for leaf in nest.leaves(arguments) if hasattr(leaf, "dtype")]


def _described(frame: FrameType) -> str:
    shapes = [
        f"{tuple(each.shape)} {checks.type_name(each)}" for each in _arrays(frame)
    ]
    return f"arrays {', '.join(shapes)}" if shapes else "no array"


def _check(name: Any, block: Any, x: Any) -> None:
    """Check an input of a native layer whose attributes say what it takes."""
    for attribute in _LAST_AXIS:
        wanted = getattr(block, attribute, None)
        if isinstance(wanted, int):
            checks.last_axes(name, x, (wanted,))
    wanted = getattr(block, "in_channels", None)
    kernel = getattr(block, "weight", getattr(block, "W", None))
    if isinstance(wanted, int) and kernel is not None:
        checks.channels(name, x, wanted, kernel.ndim - 2)
