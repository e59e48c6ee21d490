"""A network of any backend, or a function, as a function from NumPy arrays to NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.data import batching
from deliralike.errors import ArgumentError, BatchError, UnknownName
from deliralike.network.base import AbstractNetwork
from deliralike.network.forward_errors import explain
from deliralike.network.inputs import call

Predictor = Callable[..., Any]


def predictor_of(network: Any) -> Predictor:
    """Return a function of NumPy arrays that gives outputs as a nest of NumPy arrays.

    A network computes in evaluation mode, without a graph; where its backend compiles, as one
    program for each shape. Its weights, buffers and mode do not change.

    Args:
        network: Written once or native; or a function of NumPy arrays, which may call one.

    Raises:
        ArgumentError: It is neither.
    """
    backend = _backend_of(network)
    if backend is None:
        return lambda *inputs: batching.on_host(network(*inputs))
    wrapped = backend.wrap(network)

    return lambda *inputs: backend.to_numpy(outputs_of(wrapped, inputs))


def outputs_of(network: AbstractNetwork, inputs: tuple[Any, ...]) -> Any:
    """Return the native outputs in evaluation mode; the mode of every block is restored after."""
    backend = network.backend
    arguments = backend.prepare(inputs, network)
    with network.training_mode(False), backend.evaluating():
        try:
            return backend.program(call, network)(*arguments)
        except Exception as error:
            explain(error)
            raise


def pictures(inputs: Any, network: Any) -> tuple[np.ndarray, ...]:
    """Return one array of pictures, or a tuple of several, as a tuple of arrays on the host.

    Args:
        network: What they are for; arrays of its framework may be on any device.

    Shapes:
        ``(samples, channels, *size)``; all have the same samples and size.

    Raises:
        BatchError: An array has no size or no sample, or two do not fit together.
    """
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    backend = _backend_of(network)
    arrays = batching.on_host(several if backend is None else backend.to_numpy(several))
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.ndim < 3 or array.size == 0:
            raise BatchError(
                "pictures are arrays (samples, channels, *size) with at least one sample, not "
                f"{described(array)}"
            )
    first = arrays[0]
    for array in arrays:
        if len(array) != len(first) or array.shape[2:] != first.shape[2:]:
            raise BatchError(
                f"all inputs have the same samples and size: {first.shape} and {array.shape} do not"
            )
    return tuple(arrays)


def _backend_of(network: Any) -> Any:
    """Return the backend of a network; None for a function.

    Raises:
        ArgumentError: It is neither.
    """
    try:
        return backends.of(network)
    except UnknownName as error:
        if isinstance(network, type) or not callable(network):
            raise ArgumentError(
                f"outputs come from a network or a function of arrays, not from {network!r}"
            ) from error
        return None


def described(value: Any) -> str:
    """Return the shape of an array, or the kind of anything else, for an error."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return nest.described(value)
