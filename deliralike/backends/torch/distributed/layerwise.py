"""The PyTorch network that averages gradients during backward and updates in the next forward."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from deliralike.backends.torch import arrays
from deliralike.backends.torch.holder import TorchHolder
from deliralike.parallel.layerwise import LayerwiseNetwork, attributes_set
from deliralike.parallel.processes.buckets import GradientSpec


class LayerwiseTorchNetwork(LayerwiseNetwork, TorchHolder):
    """See `LayerwiseNetwork`; a module whose state is that of the given one, under the same names.

    Gradients are sent by hooks on their accumulation. An update is finished when the first module
    that has the parameter is called, or the first function of PyTorch's that takes it: so tied
    parameters are covered, and those that a block uses of its parts.
    """

    in_backward = True
    __call__ = torch.nn.Module.__call__

    def __init__(self, network, module, processes, **settings):
        TorchHolder.__init__(self, module)
        self._own: dict[str, torch.nn.Parameter] = {}
        self._hooked: dict[int, torch.Tensor] = {}  # by identity; held, so that it stays unique
        self._as_sent: dict[str, tuple[Any, int]] = {}
        self._shared: dict[str, torch.Tensor] = {}
        self._in_pass = False  # whether a callback for the end of backward is queued
        self._calls: list[Any] = []  # the hook on calls of modules, while sums are pending
        weakref.finalize(self, _remove_all, self._calls)
        LayerwiseNetwork.__init__(self, network, module, processes, **settings)

    # Gradients

    def trainable(self):
        # the method of the class, as the one of the instance may be watched, see `watch`
        named = type(self.given).named_parameters(self.given)
        parameters = {name: p for name, p in named if p.requires_grad}
        self._own = parameters
        self._names = {id(p): name for name, p in parameters.items()}
        arrive = weakref.WeakMethod(self._arrived)
        for parameter in parameters.values():
            if id(parameter) not in self._hooked:
                self._hooked[id(parameter)] = parameter
                parameter.register_post_accumulate_grad_hook(partial(_call, arrive))
        return {name: GradientSpec(tuple(p.shape), _host_type(p)) for name, p in parameters.items()}

    def _arrived(self, parameter: torch.Tensor) -> None:
        if not self._in_pass:
            self._in_pass = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ended)
        self.arrived(self._names.get(id(parameter), ""))

    def _ended(self) -> None:
        self._in_pass = False
        self.end_backward()

    def gradient(self, name):
        return self._own[name].grad

    def put_gradient(self, name, gradient):
        self._own[name].grad = gradient

    def on_host(self, gradient):
        gradient = gradient.detach()
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        if gradient.dtype == torch.bfloat16:
            gradient = gradient.float()
        return gradient.cpu().numpy()

    def from_host(self, name, average):
        parameter = self._own[name]
        self._shared[name] = torch.from_numpy(average).to(parameter.device, parameter.dtype)
        return self._shared[name]

    def _sent(self, name):
        gradient: Any = self._own[name].grad
        is_shared = gradient is not None and gradient is self._shared.get(name)
        if is_shared:
            # the storage of the bucket, which will be written to again
            gradient = gradient.clone()
            self._own[name].grad = gradient
        version = -1 if gradient is None else gradient._version
        self._as_sent[name] = gradient, version
        return super()._sent(name)

    def is_touched(self, name):
        """Return whether a gradient has changed; PyTorch counts changes, clearing by zeros too."""
        gradient, version = self._as_sent[name]
        present = self._own[name].grad
        return present is not gradient or (present is not None and present._version != version)

    # Updates

    def settings_of(self, optimizer: Any) -> Callable[[], AbstractContextManager[None]]:
        native = optimizer.native
        # by this schedulers of torch 2.13 see that there was a step before theirs
        native._opt_called = True
        groups = [_copy_of_group(group) for group in native.param_groups]
        return lambda: attributes_set(native, {"param_groups": groups})

    def updates_by_layer(self, optimizer: Any) -> bool:
        """Return whether parameters may be updated one by one.

        All of PyTorch's own optimizers but LBFGS allow it; hooks must see all gradients at once.
        """
        native = optimizer.native
        is_of_pytorch = type(native).__module__.startswith("torch.optim.")
        if not is_of_pytorch or isinstance(native, torch.optim.LBFGS):
            return False
        if optimizer.pre_update_hooks or optimizer.post_update_hooks:
            return False
        if native._optimizer_step_post_hooks or len(native._optimizer_step_pre_hooks) != 1:
            return False  # the single one is that of `bind`
        return optimizer.loss_scale is None

    def update_some(self, optimizer: Any, names: Collection[str]) -> None:
        native = optimizer.native
        chosen = {id(self._own[name]) for name in names}
        groups = []
        for group in native.param_groups:
            parameters = [p for p in group["params"] if id(p) in chosen]
            if parameters:
                groups.append(group | {"params": parameters})
        with attributes_set(native, {"param_groups": groups}):
            native.step()

    # Uses of the parameters

    def forward(self, *args, **kwargs):
        """Return the outputs for this process's batch, and make pending updates on the way."""
        with self.reaching():
            return self.given(*args, **kwargs)

    @contextmanager
    def reaching(self):
        self.look()
        if _is_closed(self.given):
            self.finish()
        if not self.is_under_way:
            yield
            return
        self.unwatch()
        before = self._rounds
        on_module = torch.nn.modules.module.register_module_forward_pre_hook(
            lambda module, _: self._reach(module._parameters.values())
        )
        try:
            with on_module, _Reaching(self._reach):
                yield
        finally:
            if self._rounds == before:  # else there was a backward pass, whose sums are pending
                self.finish()

    def _reach(self, values: Iterable[Any]) -> None:
        names = [self._names[id(value)] for value in values if id(value) in self._names]
        if names:
            self.finish(names)

    def watch(self):
        if not _is_closed(self.given):
            self._calls.append(
                torch.nn.modules.module.register_module_forward_pre_hook(self._finish_before())
            )
            vars(self.given).update((name, partial(self._looked_at, name)) for name in _LOOKS)

    def _finish_before(self) -> Callable[[torch.nn.Module, Any], None]:
        """Return a hook on all calls of modules, as another module may share a parameter."""
        parts = {id(part) for part in self.given.modules()}
        names = self._names
        finish = partial(_call, weakref.WeakMethod(self.finish))

        def finish_before(module: torch.nn.Module, inputs: Any) -> None:
            parameters = module._parameters.values()
            if id(module) in parts or any(id(value) in names for value in parameters):
                finish()

        return finish_before

    def unwatch(self):
        if self._calls:
            self._calls.pop().remove()
            for name in _LOOKS:
                del vars(self.given)[name]

    def _looked_at(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.finish()
        self.unwatch()
        if name == "__deepcopy__":
            return copy.deepcopy(self.given, *args)
        return getattr(self.given, name)(*args, **kwargs)

    def bind(self, optimizer: Any) -> None:
        """Finish pending updates when the native optimizer is used directly."""
        finish = partial(_call, weakref.WeakMethod(self.finish))
        optimizer.native.register_step_pre_hook(lambda *_: finish())
        optimizer.native.register_state_dict_pre_hook(lambda *_: finish())

    # As a module

    def train(self, mode=True):
        """Set training mode, or finish pending updates and set evaluation mode."""
        if not mode:
            self.finish()
        return torch.nn.Module.train(self, mode)

    def zero_grad(self, set_to_none=True):
        """Clear the gradients; a pending update keeps its own."""
        for parameter in self._own.values():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.detach().zero_()

    def clear(self, optimizer, set_to_none):
        optimizer.native.zero_grad(set_to_none)

    def named_modules(self, *args, **kwargs):
        """Finish pending updates and yield the parts, by which PyTorch finds parameters."""
        self.finish()
        return super().named_modules(*args, **kwargs)

    def state_dict(self, *args, **kwargs):
        """Finish pending updates and return the module's state, and that of further parts."""
        self.finish()
        return super().state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return a part, which a subclass may add, or else an attribute of the network."""
        try:
            return torch.nn.Module.__getattr__(self, name)
        except AttributeError:
            return LayerwiseNetwork.__getattr__(self, name)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Finish pending updates, then convert or move the module, as ``to`` does."""
        self.finish()
        return torch.nn.Module._apply(self, *args, **kwargs)


# Attributes of a tensor that are made of its values; others, such as its device and its gradient,
# are not. And methods.
_VALUES = {"data", "T", "mT", "H", "mH", "real", "imag"}
_ABOUT = {"is_floating_point", "is_complex", "size", "dim", "numel", "stride", "element_size"}


class _Reaching(TorchFunctionMode):
    """A context in which `reach` gets the arguments of every function of PyTorch's before it."""

    def __init__(self, reach: Callable[[Iterable[Any]], None]) -> None:
        super().__init__()
        self.reach = reach

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not _is_about(func):
            self.reach(_leaves((args, *kwargs.values())))
        return func(*args, **kwargs)


def _is_about(func: Any) -> bool:
    """Return whether a function reads or sets a property of a tensor, and not its values."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return func.__self__.__name__ not in _VALUES
    return name in _ABOUT


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _is_closed(module: torch.nn.Module) -> bool:
    """Return whether a part is compiled, so that the use of its parameters cannot be watched."""
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule) or part._compiled_call_impl:
            return True
        if "_orig_mod" in part._modules:
            return True
    return False


def _copy_of_group(group: dict[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a parameter group, with the same parameters."""
    settings = {key: value for key, value in group.items() if key != "params"}
    return {"params": group["params"][:], **copy.deepcopy(settings)}


def _host_type(parameter: torch.Tensor) -> str:
    return "float32" if parameter.dtype == torch.bfloat16 else arrays.dtype_name(parameter.dtype)


def _remove_all(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


def _call(method: weakref.WeakMethod, *args: Any) -> None:
    """Call a method of an object that may have been deleted."""
    function = method()
    if function is not None:
        function(*args)


_LOOKS = ("named_parameters", "state_dict", "__deepcopy__", "__reduce_ex__")
