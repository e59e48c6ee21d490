"""Copies of a module's structure: new module objects, with shared or new tensors.

This file is the only place that copies modules. Only this backend has it: the networks of the other
backends can be copied by their frameworks.
"""

from __future__ import annotations

import operator
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import MethodType
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from deliralike.backends.torch import unstable
from deliralike.backends.torch.network import TABLES
from deliralike.errors import CapabilityError

_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device, type})


class SetByRuns:
    """The attributes of a network that its ``forward`` sets while the replicas run.

    A recurrent state is one of them: each replica keeps the state of its own samples.
    """

    def __init__(self) -> None:
        """Start before any run."""
        self._before: list[tuple[torch.nn.Module, dict[str, Any]]] = []
        # for each module: the attributes that runs have set, with their latest values
        self._values: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def begin(self, network: torch.nn.Module) -> None:
        """Remember the attributes before a run."""
        self._before = [(module, dict(vars(module))) for module in network.modules()]

    def end(self) -> None:
        """Find those that are other objects after a run."""
        for module, before in self._before:
            for name, value in vars(module).items():
                if before.get(name, self) is not value and name not in TABLES:
                    self._values.setdefault(module, {})[name] = value
        self._before = []

    def on(self, module: torch.nn.Module) -> dict[str, Any]:
        """Return the attributes that runs have set on a module, with their latest values."""
        return self._values.get(module, {})


