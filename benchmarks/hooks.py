"""What replication costs beside the computation: the two hooks, and the memory of the replicas."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.timing import Ratio, compare
from deliralike import DataParallel, backends, in_replicas, zoo
from deliralike.optim.rules import rule

DEVICES = {"torch": "cpu", "chainer": "@numpy", "jax": "cpu"}
STEPS = 200


def run() -> list[Ratio]:
    """Return the hooks' time for two replicas, and the replicas' bytes over the parameters'."""
    return [*map(_hooks, DEVICES), *_memory("torch"), *_memory("chainer")]


def _hooks(name: str) -> Ratio:
    """Return the hooks' time over its bound: 2.5 times one read and one write.

    Accumulating reads twice and writes once; copying reads and writes once.
    """
    backend, network = backends.get(name), zoo.build("resnet18", backend=name)
    network = DataParallel(network, [DEVICES[name]] * 2)
    optimizer = backend.optimizer(rule("sgd", lr=0.0), network)
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(4, 3, 32, 32)).astype(np.float32), rng.integers(0, 1000, 4)
    loss = in_replicas(lambda network, x, y: network.nn.cross_entropy(network(x), y))
    _, gradients = optimizer.gradients(loss, *backend.prepare(batch, network))
    optimizer.updated = tuple(gradients)
    bytes_ = [
        value for key, value in network.neutral_state().items() if key in gradients
    ]
    elsewhere = [np.empty_like(value) for value in bytes_]

    handed_over = [
        *network.parallelism.replica_gradients()
    ]  # which may clear them: each run gets the same
    optimizer._of_replicas = handed_over

    def ours() -> None:
        total = optimizer.pre_update_hooks[0](optimizer, gradients)
        optimizer.post_update_hooks[0](optimizer)
        backend.numpy(next(iter(total.values())))

    def theirs() -> None:
        for target, source in zip(elsewhere, bytes_, strict=True):
            np.copyto(target, source)

    return compare(
        f"both hooks, {name}, ResNet-18, a read and a write of the parameters",
        ours,
        theirs,
        pairs=30,
    )


def _memory(name: str) -> list[Ratio]:
    """Resident bytes of three replicas by the parameters' bytes.

    Two more replicas have parameters and gradients of their own, and accumulating may need one sum:
    at most five times the parameters. Each number of replicas has a process of its own, so that
    none uses what another has freed.
    """
    size = 4 * zoo.build("mlp", backend=name, **_LARGE).count_parameters()
    one, three = _in_another_process(name, 1), _in_another_process(name, 3)
    what = f"bytes, {name}, the parameters':"
    return [
        _bytes(
            f"{what} two more replicas", three["peak"] - one["peak"], size, limit=5.0
        ),
        _bytes(
            f"{what} growth of three replicas over {STEPS} steps",
            three["late"] - three["early"],
            size,
            limit=0.05,
        ),
    ]


def _bytes(name: str, ours: int, theirs: int, limit: float) -> Ratio:
    ratio = ours / theirs
    return Ratio(name, ours, theirs, ratio, ratio, ratio, limit, unit="bytes")


def _in_another_process(name: str, replicas: int) -> dict[str, int]:
    code = f"from benchmarks import hooks; hooks.print_memory({name!r}, {replicas})"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.splitlines()[-1])


_LARGE = {"in_features": 512, "hidden": (2048, 2048), "out_features": 512}


def print_memory(name: str, replicas: int) -> None:
    """Print as JSON this process's resident bytes after some steps, after many, and the most."""
    backend = backends.get(name)
    network = DataParallel(
        zoo.build("mlp", backend=name, **_LARGE), [DEVICES[name]] * replicas
    )
    optimizer = backend.optimizer(rule("sgd", lr=0.001), network)
    x = np.zeros((3, 512), np.float32)
    found = {}
    for moment, steps in {"early": 100, "late": STEPS}.items():
        for _ in range(steps):
            optimizer.update(_squares, x)
        found[moment] = _resident("VmRSS")
    print(json.dumps(found | {"peak": _resident("VmHWM")}))


def _resident(field: str) -> int:
    """Return a field of the kernel's memory figures of this process, in bytes.

    The largest value of `getrusage` would include the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def _squares(network, x):
    y = network(x)
    return network.nn.mean(y * y)
