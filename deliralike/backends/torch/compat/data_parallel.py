"""``torch.nn.DataParallel`` and its function, with replication callbacks, by their known names.

Only this backend has this file, as the names are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, wraps
from typing import Any

import torch

from deliralike.backends.torch.compat import functions
from deliralike.backends.torch.replicas.lazy import has_lazy, initialize_lazy
from deliralike.backends.torch.replicas.thread_context import device_name, device_names
from deliralike.errors import ArgumentError, DeviceError
from deliralike.parallel.replicas.callbacks import call_replication_callbacks

_CALLS = "calls_replication_callbacks"


class DataParallel(torch.nn.DataParallel):
    """A module on several devices, like ``torch.nn.DataParallel``, on CPUs too.

    Each forward scatters the batch, replicates the module and gathers the outputs, and gradients
    reach the given module: any optimizer of PyTorch's over its parameters works unchanged.
    `replicate`, `scatter`, `parallel_apply` and `gather` may be overridden. Names in ``state_dict``
    begin with ``module.``.

    Better than the original: ``["cpu", "cpu"]`` works, so it is tested without a GPU; replicas have
    parameters; attributes that ``forward`` sets on the module for the first share stay;
    `SynchronizedBatchNorm2d` sees the whole batch; errors keep their object.
    `deliralike.DataParallel` does more: its replicas persist, losses are computed inside them, and
    names have no prefix.

    Args:
        module: The module, with its parameters on the first device.
        device_ids: Numbers of GPUs, names or ``torch.device``. None: all GPUs, or the plain module
            without any.
        output_device: The device of the gathered outputs; the first device when None, the CPU for
            -1.
        dim: The axis that counts samples.

    Example:
        >>> layer = torch.nn.Linear(3, 1)
        >>> DataParallel(layer, ["cpu", "cpu"])(torch.ones(5, 3)).sum().backward()
        >>> layer.bias.grad
        tensor([5.])
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        """Wrap the module, which is not changed."""
        torch.nn.Module.__init__(self)  # PyTorch's own __init__ here knows no CPU
        self.module = module
        self.dim = dim
        self.device_ids: list[Any] = []
        if device_ids is not None or torch.cuda.is_available():
            self.device_ids = device_names(device_ids, "cpu")
        if device_ids is not None and not self.device_ids:
            raise DeviceError(
                "DataParallel: device_ids is empty; None stands for all GPUs"
            )
        first = self.device_ids[0] if self.device_ids else "cpu"
        self.output_device: Any = (
            first if output_device is None else device_name(output_device)
        )
        self.src_device_obj = torch.device(first)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Scatter the arguments, replicate the module, run the replicas, and gather the outputs.

        Raises:
            DeviceError: A parameter or buffer is not on the first device.
        """
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _refuse_other_devices(self.module, self.src_device_obj)
        shares, keywords = self.scatter(inputs, kwargs, self.device_ids)
        if has_lazy(self.module):
            initialize_lazy(
                self.module, partial(self.module, *shares[0], **keywords[0])
            )
        if len(self.device_ids) == 1:
            return self.module(*shares[0], **keywords[0])
        replicas = self.replicate(self.module, self.device_ids[: len(shares)])
        return self.gather(
            self.parallel_apply(replicas, shares, keywords), self.output_device
        )

    def replicate(self, module: Any, device_ids: Any) -> Any:
        """Return a module for each device; see `deliralike.backends.torch.replicate`."""
        return functions.replicate(module, device_ids, not torch.is_grad_enabled())

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """Return the shares of the arguments; see `deliralike.backends.torch.scatter_kwargs`."""
        return functions.scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> Any:
        """Return the replicas' outputs; see `deliralike.backends.torch.parallel_apply`."""
        devices = self.device_ids[: len(replicas)]
        return functions.apply_shares(replicas, inputs, kwargs, devices, self.dim)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """Return the outputs as one nest; see `deliralike.backends.torch.gather`."""
        return functions.gather(outputs, output_device, self.dim)


def data_parallel(
    module: torch.nn.Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call ``module(*inputs)`` over several devices, as `DataParallel` does.

    Better than PyTorch's: CPU devices work.

    Example:
        >>> data_parallel(torch.nn.Linear(3, 2), torch.ones(5, 3), ["cpu", "cpu"]).shape
        torch.Size([5, 2])
    """
    if inputs is None:
        inputs = ()
    elif not isinstance(inputs, tuple):
        inputs = (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(
        *inputs, **(module_kwargs or {})
    )


class ReplicationCallbackDataParallel(DataParallel):
    """`DataParallel` that calls ``__data_parallel_replicate__(context, copy_id)``.

    It is called on each sub-module of each replica. Copies of one sub-module share the context; the
    master's copy, number 0, comes first. Better than the original: it works on CPU devices.
    `deliralike.DataParallel` calls the callbacks too, once, when it makes its replicas.
    """

    def replicate(self, module: Any, device_ids: Any) -> Any:
        """Return a module for each device, after their callbacks."""
        replicas = super().replicate(module, device_ids)
        exec_data_parallel_replication_callback(replicas)
        return replicas


def exec_data_parallel_replication_callback(modules: Sequence[torch.nn.Module]) -> None:
    """Call ``__data_parallel_replicate__(context, copy_id)`` on each sub-module that has it.

    The first replica comes first. Better than the original: replicas that differ in their
    sub-modules are an error, not a wrong context.

    Example:
        >>> class Layer(torch.nn.Module):
        ...     def __data_parallel_replicate__(self, context, copy_id):
        ...         self.copy_id = copy_id
        >>> replicas = functions.replicate(Layer(), ["cpu", "cpu"])
        >>> exec_data_parallel_replication_callback(replicas)
        >>> [replica.copy_id for replica in replicas]
        [0, 1]
    """
    call_replication_callbacks([list(module.modules()) for module in modules])


def patch_replication_callback(data_parallel: torch.nn.DataParallel) -> None:
    """Let a ``DataParallel``, this backend's or PyTorch's, call the replication callbacks.

    Better than the original: a second call changes nothing.

    Raises:
        ArgumentError: The argument is no ``DataParallel``.
    """
    if not isinstance(data_parallel, torch.nn.DataParallel):
        raise ArgumentError(
            f"patch_replication_callback wants a DataParallel, not a {type(data_parallel).__name__}"
        )
    original = data_parallel.replicate
    if isinstance(data_parallel, ReplicationCallbackDataParallel) or hasattr(
        original, _CALLS
    ):
        return

    @wraps(original)
    def replicate(module: Any, device_ids: Any) -> Any:
        replicas = original(module, device_ids)
        exec_data_parallel_replication_callback(replicas)
        return replicas

    setattr(replicate, _CALLS, True)  # `wraps` copies it to decorators of this function
    vars(data_parallel)["replicate"] = replicate


def _refuse_other_devices(module: torch.nn.Module, device: torch.device) -> None:
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device != device:
            raise DeviceError(
                f"DataParallel: {name!r} is on {str(tensor.device)!r}, wanted on the first device "
                f"{str(device)!r}: move the module there, module.to({str(device)!r})"
            )
