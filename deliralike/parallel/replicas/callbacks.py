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
    names_of_master = [type(block).__name__ for block in replicas[0]]
    for copy_id, blocks in enumerate(replicas):
        names = [type(block).__name__ for block in blocks]
        if names != names_of_master:
            raise StructureError(
                f"replication callbacks: replica {copy_id} has the blocks {', '.join(names)}, the "
                f"first replica has {', '.join(names_of_master)}: give copies of one network"
            )
    contexts = [CallbackContext() for _ in names_of_master]
    for copy_id, blocks in enumerate(replicas):
        for block, context in zip(blocks, contexts, strict=True):
            if hasattr(block, CALLBACK):
                getattr(block, CALLBACK)(context, copy_id)
