"""A loader whose batches one process reads and broadcasts to all.

It is for data that the other processes cannot read, or that shall be read only once.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import batching
from deliralike.data.loader import Loader
from deliralike.errors import SettingError
from deliralike.parallel.processes.group import ProcessGroup


class FromRoot(Loader):
    """The batches of the root's loader in every process: the root reads and broadcasts them.

    Their order, their samples and their positions are those of that loader, so a run is the one
    that it would be if every process read for itself. A trainer takes each process's share of them.

    Args:
        loader: The root's; what the other processes give is not looked at, and may be None.
        processes: The group of processes; every one of them goes over the same batches.

    Raises:
        SettingError: The root has no loader.
        ArgumentError: It is one of a stream, which has no length.

    Example:
        >>> from deliralike.parallel import SingleProcess
        >>> loader = FromRoot(Loader(np.arange(5), 3, shuffle=False), SingleProcess())
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2], [3, 4]]
    """

    def __init__(self, loader: Loader | None, processes: ProcessGroup):
        root_loader = loader if processes.is_root else None
        reading = processes.broadcast_object("how the root's loader reads", _options(root_loader))
        if reading is None:
            raise SettingError("FromRoot: process 0 is the one that reads, and it has no loader")
        samples, options = reading
        super().__init__(range(samples), **options)
        self._processes = processes
        self._root_loader = root_loader

    def contents(self) -> dict[str, Any]:
        """Return the contents of the root's loader; nothing in the other processes."""
        if self._root_loader is None:
            return {}
        return self._root_loader.contents()

    def batches(self, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch from number `first` on, the same in every process."""
        count = batching.batch_count(len(self._indices(epoch)), self.batch_size, self.drop_last)
        with ExitStack() as stack:
            batches = None
            if self._root_loader is not None:
                batches = self._root_loader.batches(epoch, first)
                stack.enter_context(closing(batches))  # type: ignore[type-var]
            for number in range(first, count):
                batch = None if batches is None else next(batches)
                batch = self._processes.broadcast_object("a batch of the root's", batch)
                yield _rows(batch, self._own_rows(epoch, number))


def _options(loader: Loader | None) -> tuple[int, dict[str, Any]] | None:
    if loader is None:
        return None
    names = ("batch_size", "seed", "sampler", "drop_last")
    return loader.samples, {name: getattr(loader, name) for name in names}


def _rows(batch: Any, rows: slice) -> Any:
    return nest.map(lambda leaf: leaf[rows] if np.ndim(leaf) else leaf, batch)
