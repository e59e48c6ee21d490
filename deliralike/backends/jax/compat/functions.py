"""The functions of ``torch.nn.parallel``, with their signatures, for nnx modules.

Devices are numbers (places in ``backend.devices()``), names or ``jax.Device``; CPUs count, and one
may stand several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from deliralike import nest
from deliralike.backends.jax import arrays
from deliralike.backends.jax.network import AbstractJaxNetwork, named_modules
from deliralike.backends.jax.replicas.copies import ReplicaCopy
from deliralike.backends.jax.replicas.network import DataParallelJaxNetwork
from deliralike.errors import ArgumentError, DeviceError
from deliralike.parallel import gather as gather_nests
from deliralike.parallel.batches.scatter import split_batch
from deliralike.parallel.replicas.callbacks import call_replication_callbacks
from deliralike.parallel.replicas.run_in_threads import run_in_turn


class DataParallel(DataParallelJaxNetwork):
    """A module as several replicas, with the signature of ``torch.nn.DataParallel``.

    Better here: CPU devices and repeated devices work; shares differ by at most one sample;
    replicas are made once and not at every call; the optimizer's step is compiled.
    State has no ``module.`` prefix.

    Args:
        device_ids: One for each replica; all devices of the default kind when None.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> DataParallel(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), ["cpu", "cpu"])(jnp.ones((5, 3))).shape
        (5, 2)
    """

    def __init__(
        self,
        module: Any,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        if output_device is not None:
            output_device = device_name(output_device)
        super().__init__(module, _devices(device_ids), output_device, dim)


def data_parallel(
    module: Any,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Compute ``module(*inputs)`` over several devices, as `DataParallel` does.

    Better here: CPU devices work, and inside your own ``nnx.grad`` over one device, named several
    times, gradients land on the module given.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        >>> data_parallel(layer, jnp.ones((5, 3)), ["cpu", "cpu"]).shape
        (5, 2)
    """
    if inputs is None:
        inputs = ()
    elif not isinstance(inputs, tuple):
        inputs = (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(
        *inputs, **(module_kwargs or {})
    )


def scatter(inputs: Any, devices: Sequence[Any], dim: int = 0) -> list[Any]:
    """Split a nest into shares, one for each device, fewer where there are fewer samples.

    Better here: no share is empty, nests of any type keep it, and arrays that disagree on the batch
    size are an error that names both.

    Example:
        >>> import jax.numpy as jnp
        >>> [len(share["x"]) for share in scatter({"x": jnp.ones((5, 2))}, ["cpu", "cpu", "cpu"])]
        [2, 2, 1]
    """
    names = [*map(device_name, devices)]
    return split_batch(inputs, names, dim, None, AbstractJaxNetwork.backend).nests


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Gather the replicas' outputs as one nest on a device.

    Better here: arrays without axes become a vector; None, numbers and strings that are equal come
    once; outputs that differ in structure are an error that names the path.

    Example:
        >>> import jax.numpy as jnp
        >>> gather([{"y": jnp.ones((3, 2))}, {"y": jnp.ones((2, 2))}], "cpu")["y"].shape
        (5, 2)
    """
    name = device_name(target_device)
    return gather_nests(outputs, dim, name, backend=AbstractJaxNetwork.backend)


def replicate(network: Any, devices: Sequence[Any]) -> list[Any]:
    """Return a module and copies of it, one for each device.

    The copies own their storage and have random streams of their own.

    Raises:
        DeviceError: The module is not on the first device.
        SettingError: The module, or a block of it, is replicated already.

    Example:
        >>> from flax import nnx
        >>> first, second = replicate(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), ["cpu", "cpu"])
        >>> bool((first.kernel[...] == second.kernel[...]).all())
        True
    """
    names = [*map(device_name, devices)]
    wrapped = AbstractJaxNetwork.backend.wrap(network)
    wrapped.parallelism.refuse_replicas()
    if wrapped.device_name != names[0]:
        raise DeviceError(
            f"the module is on {wrapped.device_name!r}, the first device is {names[0]!r}: name its "
            "device first"
        )
    replicas = [network]
    for index, name in enumerate(names[1:], start=1):
        copy = ReplicaCopy(network, name, index)
        copy.derive_streams(copy.streams())
        replicas.append(copy.network)
    return replicas


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Return each module's output for its own inputs, which go to its own device, in order.

    Modules are called one after the other; JAX goes on while a device computes. An error keeps its
    type, and a note says which module raised it.

    Raises:
        ArgumentError: There are not as many inputs as modules.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> replicas = replicate(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), ["cpu", "cpu"])
        >>> [y.shape for y in parallel_apply(replicas, [jnp.ones((3, 3)), jnp.ones((2, 3))])]
        [(3, 2), (2, 2)]
    """
    if kwargs_tup is None:
        kwargs_tup = [{}] * len(modules)
    if devices is None:
        names = [
            AbstractJaxNetwork.backend.wrap(module).device_name for module in modules
        ]
    else:
        names = [*map(device_name, devices)]
    if not len(modules) == len(inputs) == len(kwargs_tup) == len(names):
        raise ArgumentError(
            f"parallel_apply: {len(modules)} modules, {len(inputs)} inputs, {len(kwargs_tup)} "
            f"dicts of keyword arguments and {len(names)} devices: give as many of each"
        )
    jobs = []
    for arguments in zip(modules, names, inputs, kwargs_tup, strict=True):
        jobs.append(partial(_call_on_device, *arguments))
    labels = [f"replica {i} of {len(jobs)} on {name}" for i, name in enumerate(names)]
    return run_in_turn(jobs, labels)


def _call_on_device(module: Any, device: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call a module with its arguments moved to a device."""

    def move(leaf: Any) -> Any:
        return arrays.move(leaf, device) if isinstance(leaf, jax.Array) else leaf

    if not isinstance(args, tuple):
        args = (args,)
    args, kwargs = nest.map(move, (args, kwargs))
    return module(*args, **kwargs)


def exec_data_parallel_replication_callback(modules: Sequence[Any]) -> None:
    """Call ``__data_parallel_replicate__(context, copy_id)`` on each sub-module that has it.

    The sub-modules of the first replica come first.

    `DataParallel` does so when it makes its replicas.

    Example:
        >>> from flax import nnx
        >>> class Layer(nnx.Module):
        ...     def __data_parallel_replicate__(self, context, copy_id):
        ...         self.copy_id = copy_id
        >>> layers = [Layer(), Layer()]
        >>> exec_data_parallel_replication_callback(layers)
        >>> [layer.copy_id for layer in layers]
        [0, 1]
    """
    blocks = []
    for module in modules:
        blocks.append([block for _, block in named_modules(module)])
    call_replication_callbacks(blocks)


def device_name(device: Any) -> str:
    """The name of a device that is given by number, by name or as one of JAX's."""
    if isinstance(device, jax.Device):
        return arrays.name_of(device)
    if isinstance(device, int):
        present = arrays.devices()
        if not 0 <= device < len(present):
            raise DeviceError(
                f"backend 'jax' has no device number {device} here: it has {len(present)}"
            )
        return present[device]
    return AbstractJaxNetwork.backend.check_device(device)


def _devices(device_ids: Sequence[Any] | None) -> list[str]:
    if device_ids is not None:
        return [*map(device_name, device_ids)]
    kind = arrays.find_device(arrays.default_device()).platform
    return [
        name for name in arrays.devices() if arrays.find_device(name).platform == kind
    ]
