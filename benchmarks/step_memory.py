"""The peak memory of a training step of ResNet-18 against the framework's own loop by hand.

On PyTorch it is the peak of its allocator above what is held when the step begins; on Chainer that
of all arrays, which NumPy reports to `tracemalloc`; on JAX the arguments, results and temporaries
of the largest compiled program.
"""

import importlib
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from benchmarks.timing import Ratio
from deliralike import backends, zoo
from deliralike.optim.rules import rule

LIMIT = 1.02
LR, MOMENTUM = 0.01, 0.9
Make = Callable[[], Callable[[], object]]  # makes a network and what steps it


def run() -> list[Ratio]:
    """One ratio for each backend, and one for an update of two batches on PyTorch."""
    return [_step(name) for name in ("torch", "chainer", "jax")] + [_accumulated()]


def _step(name: str) -> Ratio:
    backends.get(name)  # Chainer can be imported when its backend is loaded
    by_hand = importlib.import_module(f"benchmarks.by_hand.{name}_resnet")
    theirs = partial(by_hand.training_step, *_batch(), **_IN_PLACE.get(name, {}))
    contestants = partial(_ours, name), theirs
    return _ratio(f"peak of a ResNet-18 step, {name} by hand", PEAKS[name], contestants)


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

    contestants = partial(_ours, "torch", batches=2), lambda: theirs
    return _ratio("peak of an update of two batches, torch by hand", _torch_peak, contestants)


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


def _ratio(what: str, peak: Callable[[Make], int], contestants: Iterable[Make]) -> Ratio:
    ours, theirs = map(peak, contestants)
    return Ratio(what, ours, theirs, *[ours / theirs] * 3, LIMIT, "bytes")


def _torch_peak(make: Make) -> int:
    import torch

    step = make()
    step(), step()  # state and gradients are there afterwards
    with torch.profiler.profile(profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events))


def _chainer_peak(make: Make) -> int:
    tracemalloc.start()
    step = make()
    step(), step()
    tracemalloc.reset_peak()
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def _jax_peak(make: Make) -> int:
    import jax

    jax.clear_caches()  # programs of the other contestant
    step = make()
    step()
    programs = jax.devices()[0].client.live_executables()
    return max(_bytes(each.get_compiled_memory_stats()) for each in programs)


def _bytes(stats: Any) -> int:
    results = stats.output_size_in_bytes - stats.alias_size_in_bytes
    return stats.argument_size_in_bytes + stats.temp_size_in_bytes + results


# what a loop by hand has to ask for to write over what it does not need any more
_IN_PLACE = {"jax": {"donate": True}}
PEAKS = {"torch": _torch_peak, "chainer": _chainer_peak, "jax": _jax_peak}