class ReplicaCopy:
    """A copy of a network for one replica, with parameters and buffers of its own as leaves.

    `follow` copies again after the original has changed. Module objects and tensors stay the same
    from one `follow` to the next. Attributes are shared, except that modules, tensors and bound
    methods of the original, also in lists, tuples, sets and dicts, become those of the copy.

    Two kinds of tensors receive the gradients of their copies in the same backward pass: tensors
    that are no parameters of the original, such as one in a list, which nothing else would add up;
    and parameters with hooks, which must see the sum.
    """

    def __init__(self, device: torch.device, set_by_runs: SetByRuns) -> None:
        """Make an empty copy for a device.

        Args:
            set_by_runs: The attributes of the original that each replica keeps its own of.
        """
        self.device = device
        self.has_new_modules = False
        # (original, copy) by the original's identity, which stays unique while the original is held
        self.pairs: dict[int, tuple[Any, Any]] = {}
        self._former_pairs: dict[int, tuple[Any, Any]] = {}
        self._set_by_runs = set_by_runs
        # the identities of the original's parameters
        self._parameters: set[int] = set()
        # by the identity of a buffer of the original: its version and that of its copy
        self._buffer_versions: dict[int, tuple[int, int]] = {}

    def follow(self, original: torch.nn.Module) -> torch.nn.Module:
        """Return the copy of the module as it is now, and forget tensors that it has no longer."""
        self._parameters = {id(parameter) for parameter in original.parameters()}
        former = self.pairs
        self.pairs = {}
        modules = list(original.modules())
        for module in modules:
            self.pairs[id(module)] = former.get(id(module)) or (module, _empty(module))
        self.has_new_modules = any(id(module) not in former for module in modules)
        self._former_pairs = former
        for module in modules:
            self._copy(module, self.of(module))
        self._former_pairs = {}
        for key in self._buffer_versions.keys() - self.pairs.keys():
            del self._buffer_versions[key]
        return self.of(original)

    def of(self, original: Any) -> Any:
        """Return the copy of a module or tensor of the original, or None where there is none."""
        return self.pairs.get(id(original), (None, None))[1]

    def _copy(self, module: torch.nn.Module, copy: torch.nn.Module) -> None:
        if vars(module).get("_compiled_call_impl") is not None:
            # its program calls the original
            raise CapabilityError(
                f"a {type(module).__name__} that was compiled in place by module.compile() cannot "
                "be replicated: wrap what torch.compile(module) gives, or wrap it before and leave "
                "it as it is"
            )
        if type(copy) is not type(module):
            object.__setattr__(copy, "__class__", type(module))  # parametrized since
        attributes = vars(module)
        copied = vars(copy)
        former = copied.copy()
        copied.clear()
        set_by_runs = self._set_by_runs.on(module)
        for name, value in attributes.items():
            # what a run has set, and nobody has set since
            is_own = name in former and set_by_runs.get(name, self) is value
            copied[name] = former[name] if is_own else self._mapped(value)
        for name in TABLES:
            if copied[name] is attributes[name]:
                copied[name] = copied[
                    name
                ].copy()  # so that additions to a replica stay in it
        if "dynamo_ctx" in copied:
            _compile_again(module, copy, former)

    def _mapped(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _MAPS:
            return _MAPS[kind](self, value) if value else value
        if isinstance(value, torch.nn.Module):
            # a module that is no part of the original is shared
            return self.pairs.get(id(value), (None, value))[1]
        return self._tensor(value) if isinstance(value, torch.Tensor) else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in self.pairs:
            return self.of(tensor)
        _, former = self._former_pairs.get(id(tensor), (None, None))
        copy = self._tensor_like(tensor, former)
        self.pairs[id(tensor)] = (tensor, copy)
        return copy

    def _dict(self, value: dict) -> dict:
        mapped = [self._mapped(item) for item in value.values()]
        if _are_same(mapped, value.values()):
            return value
        return type(value)(zip(value, mapped, strict=True))

    def _sequence(self, value: list | tuple | set) -> list | tuple | set:
        mapped = [self._mapped(item) for item in value]
        return value if _are_same(mapped, value) else type(value)(mapped)

    def _method(self, method: MethodType) -> MethodType:
        owner = method.__self__
        if not isinstance(owner, torch.nn.Module):
            return method
        mapped = self._mapped(owner)
        return method if mapped is owner else MethodType(method.__func__, mapped)

    def _reference(self, reference: weakref.ref) -> weakref.ref:
        target = reference()
        mapped = self._mapped(target)
        return reference if mapped is target else weakref.ref(mapped)

    def leaf_of(self, parameter: torch.Tensor) -> torch.nn.Parameter | None:
        """Return the copy that keeps gradients of its own; None where the parameter gets them."""
        copy = self.of(parameter)
        if isinstance(copy, torch.nn.Parameter) and copy is not parameter:
            return copy
        return None

    def copy_parameters(self, parameters: Iterable[torch.Tensor]) -> None:
        """Copy the values of these parameters of the original."""
        pairs = list(self._with_leaves(parameters))
        if pairs:
            sources, targets = zip(*pairs, strict=True)
            unstable.copy(targets, sources)

    def _with_leaves(
        self, parameters: Iterable[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.nn.Parameter]]:
        """Yield those of the parameters that have values here, each with its leaf."""
        for parameter in parameters:
            if not (is_lazy(parameter) or parameter.is_meta):
                leaf = self.leaf_of(parameter)
                if leaf is not None:
                    yield parameter, leaf

    def stale(self, parameters: Iterable[torch.Tensor]) -> torch.Tensor | None:
        """Return the first of these parameters of the original that has another value here.

        Values are compared, which takes about as long as copying them: what is written by ``.data``
        changes no version that PyTorch counts.
        """
        pairs = list(self._with_leaves(parameters))
        if any(parameter.is_cuda for parameter, _ in pairs):
            flags = [_unequal(parameter, leaf).any() for parameter, leaf in pairs]
            if not torch.stack(flags).any():  # the device is waited for once
                return None
        return next(
            (parameter for parameter, leaf in pairs if _differs(parameter, leaf)), None
        )

    def copy_buffers(self) -> None:
        """Give every module new buffers with the values of the original's."""
        copies: dict[int, torch.Tensor] = {}
        for module, copy in list(self.pairs.values()):
            if not isinstance(module, torch.nn.Module):
                continue
            for name, buffer in module._buffers.items():
                if buffer is None:
                    copy._buffers[name] = None
                    continue
                if id(buffer) not in copies:
                    copies[id(buffer)] = self._new_buffer(buffer)
                copy._buffers[name] = copies[id(buffer)]

    def has_changed_buffers(self, original: torch.nn.Module) -> bool:
        """Return whether a buffer may have changed.

        In training mode every buffer may: PyTorch's batch norm does not count its changes.
        """
        for module in original.modules():
            for name, buffer in module._buffers.items():
                if buffer is None:
                    continue
                if module.training or self._has_changed(
                    buffer, self.of(module)._buffers[name]
                ):
                    return True
        return False

    def _has_changed(self, buffer: torch.Tensor, copy: torch.Tensor | None) -> bool:
        versions = self._buffer_versions.get(id(buffer))
        return self.of(buffer) is not copy or versions != (
            _version(buffer),
            _version(copy),
        )

    def _tensor_like(
        self, original: torch.Tensor, former: torch.Tensor | None
    ) -> torch.Tensor:
        if is_lazy(original):
            if former is not None and type(former) is type(original):
                return former
            return _lazy_like(original, self.device)
        if id(original) in self._parameters and not has_hooks(original):
            return self._leaf_like(original, former)
        if original.requires_grad:
            if original.device == self.device:
                return original
            with torch.enable_grad():
                return Copied.apply(original, self.device)
        version, _ = self._buffer_versions.get(id(original), (None, None))
        if former is not None and version == _version(original):
            return former
        return self._new_buffer(original)

    def _leaf_like(
        self, original: torch.Tensor, former: torch.Tensor | None
    ) -> torch.Tensor:
        leaf = former
        if leaf is None or leaf is original or not _fits(leaf, original):
            leaf = torch.nn.Parameter(self._detached_copy(original))
        leaf.requires_grad = original.requires_grad
        return leaf

    def _new_buffer(self, buffer: torch.Tensor) -> torch.Tensor:
        is_shapeless = is_lazy(buffer)
        if is_shapeless:
            copy = _lazy_like(buffer, self.device)
        else:
            copy = self._detached_copy(buffer)
        self.pairs[id(buffer)] = (buffer, copy)
        self._buffer_versions[id(buffer)] = (_version(buffer), _version(copy))
        return copy

    def _detached_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self.device, copy=True)


