"""Training steps over two replicas on JAX's virtual devices of a CPU.

Beside them ``shard_map`` by hand over the same network, and the same network on one device with
both cores. Each network has a process of its own, as virtual devices are asked for before JAX
starts. It wants two idle cores.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.replicas import TWO_DEVICES, waiting_for
from benchmarks.timing import Ratio, compare_fresh, in_fresh_process
from deliralike import DataParallel, backends, in_replicas, zoo
from deliralike.optim.rules import rule

LEARNING_RATE = 0.01
DEVICES = ["cpu", "cpu:1"]
Step = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """A network, its batch, and the largest ratio to ``shard_map`` by hand."""

    name: str
    settings: dict[str, Any]
    shape: tuple[int, ...]
    limit: float


CASES = (
    Case("mlp", {"in_features": 64, "out_features": 10}, (64, 64), 2.0),
    Case("resnet8", {"in_channels": 3}, (16, 3, 32, 32), 0.7),
    Case("resnet18", {"num_classes": 10}, (8, 3, 32, 32), 0.6),
)


def run() -> list[Ratio]:
    """Return the times of our two replicas over both peers."""
    ratios = []
    for number in range(len(CASES)):
        found = in_fresh_process(
            "benchmarks.jax_replicas", number, environment=TWO_DEVICES
        )
        ratios += [Ratio(**each) for each in found]
    return ratios


def measure(case: Case) -> list[Ratio]:
    """Compare the replicas of one network with both peers, in this process."""
    rng = np.random.default_rng(0)
    batch = rng.normal(size=case.shape).astype(np.float32)
    labels = rng.integers(0, 10, case.shape[0])
    replicas = partial(_step, case, batch, labels, DEVICES)
    peers = {
        "shard_map by hand": (partial(_by_shard_map, case, batch, labels), case.limit),
        "one device": (partial(_step, case, batch, labels, DEVICES[:1]), None),
    }
    ratios = []
    for name, (peer, limit) in peers.items():
        make = lambda peer=peer: (replicas(), peer())  # noqa: E731
        what = f"{case.name} step, jax: two replicas, {name}"
        ratios.append(compare_fresh(what, make, rounds=1, pairs=20, limit=limit))
    return ratios


def _network(case: Case) -> Any:
    return zoo.build(case.name, backend="jax", **case.settings)


def _loss(network: Any, inputs: Any, labels: Any) -> Any:
    return network.nn.cross_entropy(network(inputs), labels)


def _step(
    case: Case, inputs: np.ndarray, labels: np.ndarray, devices: list[str]
) -> Step:
    """Return a training step of ours, which ends when all parameters are there."""
    backend = backends.get("jax")
    network = _network(case)
    loss = _loss
    if len(devices) > 1:
        network = DataParallel(network, devices)
        loss = in_replicas(_loss)
    optimizer = backend.optimizer(rule("sgd", lr=LEARNING_RATE, momentum=0.9), network)

    wait = waiting_for(network)

    def step() -> float:
        value = float(backend.numpy(optimizer.update(loss, inputs, labels)))
        wait()
        return value

    return step


def _by_shard_map(case: Case, inputs: np.ndarray, labels: np.ndarray) -> Step:
    """Return one compiled step over a mesh, with means of gradients and buffers."""
    import jax
    import optax
    from flax import nnx
    from jax.sharding import Mesh, PartitionSpec

    network = _network(case)
    graph, parameters, buffers = nnx.split(network, nnx.Param, ...)
    optimizer = optax.sgd(LEARNING_RATE, momentum=0.9)
    state = optimizer.init(parameters)
    mesh = Mesh(jax.devices()[:2], ("data",))
    whole = PartitionSpec()
    share = PartitionSpec("data")

    def loss_function(parameters: Any, buffers: Any, x: Any, y: Any) -> Any:
        merged = nnx.merge(graph, parameters, buffers, copy=True)
        return _loss(merged, x, y), nnx.split(merged, nnx.Param, ...)[2]

    def gradients_of(parameters: Any, buffers: Any, x: Any, y: Any) -> Any:
        with_buffers = jax.value_and_grad(loss_function, has_aux=True)
        (loss, buffers), gradients = with_buffers(parameters, buffers, x, y)
        return jax.lax.pmean((loss, buffers, gradients), "data")

    over_mesh = jax.shard_map(
        gradients_of,
        mesh=mesh,
        in_specs=(whole, whole, share, share),
        out_specs=whole,
        check_vma=False,
    )

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def compiled(parameters: Any, buffers: Any, state: Any, x: Any, y: Any) -> Any:
        loss, buffers, gradients = over_mesh(parameters, buffers, x, y)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), buffers, state, loss

    def step() -> float:
        nonlocal parameters, buffers, state
        parameters, buffers, state, loss = compiled(
            parameters, buffers, state, inputs, labels
        )
        jax.block_until_ready((parameters, buffers))
        return float(loss)

    return step


if __name__ == "__main__":
    print(json.dumps([asdict(each) for each in measure(CASES[int(sys.argv[1])])]))
