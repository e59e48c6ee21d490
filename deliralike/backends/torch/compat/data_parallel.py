"""``torch.nn.DataParallel`` and its function, with replication callbacks, by the names that their
users know.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, wraps
from typing import Any

import torch

from deliralike.backends.torch.compat import functions
from deliralike.backends.torch.replicas.lazy import has_lazy, make_lazy
from deliralike.backends.torch.replicas.thread_context import devices_of, named
from deliralike.errors import ArgumentError, DeviceError
from deliralike.parallel.replicas.callbacks import call_replication_callbacks

_CALLS = "calls_replication_callbacks"


class DataParallel(torch.nn.DataParallel):
    """A module on several devices: what ``torch.nn.DataParallel`` does, on CPUs too.

    The batch is scattered, the module replicated anew in each forward, the outputs are gathered,
    and gradients land on the module given: any optimizer of PyTorch's over its parameters works as
    it is. `replicate`, `scatter`, `parallel_apply` and `gather` may be overridden. Names in
    ``state_dict`` begin with ``module.``.

    Better than the original: ``["cpu", "cpu"]`` works, so it is tested without a GPU; replicas have
    parameters; what ``forward`` sets on the module for the first share stays;
    `SynchronizedBatchNorm2d` sees the whole batch; errors keep their object.
    `deliralike.DataParallel` does more: replicas that last, losses inside them, names without a
    prefix.

    Args:
        module: The module, with its parameters on the first device.
        device_ids: Numbers of GPUs, names or ``torch.device``. None: all GPUs, or the plain module
            without any.
        output_device: Where outputs are gathered; the first device when None, the CPU for -1.
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
        """Wrap the module; nothing of it changes."""
        torch.nn.Module.__init__(self)  # not that of the original, which knows no CPU
        self.module, self.dim = module, dim
        none_given = device_ids is None and not torch.cuda.is_available()
        self.device_ids = [] if none_given else devices_of(device_ids, "cpu")  # type: ignore[assignment]
        if device_ids is not None and not self.device_ids:
            raise DeviceError("DataParallel: device_ids is empty; None stands for all GPUs")
        first = self.device_ids[0] if self.device_ids else "cpu"
        self.output_device = first if output_device is None else named(output_device)  # type: ignore[assignment]
        self.src_device_obj = torch.device(first)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Scatter, replicate, run side by side, gather.

        Raises:
            DeviceError: A parameter or buffer is not on the first device.
        """
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _refuse_elsewhere(self.module, self.src_device_obj)
        shares, keywords = self.scatter(inputs, kwargs, self.device_ids)
        if has_lazy(self.module):
            make_lazy(self.module, partial(self.module, *shares[0], **keywords[0]))
        if len(self.device_ids) == 1:
            return self.module(*shares[0], **keywords[0])
        replicas = self.replicate(self.module, self.device_ids[: len(shares)])
        return self.gather(self.parallel_apply(replicas, shares, keywords), self.output_device)

    def replicate(self, module: Any, device_ids: Any) -> Any:
        """One module for each device; see `deliralike.backends.torch.replicate`."""
        return functions.replicate(module, device_ids, not torch.is_grad_enabled())

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """The shares of the arguments; see `deliralike.backends.torch.scatter_kwargs`."""
        return functions.scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> Any:
        """The outputs of the replicas; see `deliralike.backends.torch.parallel_apply`."""
        return functions.apply_shares(
            replicas, inputs, kwargs, self.device_ids[: len(replicas)], self.dim
        )

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """The outputs as one; see `deliralike.backends.torch.gather`."""
        return functions.gather(outputs, output_device, self.dim)


def data_parallel(
    module: torch.nn.Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """``module(*inputs)`` over several devices; gradients land on the module. The function to
    `DataParallel`.

    Better than PyTorch's: CPU devices work.

    Example:
        >>> data_parallel(torch.nn.Linear(3, 2), torch.ones(5, 3), ["cpu", "cpu"]).shape
        torch.Size([5, 2])
    """
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


class ReplicationCallbackDataParallel(DataParallel):
    """`DataParallel` that calls ``__data_parallel_replicate__(context, copy_id)`` on each
    sub-module of each replica.

    Copies of one sub-module share the context; the master's copy, number 0, comes first. Better
    than the original: it works on CPU devices. `deliralike.DataParallel` calls the callbacks too,
    once, when it makes its replicas.
    """

    def replicate(self, module: Any, device_ids: Any) -> Any:
        """Replicas that have heard that they are."""
        replicas = super().replicate(module, device_ids)
        exec_data_parallel_replication_callback(replicas)
        return replicas


def exec_data_parallel_replication_callback(modules: Sequence[torch.nn.Module]) -> None:
    """Call ``__data_parallel_replicate__(context, copy_id)`` on each sub-module that has it, the
    first replica's first.

    Better than the original: replicas that differ in their sub-modules are an error, not a wrong
    context.

    Example:
        >>> class Layer(torch.nn.Module):
        ...     def __data_parallel_replicate__(self, context, copy_id):
        ...         self.copy_id = copy_id
        >>> replicas = native_parallel.replicate(Layer(), ["cpu", "cpu"])
        >>> exec_data_parallel_replication_callback(replicas)
        >>> [replica.copy_id for replica in replicas]
        [0, 1]
    """
    call_replication_callbacks([list(module.modules()) for module in modules])


def patch_replication_callback(data_parallel: torch.nn.DataParallel) -> None:
    """Let one ``DataParallel``, ours or PyTorch's, call the replication callbacks from now on.

    Better than the original: a second call changes nothing.

    Raises:
        ArgumentError: It is no ``DataParallel``.
    """
    if not isinstance(data_parallel, torch.nn.DataParallel):
        raise ArgumentError(
            f"patch_replication_callback wants a DataParallel, not a {type(data_parallel).__name__}"
        )
    before = data_parallel.replicate
    if isinstance(data_parallel, ReplicationCallbackDataParallel) or hasattr(before, _CALLS):
        return

    @wraps(before)
    def replicate(module: Any, device_ids: Any) -> Any:
        replicas = before(module, device_ids)
        exec_data_parallel_replication_callback(replicas)
        return replicas

    setattr(replicate, _CALLS, True)  # which wraps passes on to what decorates it
    data_parallel.replicate = replicate  # type: ignore[method-assign]


def _refuse_elsewhere(module: torch.nn.Module, place: torch.device) -> None:
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.device != place:
            raise DeviceError(
                f"DataParallel: {name!r} is on {str(tensor.device)!r}, wanted on the first device "
                f"{str(place)!r}: move the module there, module.to({str(place)!r})"
            )