_MAPS: dict[type, Callable[[ReplicaCopy, Any], Any]] = {
    dict: ReplicaCopy._dict,
    OrderedDict: ReplicaCopy._dict,
    list: ReplicaCopy._sequence,
    tuple: ReplicaCopy._sequence,
    set: ReplicaCopy._sequence,
    MethodType: ReplicaCopy._method,
    weakref.ref: ReplicaCopy._reference,
}


def _are_same(mapped: Iterable[Any], original: Iterable[Any]) -> bool:
    return all(map(operator.is_, mapped, original))


def _empty(module: torch.nn.Module) -> torch.nn.Module:
    """Return an object of the same class without attributes."""
    if isinstance(module, torch.jit.ScriptModule):
        raise CapabilityError(
            f"a {type(module).__name__} of TorchScript cannot be replicated: replicate the module "
            "that it was made from"
        )
    return object.__new__(type(module))


def _compile_again(
    module: torch.nn.Module, copy: torch.nn.Module, former: dict[str, Any]
) -> None:
    """Let the copy of a module from ``torch.compile`` call its own copy of the inner module."""
    if not unstable.is_compiled_module(module):
        return
    compiled: Any = copy
    if "forward" not in former or former.get("dynamo_ctx") is not vars(module).get(
        "dynamo_ctx"
    ):
        unstable.compile_again(compiled)
        return
    for name in ("forward", "_forward"):
        if name in former:
            vars(copy)[name] = former[name]


class Copied(torch.autograd.Function):
    """A differentiable copy on a device; unlike ``Tensor.to`` it accepts sparse gradients."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        return tensor.to(device, copy=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.home = inputs[0].device

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        return gradient.to(ctx.home), None


def has_lazy(module: torch.nn.Module) -> bool:
    """Return whether some parameter or buffer has no shape yet."""
    for part in module.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            if tensor is not None and is_lazy(tensor):
                return True
    return False


def _differs(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    other = other.to(tensor.device)
    return not torch.equal(tensor, other) and bool(_unequal(tensor, other).any())


def _unequal(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return where values differ; two NaNs count as equal."""
    other = other.to(tensor.device)
    return (tensor != other) & ~(tensor.isnan() & other.isnan())


def _fits(copy: torch.Tensor, original: torch.Tensor) -> bool:
    if is_lazy(copy) or copy.dtype != original.dtype:
        return False
    return copy.shape == original.shape and copy.stride() == original.stride()


def _version(tensor: torch.Tensor | None) -> int:
    if tensor is None or is_lazy(tensor) or tensor.is_inference():
        return -1
    return unstable.version(tensor)


def _lazy_like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a parameter or buffer without a shape."""
    kind: Any = UninitializedParameter
    if isinstance(tensor, UninitializedParameter):
        return kind(tensor.requires_grad, device, tensor.dtype)
    return UninitializedBuffer(False, device, tensor.dtype)


def has_hooks(parameter: torch.Tensor) -> bool:
    """Return whether there are hooks that would see, or change, a gradient of this parameter."""
    return parameter.requires_grad and unstable.has_gradient_hooks(parameter)
