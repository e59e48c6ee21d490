"""Differentiable sums over replicas, and Chainer's batch normalisation with their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.backends.chainer.network import AbstractChainerNetwork
from deliralike.nn.layers.normalization import batch_norm_over_replicas
from deliralike.parallel.replicas.context import Rendezvous, current

F = chainer.functions
L = chainer.links
_FORWARDS = (
    L.BatchNormalization.forward,
    chainermn.links.MultiNodeBatchNormalization.forward,
)


class AllSum(chainer.FunctionNode):
    """The sum of an array over replicas that each run a backward pass of their own, in threads.

    Every replica gets the sum, so each one's gradient is the sum of all gradients: the function is
    its own transpose.
    """

    def __init__(self, rendezvous: Rendezvous, index: int, topic: str) -> None:
        super().__init__()
        self.rendezvous = rendezvous
        self.index = index
        self.topic = topic

    def forward(self, inputs):
        (x,) = inputs
        device = chainer.backend.get_device_from_array(x)
        first, *others = self.rendezvous.exchange(self.index, self.topic, x)
        total = device.send(first).copy()
        for other in others:
            total += device.send(other)
        return (total,)

    def backward(self, indexes, gradients):
        topic = f"the derivative of {self.topic}"
        return AllSum(self.rendezvous, self.index, topic).apply(gradients)


def sum_in_threads(rendezvous: Rendezvous, index: int, x: Any, topic: str) -> Any:
    """Return the sum over replicas that run backward each in its own thread."""
    return AllSum(rendezvous, index, topic).apply((x,))[0]


def sum_of_graphs(rendezvous: Rendezvous, index: int, x: Any, topic: str) -> Any:
    """Return the sum in one graph over all replicas, for one backward."""
    x = chainer.as_variable(x)
    values = []
    for value in rendezvous.exchange(index, topic, x):
        values.append(arrays.moved(value, x.device))
    return F.add(*values) if len(values) > 1 else x


# Chainer's own batch normalisation
# ------------------------------------------------------------


def batch_norms(links: Iterable[chainer.Link]) -> list[chainer.Link]:
    """Return the links of Chainer's and ChainerMN's batch normalisation.

    Links of subclasses that compute something else are not among them.
    """
    return [link for link in links if getattr(type(link), "forward", None) in _FORWARDS]


@contextmanager
def synchronised_links(norms: Sequence[chainer.Link]) -> Iterator[None]:
    """Let links that are `batch_norms` use the statistics of all replicas for a ``with`` block."""
    for link in norms:
        vars(link)["forward"] = partial(_forward, link)
    try:
        yield
    finally:
        for link in norms:
            del vars(link)["forward"]


def _forward(link: Any, x: Any, finetune: bool = False) -> Any:
    replica = current()
    config = chainer.config
    if replica is None or not config.train:
        return type(link).forward(link, x, finetune=finetune)
    # A single share needs no sums, except for a link of ChainerMN's, which on its own would wait
    # for processes without samples.
    if replica.count < 2 and isinstance(link, L.BatchNormalization):
        return type(link).forward(link, x, finetune=finetune)
    if link.avg_mean is None:
        shape = [size for axis, size in enumerate(x.shape) if axis not in link.axis]
        unstable.create_statistics(link, tuple(shape))
    topic = f"{type(link).__name__} {link.name or ''}".strip()
    axes = getattr(link, "axis", None) or (0, *range(link.avg_mean.ndim + 1, x.ndim))
    normalised = [axis for axis in range(x.ndim) if axis not in axes]
    order = (axes[0], *normalised, *axes[1:])  # usually the present one: no copy
    turned = F.transpose(F.cast(x, link.avg_mean.dtype), order)
    rest = [x.shape[axis] for axis in axes[1:]]
    rows = F.reshape(turned, (turned.shape[0], link.avg_mean.size, *rest))
    weight, bias = (_flat(getattr(link, name, None)) for name in ("gamma", "beta"))
    y, mean, var, count = batch_norm_over_replicas(
        AbstractChainerNetwork.nn, rows, weight, bias, link.eps, replica, topic
    )
    if not config.in_recomputing:
        shape = link.avg_mean.shape
        unbiased = var.array * (count / (count - 1))
        mean_of_axes = mean.array.reshape(shape)
        _update_statistics(link, mean_of_axes, unbiased.reshape(shape), finetune)
    y = F.transpose(
        F.reshape(y, turned.shape), sorted(range(x.ndim), key=order.__getitem__)
    )
    return F.cast(y, x.dtype)


def _flat(parameter: Any) -> Any:
    """Return scale or shift with one axis; None where a link has none."""
    return None if parameter is None else F.flatten(parameter)


def _update_statistics(link: Any, mean: Any, var: Any, finetune: bool) -> None:
    if finetune:
        link.N += 1
    decay = 1.0 - 1.0 / link.N if finetune else link.decay
    for average, value in ((link.avg_mean, mean), (link.avg_var, var)):
        average *= decay
        average += (1 - decay) * value
