"""The training step of ResNet-18 over two CPU replicas against one replica that has both cores.

The batch holds 32 images of 3x64x64.

The loss is computed inside the replicas. JAX's part runs in a process of its own: virtual devices
are asked for before JAX starts. Two processes under PyTorch's DistributedDataParallel are the peer
past one process.
"""

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from benchmarks.timing import Ratio, compare_fresh, in_fresh_process
from deliralike import DataParallel, backends, in_replicas, zoo
from deliralike.optim.rules import rule

DEVICES = {
    "torch": ["cpu", "cpu"],
    "chainer": ["@numpy", "@numpy"],
    "jax": ["cpu", "cpu:1"],
}
# A throughput of at least 1.05 and 1.8 times the single replica's; JAX's virtual devices are for
# tests: reported.
LIMITS = {"torch": 1 / 1.05, "chainer": 1 / 1.8, "jax": None}
ROUNDS = {"torch": (6, 8), "chainer": (3, 4), "jax": (1, 8)}
TWO_DEVICES = {"JAX_NUM_CPU_DEVICES": "2"}


def run() -> list[Ratio]:
    """Return times of replicas over one replica, over replicas in turn, over two processes."""
    ratios = [_against_one(name) for name in ("torch", "chainer")]
    ratios += [_against_one_after_the_other(name) for name in ("torch", "chainer")]
    ratios += [_against_by_hand("chainer")]
    of_jax = in_fresh_process("benchmarks.replicas", environment=TWO_DEVICES)
    return [*ratios, Ratio(**of_jax), _against_processes(), *_on_gpu()]


def _batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(32, 3, 64, 64)).astype(np.float32), rng.integers(
        0, 1000, 32
    )


def _loss(network, images, labels):
    return network.nn.cross_entropy(network(images), labels)


_inside = in_replicas(_loss)


def _step(
    name: str, replicas: bool, devices: Sequence[str] = (), **settings: object
) -> Callable[[], float]:
    backend, batch, devices = backends.get(name), _batch(), devices or DEVICES[name]
    network = zoo.build("resnet18", backend=name, device=devices[0])
    network = DataParallel(network, devices, **settings) if replicas else network
    optimizer = backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)

    wait = waiting_for(network) if name == "jax" else lambda: None

    def step() -> float:
        loss = float(backend.numpy(optimizer.update(_inside, *batch)))
        wait()
        return loss

    return step


def waiting_for(network) -> Callable[[], object]:
    """Return a function that waits on JAX for all parameters.

    JAX gives the loss before they are updated and copied.
    """
    import jax

    slots: list = []
    for replica in getattr(network, "replicas", [network]):
        slots += replica.neutral_slots().values()
    return lambda: jax.block_until_ready([slot.native.get_value() for slot in slots])


def _against_one(name: str) -> Ratio:
    rounds, pairs = ROUNDS[name]
    make = lambda: (_step(name, replicas=True), _step(name, replicas=False))  # noqa: E731
    what = f"ResNet-18 step, {name}: two replicas, one"
    return compare_fresh(what, make, rounds=rounds, pairs=pairs, limit=LIMITS[name])


def _against_one_after_the_other(name: str) -> Ratio:
    rounds, pairs = ROUNDS[name]
    make = lambda: (_step(name, True), _step(name, True, parallel=False))  # noqa: E731
    what = f"ResNet-18 step, {name}: two replicas, the same one after the other"
    return compare_fresh(what, make, rounds=rounds, pairs=pairs)


def _against_by_hand(name: str) -> Ratio:
    """One network in the framework's own layers, with both cores."""
    by_hand = importlib.import_module(f"benchmarks.by_hand.{name}_resnet")
    rounds, pairs = ROUNDS[name]
    make = lambda: (_step(name, True), by_hand.training_step(*_batch()))  # noqa: E731
    what = f"ResNet-18 step, {name}: two replicas, one network by hand"
    return compare_fresh(what, make, rounds=rounds, pairs=pairs)


def _on_gpu() -> list[Ratio]:
    """Compare, where a GPU is, with the bare network and with PyTorch's DataParallel.

    A single GPU is taken twice.
    """
    found = [
        device
        for device in backends.get("torch").devices()
        if device.startswith("cuda")
    ]
    if not found:
        return []
    devices = found if len(found) > 1 else found * 2
    ours = lambda: _step("torch", True, devices=devices)  # noqa: E731
    rivals = {
        "one": lambda: _step("torch", False, devices=devices),
        "torch.nn.DataParallel": lambda: _of_torch(found),
    }
    return [
        compare_fresh(
            f"ResNet-18 step, {', '.join(devices)}: replicas, {name}",
            lambda theirs=theirs: (ours(), theirs()),
            rounds=3,
            pairs=8,
        )
        for name, theirs in rivals.items()
    ]


def _of_torch(devices: list[str]) -> Callable[[], float]:
    """PyTorch's own, which needs different devices."""
    import torch

    backend, batch = backends.get("torch"), _batch()
    network = zoo.build("resnet18", backend="torch", device=devices[0])
    whole = torch.nn.DataParallel(
        network, device_ids=[torch.device(device).index for device in devices]
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def step() -> float:
        images, labels = backend.prepare(batch, network)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(whole(images), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _against_processes() -> Ratio:
    from benchmarks.by_hand import torch_processes

    with torch_processes.two_processes(*_batch()) as theirs:
        what = "ResNet-18 step, torch: two replicas, two gloo processes"
        return compare_fresh(
            what, lambda: (_step("torch", True), theirs), rounds=3, pairs=8
        )


if __name__ == "__main__":
    print(json.dumps(asdict(_against_one("jax"))))
