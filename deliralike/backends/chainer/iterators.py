"""Iterators of Chainer and ChainerMN as loaders of the same data."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer import unstable
from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.data import FromRoot, Loader
from deliralike.errors import ArgumentError, SettingError
from deliralike.parallel.processes.group import ProcessGroup

_synchronized = chainermn.iterators.synchronized_iterator


def loader_of(source: Any, seed: int, processes: ProcessGroup) -> Any:
    """Return an iterator as a loader of its dataset, with its batch size, shuffled or not.

    Any other object is returned as it is. The order is the loader's: the same in all processes,
    drawn by the seed and the epoch. An epoch has each sample once, so its last batch may be
    smaller. The batches of a multi-node iterator are read by the root and sent to all.

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
    if unstable.is_multi_node_iterator(source, reads=False):
        return FromRoot(None, processes)
    if unstable.is_multi_node_iterator(source, reads=True):
        return FromRoot(_loader(source.actual_iterator, seed), processes)
    return _loader(
        vars(source).get("actual_iterator", source), seed
    )  # of a synchronized iterator


def _loader(iterator: Any, seed: int) -> Loader:
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
    return Loader(
        iterator.dataset, iterator.batch_size, seed=seed, shuffle=order is not None
    )
