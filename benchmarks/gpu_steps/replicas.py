"""Two replicas on one device: the same step as without, and what it costs."""

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from benchmarks.gpu_steps import READY, NotRun, Record, device_of
from benchmarks.gpu_steps.equality import CASES, far
from benchmarks.gpu_steps.speed import PLANS, ours
from benchmarks.timing import compare
from deliralike import DataParallel, backends
from deliralike.optim.rules import rule


def twice(kind: str) -> Iterator[Record]:
    """Train on each backend three steps with one network and with two replicas; time both."""
    contests = []
    for name in ("torch", "chainer", "jax"):
        backend = backends.get(name)
        try:
            device = device_of(backend, kind)
        except NotRun as reason:
            yield {"backend": name, "not run": str(reason)}
            continue
        try:
            one, two = (_trained(backend, device, count) for count in (1, 2))
            yield {"backend": name, "three steps in float64": far(two, one)}
            work = PLANS[kind]["resnet50"]
            contests.append(
                (name, *(ours(backend, device, work, replicas=n) for n in (2, 1)))
            )
            for function in contests[-1][1:]:
                function()
        except Exception as error:  # noqa: BLE001 (the other backends are wanted)
            yield {"backend": name, "failed": f"{type(error).__name__}: {error}"[:1500]}
    yield READY
    for name, two, one in contests:
        yield asdict(compare(f"{name}: two replicas, one", two, one, pairs=8))


def _trained(backend, device: str, count: int) -> dict[str, np.ndarray]:
    """Return the parameters after three steps in float64."""
    case = CASES[1]  # without batch norm, whose statistics would be those of a replica
    network = DataParallel(case.built(backend, device, "float64"), [device] * count)
    optimizer = backend.optimizer(rule("sgd", lr=0.1, momentum=0.9), network)
    inputs, labels = case.batch()
    batch = (
        backend.array(inputs, "float64", device),
        backend.array(labels, None, device),
    )
    for _ in range(3):
        optimizer.update(
            lambda network, x, y: network.nn.cross_entropy(network(x), y), *batch
        )
    return dict(network.neutral_state())
