"""Batches that one process reads and sends to all: for data that the others cannot read, or that shall be read once."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import batching
from deliralike.data.loader import Loader
from deliralike.errors import SettingError
from deliralike.parallel.processes import Processes


class FromRoot(Loader):
    """The batches of the root's loader in every process: the root reads them and sends them to all.

    Their order, their samples and their positions are those of that loader, so a run is the one that it would be if
    every process read for itself. A trainer takes each process's share of them.

    Args:
        loader: The root's; what the other processes give is not looked at, and may be None.
        processes: They; every one of them goes over the same batches.

    Raises:
        SettingError: The root has no loader.
        ArgumentError: It is one of a stream, which has no length.

    Example:
        >>> from deliralike.parallel import Alone
        >>> [batch.tolist() for batch in FromRoot(Loader(np.arange(5), 3, shuffle=False), Alone())]
        [[0, 1, 2], [3, 4]]
    """

    def __init__(self, loader: Loader | None, processes: Processes):
        told = processes.of_root("how the root's loader reads", _options(loader) if processes.is_root else None)
        if told is None:
            raise SettingError("FromRoot: process 0 is the one that reads, and it has no loader")
        samples, options = told
        super().__init__(range(samples), **options)
        self._processes, self._read_here = processes, loader if processes.is_root else None

    def contents(self) -> dict[str, Any]:
        """What the root's loader says; nothing in the other processes."""
        return {} if self._read_here is None else self._read_here.contents()

    def batches(self, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """The batches of an epoch from number `first` on; every process asks for the same."""
        count = batching.batch_count(len(self._indices(epoch)), self.batch_size, self.drop_last)
        with ExitStack() as stack:
            own = None
            if self._read_here is not None:
                own = stack.enter_context(closing(self._read_here.batches(epoch, first)))  # type: ignore[type-var]
            for number in range(first, count):
                batch = self._processes.of_root("a batch of the root's", None if own is None else next(own))
                rows = self._own(epoch, number)
                yield nest.map(lambda leaf, rows=rows: leaf[rows] if np.ndim(leaf) else leaf, batch)


def _options(loader: Loader | None) -> tuple[int, dict[str, Any]] | None:
    if loader is None:
        return None
    names = ("batch_size", "seed", "sampler", "drop_last")
    return loader.samples, {name: getattr(loader, name) for name in names}
