"""Replication callbacks: each copy of a block is called after replication, the master's first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deliralike.errors import StructureError

CALLBACK = "__data_parallel_replicate__"


class CallbackContext:
    """An object that all copies of one block share, to pass attributes to each other."""


def call_replication_callbacks(replicas: Sequence[Sequence[Any]]) -> None:
    """Call ``block.__data_parallel_replicate__(context, copy_id)`` on each block that has it.

    Args:
        replicas: The blocks of each replica in the same order; the master is the first.

    Raises:
        StructureError: A replica has other blocks than the master.

    Example:
        >>> class Block:
        ...     def __data_parallel_replicate__(self, context, copy_id):
        ...         context.seen = [*getattr(context, "seen", ()), copy_id]
        ...         self.context = context
        >>> first, second = Block(), Block()
        >>> call_replication_callbacks([[first], [second]])
        >>> second.context.seen, first.context is second.context
        ([0, 1], True)
    """
    master = _class_names(replicas[0])
    for copy_id, blocks in enumerate(replicas):
        names = _class_names(blocks)
        if names != master:
            raise StructureError(
                f"replication callbacks: replica {copy_id} has the blocks {', '.join(names)}, the "
                f"first replica has {', '.join(master)}: give copies of one network"
            )
    contexts = [CallbackContext() for _ in replicas[0]]
    for copy_id, blocks in enumerate(replicas):
        for block, context in zip(blocks, contexts, strict=True):
            callback = getattr(block, CALLBACK, None)
            if callback is not None:
                callback(context, copy_id)


def _class_names(blocks: Sequence[Any]) -> list[str]:
    return [type(block).__name__ for block in blocks]
