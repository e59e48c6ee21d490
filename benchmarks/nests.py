"""Scatter and gather of a nest of 100 leaves over two devices.

The peers are PyTorch's scatter and gather, JAX's trees and a loop by hand.
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.parallel import scatter_gather

from benchmarks.timing import Ratio, compare
from deliralike import backends
from deliralike.parallel import gather, scatter

DEVICES = ["cpu", "cpu"]
REPEATS = 5  # of one contest, so that the clock's own time does not count


def run() -> list[Ratio]:
    """Compare tensors with PyTorch and a loop, and JAX's and NumPy's arrays with JAX's trees."""
    tensors, arrays, host = (
        _nest(leaf)
        for leaf in (lambda: torch.randn(8, 3), lambda: jnp.ones((8, 3)), _on_host)
    )
    of_torch, of_jax = (
        (lambda: _ours(tensors, backends.get("torch"))),
        _ours(arrays, backends.get("jax")),
    )
    return [
        _contest("torch.nn.parallel", of_torch(), _of_torch(tensors), limit=1.0),
        _contest("jax.tree", of_jax, _of_jax_tree(arrays, jnp.concatenate), limit=1.0),
        _contest("by hand for this nest, torch", of_torch(), _by_hand(tensors)),
        _contest(
            "jax.tree, NumPy arrays",
            _ours(host, None),
            _of_jax_tree(host, np.concatenate),
        ),
    ]


def _on_host() -> np.ndarray:
    return np.ones((8, 3))


def _nest(leaf: Callable[[], Any]) -> dict:
    return {
        f"group{i}": [{"x": leaf(), "y": leaf()} for _ in range(5)] for i in range(10)
    }


def _contest(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    limit: float | None = None,
) -> Ratio:
    def repeated(function: Callable[[], object]) -> Callable[[], object]:
        return lambda: [function() for _ in range(REPEATS)]

    return compare(
        f"scatter and gather 100 leaves, {name}",
        repeated(ours),
        repeated(theirs),
        pairs=60,
        limit=limit,
    )


def _ours(nest: dict, backend: Any) -> Callable[[], object]:
    return lambda: gather(scatter(nest, DEVICES, backend=backend), backend=backend)


def _of_torch(nest: dict) -> Callable[[], object]:
    """Return PyTorch's own recursion over the nest.

    Its copies between devices need GPUs. Here both devices are the CPU, and the copies are views.
    """

    class Chunks:
        @staticmethod
        def apply(devices, sizes, dim, tensor):
            return tensor.chunk(len(devices), dim)

    class Joined:
        @staticmethod
        def apply(device, dim, *tensors):
            return torch.cat(tensors, dim)

    def both() -> object:
        with (
            mock.patch.object(scatter_gather, "Scatter", Chunks),
            mock.patch.object(scatter_gather, "Gather", Joined),
        ):
            return scatter_gather.gather(scatter_gather.scatter(nest, DEVICES), "cpu")

    return both


def _by_hand(nest: dict) -> Callable[[], object]:
    """What one writes for this very nest, with PyTorch's calls for one leaf."""

    def share(tensor: torch.Tensor, index: int) -> torch.Tensor:
        return tensor.narrow(0, 4 * index, 4)

    def both() -> object:
        shares = [
            {
                k: [{n: share(t, i) for n, t in d.items()} for d in v]
                for k, v in nest.items()
            }
            for i in (0, 1)
        ]
        first, second = shares
        return {
            k: [
                {n: torch.cat([t, second[k][j][n]]) for n, t in d.items()}
                for j, d in enumerate(v)
            ]
            for k, v in first.items()
        }

    return both


def _of_jax_tree(
    nest: dict, concatenate: Callable[[list], Any]
) -> Callable[[], object]:
    def both() -> object:
        first, second = (
            jax.tree.map(lambda x: x[:4], nest),
            jax.tree.map(lambda x: x[4:], nest),
        )
        return jax.tree.map(lambda a, b: concatenate([a, b]), first, second)

    return both
