"""Iterators of Chainer and ChainerMN as loaders of the same data."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer import unstable
from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.data import Loader
from deliralike.errors import ArgumentError, SettingError
from deliralike.parallel.processes.group import ProcessGroup

_synchronized = chainermn.iterators.synchronized_iterator


def loader_of(source: Any, seed: int, processes: ProcessGroup) -> Any:
    """Return an iterator as a loader of its dataset, with its batch size, shuffled or not.

    Any other object is returned as it is. The order is the loader's: the same in all processes,
    drawn by the seed and the epoch. An epoch has each sample once, so its last batch may be
    smaller. The samples of a multi-node iterator are read by the root and sent to all, once.

    Raises:
        ArgumentError: The iterator lacks its dataset, batch size or order.
        SettingError: It has an order of its own, or a root other than process 0.
    """
    if not isinstance(source, chainer.dataset.Iterator):
        return source
    root = getattr(source, "rank_master", 0)
    if root:
        raise SettingError(
            f"a multi-node iterator whose rank_master is {root}: wanted 0, the process that reads "
            "here"
        )
    reads = unstable.is_multi_node_iterator(source, reads=True)
    if reads or unstable.is_multi_node_iterator(source, reads=False):
        loader = (
            _loader(source.actual_iterator, seed, in_memory=True) if reads else None
        )
        loader = processes.broadcast_object("the data of a multi-node iterator", loader)
        if loader is None:
            raise SettingError(
                "process 0 is the one that reads, and its multi-node iterator has no data"
            )
        return loader
    return _loader(
        vars(source).get("actual_iterator", source), seed
    )  # of a synchronized iterator


def _loader(iterator: Any, seed: int, in_memory: bool = False) -> Loader:
    for name in ("dataset", "batch_size", "order_sampler"):
        if not hasattr(iterator, name):
            raise ArgumentError(
                f"{type(iterator).__name__} does not tell its {name}: give the trainer the "
                "dataset, or a deliralike.data.Loader"
            )
    order = iterator.order_sampler
    if not isinstance(order, chainer.iterators.ShuffleOrderSampler | None):
        raise SettingError(
            f"the iterator's order is drawn by a {type(order).__name__}: give a "
            "deliralike.data.Loader of its dataset a sampler that draws it by seed and epoch"
        )
    samples = list(iterator.dataset) if in_memory else iterator.dataset
    return Loader(samples, iterator.batch_size, seed=seed, shuffle=order is not None)
