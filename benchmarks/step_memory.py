"""The peak memory of a training step of ResNet-18 against the framework's own loop by hand.

The peak counts above what is held when the step begins: parameters and the optimizer's state. On
PyTorch every allocation of its allocator counts, on Chainer those that NumPy reports to
`tracemalloc`, on JAX the arguments, results and temporaries of the largest compiled program.
"""

import importlib
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from benchmarks.timing import Ratio
from deliralike import backends, zoo
from deliralike.optim.rules import rule

LIMIT = 1.02
LR, MOMENTUM = 0.01, 0.9


def run() -> list[Ratio]:
    """One ratio for each backend, and one for an update of two batches on PyTorch."""
    return [_step(name) for name in ("torch", "chainer", "jax")] + [_accumulated()]


def _step(name: str) -> Ratio:
    batch = _batch()
    ours = _ours(name)
    by_hand = importlib.import_module(f"benchmarks.by_hand.{name}_resnet")
    theirs = by_hand.training_step(*batch)
    return _ratio(f"peak of a ResNet-18 step, {name} by hand", PEAKS[name], [ours, theirs])


def _accumulated() -> Ratio:
    """Two batches an update, of which the loop by hand adds the gradients in place."""
    import torch

    images, labels = map(torch.from_numpy, _batch())
    resnet = importlib.import_module("benchmarks.by_hand.torch_resnet")
    network = resnet.ResNet18()
    optimizer = torch.optim.SGD(network.parameters(), lr=LR, momentum=MOMENTUM)

    def theirs():
        optimizer.zero_grad()
        for _ in range(2):
            (torch.nn.functional.cross_entropy(network(images), labels) / 2).backward()
        optimizer.step()

    ours = _ours("torch", batches=2)
    return _ratio("peak of an update of two batches, torch by hand", _torch_peak, [ours, theirs])


def _ours(name: str, batches: int = 1) -> Callable[[], None]:
    backend, batch = backends.get(name), _batch()
    network = zoo.build("resnet18", backend=name)
    optimizer = backend.optimizer(rule("sgd", lr=LR, momentum=MOMENTUM), network)
    optimizer.accumulate = batches

    def step():
        for _ in range(batches):
            optimizer.update(_loss, *batch)

    return step


def _loss(network: Any, images: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(images), labels)


def _batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(16, 3, 64, 64)).astype(np.float32), rng.integers(0, 1000, 16)


def _ratio(what: str, peak: Callable[..., int], steps: Iterable[Callable[[], object]]) -> Ratio:
    ours, theirs = map(peak, steps)
    return Ratio(what, ours, theirs, *[ours / theirs] * 3, LIMIT, "bytes")


def _torch_peak(step: Callable[[], object]) -> int:
    import torch

    step(), step()  # state and gradients are there afterwards
    with torch.profiler.profile(profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events))


def _chainer_peak(step: Callable[[], object]) -> int:
    step(), step()
    tracemalloc.start()
    step()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


def _jax_peak(step: Callable[[], object]) -> int:
    import jax

    client = jax.devices()[0].client
    before = {id(each) for each in client.live_executables()}
    step()
    new = [each for each in client.live_executables() if id(each) not in before]
    return max(_bytes(each.get_compiled_memory_stats()) for each in new)


def _bytes(stats: Any) -> int:
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return stats.argument_size_in_bytes + stats.temp_size_in_bytes + results


PEAKS = {"torch": _torch_peak, "chainer": _chainer_peak, "jax": _jax_peak}
