"""Networks of the zoo against reference implementations: forward passes, training steps, memory.

On PyTorch torchvision's and MONAI's, eager and compiled; on JAX networks written by hand with flax;
on Chainer its own ResNet-50 (which has its strides in the first convolution of a block, so 6 %
fewer multiply-adds than torchvision's).
"""

import importlib
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import Ratio, compare_fresh
from deliralike import backends, zoo
from deliralike.optim.rules import rule

# architecture: (settings, sample's shape, batch)
ON_TORCH = {
    "resnet50": ({}, (3, 224, 224), 2),
    "densenet121": ({}, (3, 224, 224), 2),
    "efficientnet_b0": ({}, (3, 224, 224), 2),
    "vit_b_16": ({}, (3, 224, 224), 2),
    "unet": ({"dims": 3}, (1, 48, 48, 48), 1),
}
# architecture: (module by hand, settings)
ON_JAX: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet50": ("jax_resnet50", {}),
    "vit_b_16": ("jax_vit", {}),
    "mixer_b16_224": ("jax_mixer", {}),
    "convnext_tiny": ("jax_convnext", {"stochastic_depth": 0.0}),
    "swin_t": ("jax_swin", {"stochastic_depth": 0.0}),
}
LIMITS = {"torch": 1.02, "chainer": 1.02, "jax": 1.05}


def run() -> list[Ratio]:
    """Return all ratios except those of compiled networks: see `zoo_compiled`."""
    torch = [
        ratio
        for name in ON_TORCH
        for ratio in (*on_torch(name), saved_for_backward(name))
    ]
    return [*torch, *on_chainer(), *on_jax()]


def on_torch(
    name: str, compiled: bool = False, rounds: int = 3, pairs: int = 8
) -> list[Ratio]:
    """Compare the forward pass without a graph, and a training step, with the reference network.

    Both sides use PyTorch's own loss and optimizer.
    """
    label = f"{name}, torch{' compiled' if compiled else ''}"
    timed = partial(compare_fresh, rounds=rounds, pairs=pairs, limit=LIMITS["torch"])
    return [
        timed(f"{label}, {what}", lambda make=make: _torch_pair(name, make, compiled))
        for what, make in (("forward", _torch_forward), ("step", _torch_step))
    ]


def saved_for_backward(name: str) -> Ratio:
    """The bytes that a forward pass keeps for the backward pass, each storage counted once."""
    ours, theirs = (
        _saved_bytes(network, _inputs(name)) for network in _torch_networks(name)
    )
    return Ratio(
        f"{name}, torch, kept for backward",
        ours,
        theirs,
        *[ours / theirs] * 3,
        LIMITS["torch"],
        "bytes",
    )


def on_chainer() -> list[Ratio]:
    """ResNet-50, forward and step."""
    backend = backends.get("chainer")  # first: it bridges Chainer to NumPy 2
    by_hand = importlib.import_module("benchmarks.by_hand.chainer_resnet50")
    images, labels = _inputs("resnet50"), _labels(2)

    def forward():
        network = zoo.build("resnet50", backend=backend).eval()
        return partial(_evaluated, backend, network, images), by_hand.forward(images)

    def step():
        return _neutral_step(
            backend, "resnet50", images, labels
        ), by_hand.training_step(images, labels)

    timed = partial(compare_fresh, rounds=2, pairs=5, limit=LIMITS["chainer"])
    return [
        timed("resnet50, Chainer, forward", forward),
        timed("resnet50, Chainer, step", step),
    ]


def on_jax() -> list[Ratio]:
    """Forward and step, one compiled program each."""
    return [ratio for name in ON_JAX for ratio in _on_jax(name)]


def _on_jax(name: str) -> list[Ratio]:
    module, settings = ON_JAX[name]
    by_hand = importlib.import_module(f"benchmarks.by_hand.{module}")
    backend, images, labels = backends.get("jax"), _images(2, 3, 224, 224), _labels(2)

    def forward():
        network = zoo.build(name, backend=backend, **settings).eval()
        return partial(_evaluated, backend, network, images), by_hand.forward(images)

    def step():
        ours = _neutral_step(backend, name, images, labels, **settings)
        return ours, by_hand.training_step(images, labels, donate=True)

    timed = partial(compare_fresh, rounds=1, pairs=8, limit=LIMITS["jax"])
    return [timed(f"{name}, JAX, forward", forward), timed(f"{name}, JAX, step", step)]


def _inputs(name: str) -> np.ndarray:
    _, shape, batch = ON_TORCH[name]
    return _images(batch, *shape)


def _images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _labels(batch: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1000, batch)


# PyTorch
# -----------------------------------------------------------------------------


def _torch_networks(name: str) -> tuple[Any, Any]:
    """Ours and the reference's."""
    references = importlib.import_module("benchmarks.by_hand.references")
    return zoo.build(name, backend="torch", **ON_TORCH[name][0]), references.make(name)


def _torch_pair(
    name: str, make: Callable[..., Callable[[], Any]], compiled: bool
) -> tuple[Any, Any]:
    import torch

    images = torch.from_numpy(_inputs(name))
    if compiled:
        torch._dynamo.reset()
    ours, theirs = (
        make(network, torch.compile(network) if compiled else network, images)
        for network in _torch_networks(name)
    )
    return ours, theirs


def _torch_forward(network: Any, called: Any, images: Any) -> Callable[[], Any]:
    import torch

    network.eval()

    def forward():
        with torch.no_grad():
            return called(images)

    return forward


def _torch_step(network: Any, called: Any, images: Any) -> Callable[[], Any]:
    import torch

    optimizer = torch.optim.SGD(network.train().parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        loss = called(images).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _saved_bytes(network: Any, images: np.ndarray) -> int:
    import torch

    sizes = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = network.train()(torch.from_numpy(images))
    del output
    return sum(sizes.values())


# The neutral optimizers
# -----------------------------------------------------------------------------


def _neutral_step(
    backend: Any, name: str, images: np.ndarray, labels: np.ndarray, **settings: Any
) -> Callable[[], float]:
    network = zoo.build(name, backend=backend, **settings).train()
    optimizer = backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)
    return lambda: float(backend.numpy(optimizer.update(_loss, images, labels)))


def _loss(network, images, labels):
    return network.nn.cross_entropy(network(images), labels)


def _evaluated(backend: Any, network: Any, images: np.ndarray) -> np.ndarray:
    with backend.evaluating():
        evaluate = backend.program(operator.call, network)
        return backend.numpy(evaluate(backend.prepare(images, network)))
