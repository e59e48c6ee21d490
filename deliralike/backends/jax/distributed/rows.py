"""The batch of several processes as one global batch.

The shares are padded to one size on their way in, and the padding is cut off inside the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from deliralike import nest
from deliralike.backends.jax.arrays import draw_on_each_device
from deliralike.backends.jax.distributed.mesh import ProcessMesh
from deliralike.optim.loss import Loss

Description = tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of the joined, padded shares that are samples.

    Attributes:
        mesh: The devices of the processes.
        sizes: The samples of each process.
        dims: Of each leaf of the batch the axis that counts samples; None for one that all
            processes have alike.
    """

    mesh: ProcessMesh
    sizes: tuple[int, ...]
    dims: tuple[int | None, ...]

    @cached_property
    def numbers(self) -> np.ndarray:
        """The numbers of these rows, in the order of samples."""
        numbers = []
        for rank, size in enumerate(self.sizes):
            begin = rank * self.largest
            numbers.append(np.arange(begin, begin + size))
        return np.concatenate(numbers)

    @property
    def largest(self) -> int:
        """The size that each share is padded to."""
        return max(self.sizes)

    def join(
        self, leaves: Sequence[Any], size: int, descriptions: Sequence[Description]
    ) -> list[Any]:
        """Return the leaves of a batch, joined over all processes.

        This process has `size` samples of the batch.
        """
        joined = []
        for leaf, dim, description in zip(leaves, self.dims, descriptions, strict=True):
            if dim is not None:
                leaf = self.mesh.join(self._pad(leaf, size, dim, description), dim)
            joined.append(leaf)
        return joined

    def _pad(
        self, leaf: Any, size: int, dim: int, description: Description
    ) -> jax.Array:
        dtype, shape = description
        if size == 0:  # whatever there is does not count, and may have any size
            padded = [*shape[:dim], self.largest, *shape[dim:]]
            return jnp.zeros(padded, dtype)
        missing = [(0, 0)] * leaf.ndim
        missing[dim] = (0, self.largest - size)
        if isinstance(leaf, np.ndarray):
            return jnp.asarray(np.pad(leaf, missing))
        return jnp.pad(leaf, missing)

    def samples(self, batch: tuple) -> tuple:
        """Return the samples of all processes, without padding, sharded over the mesh.

        This is called inside a program.
        """
        leaves, structure = nest.flatten(batch)
        samples = []
        for leaf, dim in zip(leaves, self.dims, strict=True):
            samples.append(leaf if dim is None else self._cut(leaf, dim))
        return structure.unflatten(samples)

    def _cut(self, leaf: jax.Array, dim: int) -> jax.Array:
        if len(set(self.sizes)) > 1:
            leaf = jnp.take(leaf, self.numbers, axis=dim)
        return lax.with_sharding_constraint(leaf, self.mesh.rows(dim))


def describe(leaf: Any, dim: int | None) -> Description:
    """Describe what processes must agree on about a leaf of their batches.

    This is the type and shape of an array, or the value of anything else.
    """
    if not hasattr(leaf, "dtype"):
        return (repr(leaf),)
    shape = list(leaf.shape)
    if dim is not None:
        del shape[dim]
    return (str(leaf.dtype), tuple(shape))


@dataclass(frozen=True)
class GlobalBatchFunction:
    """A loss in replicas, in a program that sees the batch of all processes.

    Equal ones share a program.
    """

    loss: Loss
    rows: Rows

    def __call__(self, network: Any, *batch: Any) -> Any:
        """The loss of the whole batch."""
        batch = self.rows.samples(batch)
        with draw_on_each_device(self.rows.mesh.device_mesh):
            return self.loss.whole(network.root, *batch)
