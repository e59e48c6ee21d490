"""A loader whose batches one process reads and broadcasts to all.

It is for data that the other processes cannot read, or that shall be read only once.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

from deliralike.data import batching
from deliralike.data.loader import Loader
from deliralike.errors import SettingError
from deliralike.parallel.processes.group import ProcessGroup


class FromRoot(Loader):
    """The batches of the root's loader in every process: the root reads and broadcasts them.

    Their order, their samples and their positions are those of that loader, so a run is the same as
    if every process read for itself. A trainer takes each process's share of them.

    Args:
        loader: The root's loader; the argument of the other processes is ignored, and may be None.
        processes: The group of processes; every one of them goes over the same batches.

    Raises:
        SettingError: The root has no loader.
        ArgumentError: The loader is one of a stream, which has no length.

    Example:
        >>> import numpy as np
        >>> from deliralike.parallel import SingleProcess
        >>> loader = FromRoot(Loader(np.arange(5), 3, shuffle=False), SingleProcess())
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2], [3, 4]]
    """

    def __init__(self, loader: Loader | None, processes: ProcessGroup):
        root_loader = loader if processes.is_root else None
        own_options = _options(root_loader)
        options = processes.broadcast_object("how the root's loader reads", own_options)
        if options is None:
            raise SettingError(
                "FromRoot: process 0 is the one that reads, and it has no loader"
            )
        samples = options.pop("samples")
        super().__init__(range(samples), **options)
        self._processes = processes
        self._root_loader = root_loader

    def in_order(self) -> Loader:
        """Return a loader of all samples, in the order of the root's data."""
        root_loader = self._root_loader
        if root_loader is not None:
            root_loader = root_loader.in_order()
        return FromRoot(root_loader, self._processes)

    def contents(self) -> dict[str, Any]:
        """Return the contents of the root's loader; nothing in the other processes."""
        if self._root_loader is None:
            return {}
        return self._root_loader.contents()

    def batches(self, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch from number `first` on, the same in every process."""
        count = batching.batch_count(
            len(self.order(epoch)), self.batch_size, self.drop_last
        )
        with ExitStack() as stack:
            batches = None
            if self._root_loader is not None:
                batches = self._root_loader.batches(epoch, first)
                stack.enter_context(closing(batches))  # type: ignore[type-var]
            for number in range(first, count):
                batch = None if batches is None else next(batches)
                batch = self._processes.broadcast_object("a batch of the root's", batch)
                if self._world_size > 1:
                    rows = self._share_of(epoch, number)
                    samples = sum(self.share_sizes(epoch, number))
                    batch = batching.share(batch, rows, samples)
                yield batch


def _options(loader: Loader | None) -> dict[str, Any] | None:
    """Return the number of samples of a loader, and the options with which it reads them."""
    if loader is None:
        return None
    return {
        "samples": loader.source_samples,
        "batch_size": loader.batch_size,
        "seed": loader.seed,
        "sampler": loader.sampler,
        "drop_last": loader.drop_last,
    }
