"""The peak memory of a training step of ResNet-18 against the framework's own loop by hand.

On PyTorch it is the peak of its allocator above what is held when the step begins; on Chainer that
of all arrays, which NumPy reports to `tracemalloc`; on JAX all arrays that are held, with the
results and temporaries of the largest compiled program.
"""

import gc
import importlib
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from benchmarks.timing import Ratio
from deliralike import backends, zoo
from deliralike.optim.rules import rule

LIMIT = 1.02
LR, MOMENTUM = 0.01, 0.9
ACCUMULATED = 2  # batches of an update where gradients are accumulated
Steps = Callable[
    [], Iterator[object]
]  # makes a network, and what computes one batch more


def run() -> list[Ratio]:
    """Two ratios for each backend: for an update of one batch, and of two."""
    ratios = []
    for batches, what in (
        (1, "a ResNet-18 step"),
        (ACCUMULATED, "an update of two batches"),
    ):
        for name, peak in PEAKS.items():
            backends.get(name)  # Chainer can be imported when its backend is loaded
            by_hand = importlib.import_module(f"benchmarks.by_hand.{name}_resnet")
            ours = peak(partial(_ours, name, batches), batches)
            theirs = peak(
                partial(by_hand.batches, *_batch(), batches, LR, MOMENTUM), batches
            )
            words = f"peak of {what}, {name} by hand"
            ratios.append(
                Ratio(words, ours, theirs, *[ours / theirs] * 3, LIMIT, "bytes")
            )
    return ratios


def _ours(name: str, batches: int) -> Iterator[object]:
    backend, batch = backends.get(name), _batch()
    network = zoo.build("resnet18", backend=name)
    optimizer = backend.optimizer(rule("sgd", lr=LR, momentum=MOMENTUM), network)
    optimizer.accumulate = batches
    while True:
        optimizer.update(_loss, *batch)
        yield


def _loss(network: Any, images: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(images), labels)


def _batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(16, 3, 64, 64)).astype(np.float32), rng.integers(
        0, 1000, 16
    )


def _torch_peak(make: Steps, batches: int) -> int:
    import torch

    with torch.profiler.profile(profile_memory=True) as profiler:
        steps = make()
        _advance(steps, 2 * batches)  # state and gradients are there afterwards
        with torch.profiler.record_function(_BEGIN):
            pass
        _advance(steps, batches)
    events = sorted(
        profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns()
    )
    begin = next(at for at, event in enumerate(events) if event.name() == _BEGIN)
    return max(accumulate(e.nbytes() for e in events[begin:] if e.name() == "[memory]"))


def _chainer_peak(make: Steps, batches: int) -> int:
    tracemalloc.start()
    steps = make()
    _advance(steps, 2 * batches)
    tracemalloc.reset_peak()
    _advance(steps, batches)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def _jax_peak(make: Steps, batches: int) -> int:
    import jax

    jax.clear_caches()  # programs of the other contestant
    gc.collect()
    before = _held()
    steps = make()
    _advance(steps, batches)
    held = 0
    for _ in range(batches):
        held = max(held, _held() - before)
        _advance(steps, 1)
    programs = jax.devices()[0].client.live_executables()
    return held + max(
        _beside_arguments(each.get_compiled_memory_stats()) for each in programs
    )


def _advance(steps: Iterator[object], count: int) -> None:
    for _ in range(count):
        next(steps)


def _held() -> int:
    import jax

    return sum(array.nbytes for array in jax.live_arrays())


def _beside_arguments(stats: Any) -> int:
    return (
        stats.temp_size_in_bytes
        + stats.output_size_in_bytes
        - stats.alias_size_in_bytes
    )


_BEGIN = "the measured step"
PEAKS = {"torch": _torch_peak, "chainer": _chainer_peak, "jax": _jax_peak}
