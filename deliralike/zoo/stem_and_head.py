"""The names of a network's stem and head, and of the head that it was built without."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from deliralike.errors import DeliralikeError


def paths(network: Any, part: str) -> tuple[str, ...]:
    """Return the dotted paths of the ``"stem"`` or the ``"head"``, if the network states any."""
    return tuple(getattr(network, f"{part}_paths", ()) or ())


def names(network: Any, present: Iterable[str]) -> set[str]:
    """Return the names that a network built without a head would have more if it had one.

    The network with a head is built on shapes alone.
    """
    written_once = getattr(type(network), "written_once", None)
    if written_once is None:
        return set()
    outputs = getattr(network, "outputs", None)
    if outputs is None or network.init_kwargs.get(outputs) != 0:
        return set()
    backend = importlib.import_module("deliralike.backends.outline").BACKEND
    try:
        whole = written_once.on(backend)(**network.init_kwargs | {outputs: 1})
    except DeliralikeError:
        return set()
    return set(whole.neutral_slots()) - set(present)


def is_grouped(network: Any, name: str) -> bool:
    """Return whether a weight is that of a grouped convolution, which sees part of the channels."""
    block = dict(network.named_blocks()).get(name.rpartition(".")[0])
    groups = getattr(block, "groups", getattr(block, "feature_group_count", 1))
    return groups != 1
