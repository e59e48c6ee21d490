"""Replication callbacks: each copy of a block is called after replication, the master's first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CALLBACK = "__data_parallel_replicate__"


class CallbackContext:
    """An object that all copies of one block share, to pass attributes to each other."""


def call_replication_callbacks(replicas: Sequence[Sequence[Any]]) -> None:
    """Call ``block.__data_parallel_replicate__(context, copy_id)`` on each block that has it.

    Args:
        replicas: The blocks of each replica in the same order; the master is the first.

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
    contexts = [CallbackContext() for _ in replicas[0]]
    for copy_id, blocks in enumerate(replicas):
        for block, context in zip(blocks, contexts, strict=True):
            callback = getattr(block, CALLBACK, None)
            if callback is not None:
                callback(context, copy_id)
