"""The weights of a network of ours in one written by hand with flax, layer by layer in order."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx


def take_over(network: nnx.Module, parameters: Mapping[str, np.ndarray]) -> None:
    """Write parameters, channels first and in order, into a network with channels last.

    Raises:
        ValueError: There are more on one side, or two differ in size.
    """
    pairs = zip(parameters.items(), _parameters(network), strict=True)
    for (name, value), (own_name, own) in pairs:
        shape = own[...].shape
        if value.size != own[...].size:
            raise ValueError(f"{name} has the shape {value.shape}, {own_name} {shape}")
        if own_name == "kernel":  # (out, in, *size) as (*size, in, out)
            value = np.moveaxis(value, (0, 1), (-1, -2))
        own[...] = jnp.asarray(value.reshape(shape))


def _parameters(node: Any) -> Iterator[tuple[str, nnx.Param]]:
    """All parameters in the order in which they were made."""
    for name, value in vars(node).items():
        if isinstance(value, nnx.Param):
            yield name, value
        elif isinstance(value, nnx.Module):
            yield from _parameters(value)
