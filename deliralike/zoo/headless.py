"""What a network's stem and head are, and what its head would be if it had one."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from deliralike.errors import DeliralikeError


def paths(network: Any, part: str) -> tuple[str, ...]:
    """The dotted paths of the ``"stem"`` or the ``"head"``; none for networks that do not say."""
    return tuple(getattr(network, f"{part}_paths", ()) or ())


def names(network: Any, present: Iterable[str]) -> set[str]:
    """The names that a network built without a head would have more if it had one; found on shapes alone."""
    written, settings = (
        getattr(type(network), "written_once", None),
        getattr(network, "init_kwargs", None),
    )
    outputs = getattr(network, "outputs", None)
    if written is None or settings is None or outputs is None or settings.get(outputs) != 0:
        return set()
    backend = importlib.import_module("deliralike.backends.outline").BACKEND
    try:
        whole = written.on(backend)(**settings | {outputs: 1})
    except DeliralikeError:
        return set()
    return set(whole.neutral_slots()) - set(present)


def is_grouped(network: Any, name: str) -> bool:
    """Whether a weight is that of a convolution in groups, whose inputs are not all channels."""
    path = name.rpartition(".")[0]
    block = next((block for at, block in network.named_blocks() if at == path), None)
    groups = getattr(block, "groups", getattr(block, "feature_group_count", 1))
    return groups != 1
