"""What replication costs beside the computation: the two hooks, and the memory of the replicas."""

import gc
from collections.abc import Callable

import numpy as np
import psutil

from benchmarks.timing import Ratio, compare
from deliralike import DataParallel, backends, in_replicas, zoo
from deliralike.rules import rule

DEVICES = {"torch": "cpu", "chainer": "@numpy", "jax": "cpu"}
STEPS = 200


def run() -> list[Ratio]:
    """The hooks' time for two replicas; the bytes that replicas take, by those of the parameters."""
    return [*map(_hooks, DEVICES), *_memory("torch"), *_memory("chainer")]


def _hooks(name: str) -> Ratio:
    """Accumulating reads twice and writes once, copying reads and writes once: 2.5 times one read and one write."""
    backend, network = backends.get(name), zoo.build("resnet18", backend=name)
    network = DataParallel(network, [DEVICES[name]] * 2)
    optimizer = backend.optimizer(rule("sgd", lr=0.0), network)
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(4, 3, 32, 32)).astype(np.float32), rng.integers(0, 1000, 4)
    loss = in_replicas(lambda network, x, y: network.nn.cross_entropy(network(x), y))
    _, gradients = optimizer.gradients(loss, *backend.prepare(batch, network))
    optimizer.updated = tuple(gradients)
    bytes_ = [value for key, value in network.neutral_state().items() if key in gradients]
    elsewhere = [np.empty_like(value) for value in bytes_]

    def ours() -> None:
        total = optimizer.pre_update_hooks[0](optimizer, gradients)
        optimizer.post_update_hooks[0](optimizer)
        backend.numpy(next(iter(total.values())))

    def theirs() -> None:
        for target, source in zip(elsewhere, bytes_, strict=True):
            np.copyto(target, source)

    return compare(f"both hooks, {name}, ResNet-18, a read and a write of the parameters", ours, theirs, pairs=30)


def _memory(name: str) -> list[Ratio]:
    """Resident bytes of two more replicas: parameters and gradients of each, four times the parameters' bytes."""
    size = 4 * zoo.build("mlp", backend=name, **_LARGE).count_parameters()
    (_, one), (early, late) = _resident(name, 1), _resident(name, 3)
    what = f"bytes, {name}, the parameters':"
    return [
        _bytes(f"{what} two more replicas", late - one, size, limit=4.2),
        _bytes(f"{what} growth of three replicas over {STEPS} steps", late - early, size, limit=0.05),
    ]


def _bytes(name: str, ours: int, theirs: int, limit: float) -> Ratio:
    ratio = ours / theirs
    return Ratio(name, ours, theirs, ratio, ratio, ratio, limit, unit="bytes")


_LARGE = {"in_features": 512, "hidden": (2048, 2048), "out_features": 512}


def _resident(name: str, replicas: int) -> tuple[int, int]:
    """Resident bytes beyond those at the start, after a few steps and after many more."""
    backend = backends.get(name)
    process = psutil.Process()
    gc.collect()
    start = process.memory_info().rss
    network = DataParallel(zoo.build("mlp", backend=name, **_LARGE), [DEVICES[name]] * replicas)
    optimizer = backend.optimizer(rule("sgd", lr=0.001), network)
    x = np.zeros((3, 512), np.float32)
    step: Callable[[], object] = lambda: optimizer.update(_squares, x)  # noqa: E731
    found = []
    for count in (5, STEPS):
        for _ in range(count):
            step()
        gc.collect()
        found.append(process.memory_info().rss - start)
    return found[0], found[1]


def _squares(network, x):
    y = network(x)
    return network.nn.mean(y * y)
