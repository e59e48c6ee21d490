"""The PyTorch network whose gradients are averaged during backward, and whose updates wait for the
next forward.
"""

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
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.layerwise import LayerwiseNetwork, attributes_set
from deliralike.parallel.processes.buckets import Described


class LayerwiseTorchNetwork(LayerwiseNetwork, TorchHolder):
    """See `LayerwiseNetwork`; a module whose state is that of the given one, under the same names.

    Gradients are sent by hooks on their accumulation. Parameters are reached by the first module
    that has them, or the first function of PyTorch's that takes them: tied ones too, and those that
    a block uses of its parts.
    """

    in_backward = True
    __call__ = torch.nn.Module.__call__

    def __init__(self, network, module, processes, **settings):
        TorchHolder.__init__(self, module)
        self._own: dict[str, torch.nn.Parameter] = {}
        self._hooked: dict[int, torch.Tensor] = {}  # an identity is that of what is alive
        self._as_sent: dict[str, tuple[Any, int]] = {}
        self._shared: dict[str, torch.Tensor] = {}
        self._in_pass = False  # whether there is something that will be told of the end of backward
        self._calls: list[Any] = []  # the hook on calls of modules, while sums are under way
        weakref.finalize(self, _remove_all, self._calls)
        LayerwiseNetwork.__init__(self, network, module, processes, **settings)

    # Gradients

    def trainable(self):
        named = type(self.given).named_parameters(
            self.given
        )  # past what watches whoever else looks
        parameters = {name: p for name, p in named if p.requires_grad}
        self._own, self._names = parameters, {id(p): name for name, p in parameters.items()}
        arrive = weakref.WeakMethod(self._arrived)
        for parameter in parameters.values():
            if id(parameter) not in self._hooked:
                self._hooked[id(parameter)] = parameter
                parameter.register_post_accumulate_grad_hook(partial(_call, arrive))
        return {name: Described(tuple(p.shape), _host_type(p)) for name, p in parameters.items()}

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
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        return (gradient.float() if gradient.dtype == torch.bfloat16 else gradient).cpu().numpy()

    def from_host(self, name, average):
        parameter = self._own[name]
        self._shared[name] = torch.from_numpy(average).to(parameter.device, parameter.dtype)
        return self._shared[name]

    def _sent(self, name):
        gradient = self._own[name].grad
        if gradient is not None and gradient is self._shared.get(
            name
        ):  # the bucket's storage, to be written anew
            gradient = self._own[name].grad = gradient.clone()
        self._as_sent[name] = gradient, -1 if gradient is None else gradient._version
        return super()._sent(name)

    def is_touched(self, name):
        """Since PyTorch counts the changes of a tensor, clearing by zeros is seen too."""
        gradient, version = self._as_sent[name]
        now = self._own[name].grad
        return now is not gradient or (now is not None and now._version != version)

    # Updates

    def settings_of(self, optimizer: Any) -> Callable[[], AbstractContextManager[None]]:
        native = optimizer.native
        native._opt_called = (
            True  # by which torch 2.13's schedulers see that there was a step before theirs
        )
        groups = [
            {
                key: value[:] if key == "params" else copy.deepcopy(value)
                for key, value in group.items()
            }
            for group in native.param_groups
        ]
        return lambda: attributes_set(native, {"param_groups": groups})

    def updates_by_layer(self, optimizer: AbstractOptimizer) -> bool:
        """PyTorch's own optimizers but one look at each parameter by itself; hooks want to see them
        all.
        """
        native = optimizer.native
        own = type(native).__module__.startswith("torch.optim.") and not isinstance(
            native, torch.optim.LBFGS
        )
        hooks = [
            optimizer.pre_update_hooks,
            optimizer.post_update_hooks,
            native._optimizer_step_post_hooks,
        ]
        return (
            own
            and not any(hooks)
            and len(native._optimizer_step_pre_hooks) == 1
            and optimizer.loss_scale is None
        )

    def update_some(self, optimizer: Any, names: Collection[str]) -> None:
        native, chosen = optimizer.native, {id(self._own[name]) for name in names}
        groups = [
            group | {"params": [p for p in group["params"] if id(p) in chosen]}
            for group in native.param_groups
        ]
        with attributes_set(
            native, {"param_groups": [group for group in groups if group["params"]]}
        ):
            native.step()

    # Whoever comes to the parameters

    def forward(self, *args, **kwargs):
        """The outputs for this process's batch; updates are made on the way."""
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
            if self._rounds == before:  # else there was a backward pass, whose sums are under way
                self.finish()

    def _reach(self, values: Iterable[Any]) -> None:
        if names := [self._names[id(value)] for value in values if id(value) in self._names]:
            self.finish(names)

    def watch(self):
        if not _is_closed(self.given):
            self._calls.append(
                torch.nn.modules.module.register_module_forward_pre_hook(self._finish_before())
            )
            vars(self.given).update((name, partial(self._looked_at, name)) for name in _LOOKS)

    def _finish_before(self) -> Callable[[torch.nn.Module, Any], None]:
        """A hook on all calls of modules: those of parts that somebody has kept, or that share
        parameters, too.
        """
        parts, names = {id(part) for part in self.given.modules()}, self._names
        finish = partial(_call, weakref.WeakMethod(self.finish))

        def before(module: torch.nn.Module, inputs: Any) -> None:
            if id(module) in parts or any(
                id(value) in names for value in module._parameters.values()
            ):
                finish()

        return before

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
        """Finish when the native optimizer is used by itself."""
        finish = partial(_call, weakref.WeakMethod(self.finish))
        optimizer.native.register_step_pre_hook(lambda *_: finish())
        optimizer.native.register_state_dict_pre_hook(lambda *_: finish())

    # As a module

    def train(self, mode=True):
        """Set training mode, or evaluation mode, for which everything is finished."""
        if not mode:
            self.finish()
        return torch.nn.Module.train(self, mode)

    def zero_grad(self, set_to_none=True):
        """Clear the gradients; an update that was noted keeps its own."""
        for parameter in self._own.values():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.detach().zero_()

    def clear(self, optimizer, set_to_none):
        optimizer.native.zero_grad(set_to_none)

    def named_modules(self, *args, **kwargs):
        """Parts, with everything finished: through them PyTorch finds parameters, in containers
        too.
        """
        self.finish()
        return super().named_modules(*args, **kwargs)

    def state_dict(self, *args, **kwargs):
        """The module's, under its own names, and that of further parts."""
        self.finish()
        return super().state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Further parts first, which a subclass may have; then what the network has."""
        try:
            return torch.nn.Module.__getattr__(self, name)
        except AttributeError:
            return LayerwiseNetwork.__getattr__(self, name)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """``to``, ``half``, ``cuda`` …, of everything finished."""
        self.finish()
        return torch.nn.Module._apply(self, *args, **kwargs)


# Attributes of a tensor that are made of its values; others, such as its device and its gradient,
# are not. And methods.
_VALUES = {"data", "T", "mT", "H", "mH", "real", "imag"}
_ABOUT = {"is_floating_point", "is_complex", "size", "dim", "numel", "stride", "element_size"}


class _Reaching(TorchFunctionMode):
    """A block in which every function of PyTorch's is seen before it has its arguments."""

    def __init__(self, reach: Callable[[Iterable[Any]], None]) -> None:
        super().__init__()
        self.reach = reach

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not _is_about(func):
            self.reach(_leaves((args, *kwargs.values())))
        return func(*args, **kwargs)


def _is_about(func: Any) -> bool:
    """Whether a function tells or sets something about a tensor, and not its values."""
    name = getattr(func, "__name__", "")
    return name in _ABOUT or (
        name in ("__get__", "__set__") and func.__self__.__name__ not in _VALUES
    )


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _is_closed(module: torch.nn.Module) -> bool:
    """Whether parts of a module are compiled, so that nobody sees them come to their parameters."""
    return any(
        isinstance(part, torch.jit.ScriptModule)
        or part._compiled_call_impl
        or "_orig_mod" in part._modules
        for part in module.modules()
    )


def _host_type(parameter: torch.Tensor) -> str:
    return "float32" if parameter.dtype == torch.bfloat16 else arrays.dtype_name(parameter.dtype)


def _remove_all(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


def _call(method: weakref.WeakMethod, *args: Any) -> None:
    """Call a method of something that may be gone."""
    if (found := method()) is not None:
        found(*args)


_LOOKS = ("named_parameters", "state_dict", "__deepcopy__", "__reduce_ex__")
