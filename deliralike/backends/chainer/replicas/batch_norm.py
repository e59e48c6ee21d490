"""Differentiable sums over replicas, and Chainer's batch normalisation with their statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.parallel.replicas.context import Replica, current
from deliralike.parallel.replicas.rendezvous import Rendezvous

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


def all_sum(
    rendezvous: Rendezvous, index: int, in_threads: bool
) -> Callable[[Any, str], Any]:
    """Return the differentiable sum over all replicas: by `AllSum`, or in one graph."""

    def in_own_graph(x: Any, topic: str) -> Any:
        return AllSum(rendezvous, index, topic).apply((x,))[0]

    def in_one_graph(x: Any, topic: str) -> Any:
        x = chainer.as_variable(x)
        values = [
            arrays.moved(value, x.device)
            for value in rendezvous.exchange(index, topic, x)
        ]
        return F.add(*values) if len(values) > 1 else x

    return in_own_graph if in_threads else in_one_graph


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
    axes = getattr(link, "axis", None) or (0, *range(link.avg_mean.ndim + 1, x.ndim))
    gamma, beta = _scale_and_shift(link)
    wide = F.cast(x, gamma.dtype)
    topic = f"{type(link).__name__} {link.name or ''}".strip()
    mean, var, count = _statistics(replica, topic, wide, axes)
    if not config.in_recomputing:
        unbiased = var.array * (count / max(count - 1.0, 1.0))
        _update_statistics(link, mean.array, unbiased, finetune)
    y = F.fixed_batch_normalization(wide, gamma, beta, mean, var, link.eps, axis=axes)
    return F.cast(y, x.dtype)


def _statistics(
    replica: Replica, topic: str, x: Any, axes: Sequence[int]
) -> tuple[Any, Any, int]:
    """Return mean and biased variance over the samples of all replicas, and their number."""
    own_count = math.prod(x.shape[axis] for axis in axes)
    count = sum(replica.exchange(f"{topic}: the number of values", own_count))
    mean = replica.all_sum(F.sum(x, axes), f"{topic}: a sum") * (1.0 / count)
    squares = F.square(x - _spread(mean, axes, x.shape))
    var = replica.all_sum(F.sum(squares, axes), f"{topic}: a sum") * (1.0 / count)
    return mean, var, count


def _scale_and_shift(link: Any) -> tuple[Any, Any]:
    """Return scale and shift, one and zero where the link has none."""
    gamma = getattr(link, "gamma", None)
    beta = getattr(link, "beta", None)
    if gamma is None:
        gamma = link.xp.ones_like(link.avg_mean)
    if beta is None:
        beta = link.xp.zeros_like(link.avg_mean)
    return gamma, beta


def _spread(values: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
    """Broadcast values of each channel to an array's shape."""
    kept = list(shape)
    for axis in axes:
        kept[axis] = 1
    return F.broadcast_to(F.reshape(values, tuple(kept)), shape)


def _update_statistics(link: Any, mean: Any, var: Any, finetune: bool) -> None:
    if finetune:
        link.N += 1
    decay = 1.0 - 1.0 / link.N if finetune else link.decay
    for average, value in ((link.avg_mean, mean), (link.avg_var, var)):
        average *= decay
        average += (1 - decay) * value
