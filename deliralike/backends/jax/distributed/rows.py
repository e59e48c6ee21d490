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
from deliralike.backends.jax.arrays import drawing_everywhere
from deliralike.backends.jax.distributed.mesh import ProcessMesh
from deliralike.optim.loss import Loss

Described = tuple[Any, ...]


@dataclass(frozen=True)
class Rows:
    """Which rows of the joined, padded shares are samples.

    Attributes:
        over: The mesh.
        sizes: The samples of each process.
        dims: Of each leaf of the batch the axis that counts samples; None for one that all
            processes have alike.
    """

    over: ProcessMesh
    sizes: tuple[int, ...]
    dims: tuple[int | None, ...]

    @cached_property
    def numbers(self) -> np.ndarray:
        """Theirs, in the order of samples."""
        each = [np.arange(size) + rank * self.largest for rank, size in enumerate(self.sizes)]
        return np.concatenate(each)

    @property
    def largest(self) -> int:
        """What each share is padded to."""
        return max(self.sizes)

    def joined(self, leaves: Sequence[Any], size: int, wanted: Sequence[Described]) -> list[Any]:
        """Return the leaves of a batch, joined over all processes.

        This process has `size` samples of the batch.
        """
        return [
            leaf if dim is None else self.over.joined(self._padded(leaf, size, dim, described), dim)
            for leaf, dim, described in zip(leaves, self.dims, wanted, strict=True)
        ]

    def _padded(self, leaf: Any, size: int, dim: int, described: Described) -> jax.Array:
        dtype, shape = described
        if size == 0:  # whatever there is does not count, and may have any size
            return jnp.zeros([*shape[:dim], self.largest, *shape[dim:]], dtype)
        missing = [(0, self.largest - size if axis == dim else 0) for axis in range(leaf.ndim)]
        return jnp.asarray(
            np.pad(leaf, missing) if isinstance(leaf, np.ndarray) else jnp.pad(leaf, missing)
        )

    def samples(self, batch: tuple) -> tuple:
        """Return the samples of all processes, without padding, sharded over the mesh.

        This is called inside a program.
        """
        leaves, structure = nest.flatten(batch)
        return structure.unflatten(
            [
                leaf if dim is None else self._cut(leaf, dim)
                for leaf, dim in zip(leaves, self.dims, strict=True)
            ]
        )

    def _cut(self, leaf: jax.Array, dim: int) -> jax.Array:
        if len(set(self.sizes)) > 1:
            leaf = jnp.take(leaf, self.numbers, axis=dim)
        return lax.with_sharding_constraint(leaf, self.over.rows(dim))


def described(leaf: Any, dim: int | None) -> Described:
    """Describe what processes must agree on about a leaf of their batches.

    This is the type and shape of an array, or the value of anything else.
    """
    if not hasattr(leaf, "dtype"):
        return (repr(leaf),)
    return (str(leaf.dtype), tuple(size for axis, size in enumerate(leaf.shape) if axis != dim))


@dataclass(frozen=True)
class OfAll:
    """A function of a network and a batch, in a program that sees the global batch.

    The batch is that of all processes. Equal functions share a program.

    Attributes:
        function: A loss in replicas, or None for the network itself.
    """

    function: Loss | None
    rows: Rows

    def __call__(self, network: Any, *batch: Any) -> Any:
        """The loss, or the outputs, of the whole batch."""
        batch = self.rows.samples(batch)
        with drawing_everywhere(self.rows.over.mesh):
            if self.function is not None:
                return self.function.whole(network.root, *batch)
            args, kwargs = batch
            return network.root(*args, **kwargs)
