"""The only place that copies a module's structure: new module objects, with tensors that are given
or made.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from deliralike.errors import CapabilityError

_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device, type})
_OWN_DICTS = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class Likeness:
    """A module of the same structure as another one; `follow` makes it so again after that one has
    changed.

    Module objects and tensors stay the same from one `follow` to the next. Attributes are shared,
    except that modules, tensors and bound methods of the original, also in lists, tuples, sets and
    dicts, become those of the likeness.
    """

    def __init__(
        self, tensor_like: Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]
    ) -> None:
        """Make tensors by ``tensor_like(original, what it gave before)``."""
        self.tensor_like = tensor_like
        self.has_new_modules = False
        self._before: dict[int, tuple[Any, Any]] = {}
        self.known: dict[
            int, tuple[Any, Any]
        ] = {}  # by the original's identity; the original is held, so it stays so

    def follow(self, original: torch.nn.Module) -> torch.nn.Module:
        """The likeness of the module as it is now."""
        before, self.known = self.known, {}
        modules = list(original.modules())
        for module in modules:
            self.known[id(module)] = before.get(id(module)) or (module, _empty(module))
        self.has_new_modules = any(id(module) not in before for module in modules)
        self._before = before
        for module in modules:
            self._copy(module, self.known[id(module)][1])
        self._before = {}
        return self.known[id(original)][1]

    def of(self, original: Any) -> Any:
        """What stands in the likeness for a module or tensor of the original; None where there is
        nothing.
        """
        return self.known.get(id(original), (None, None))[1]

    def _copy(self, module: torch.nn.Module, copy: torch.nn.Module) -> None:
        _refuse_compiled(module)
        if type(copy) is not type(module):
            object.__setattr__(copy, "__class__", type(module))  # parametrized since
        state, attributes = vars(copy), vars(module)
        before = state.copy()
        state.clear()
        state.update(zip(attributes, map(self._mapped, attributes.values()), strict=True))
        for name in _OWN_DICTS:
            if state[name] is attributes[name]:
                state[name] = state[name].copy()  # what a replica adds is its own
        if "dynamo_ctx" in state:
            _compiled_anew(module, copy, before)

    def _mapped(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _MAPS:
            return _MAPS[kind](self, value) if value else value
        if isinstance(value, torch.nn.Module):
            return self.known.get(id(value), (None, value))[
                1
            ]  # one that is no part of the original stays
        return self._tensor(value) if isinstance(value, torch.Tensor) else value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if (known := self.known.get(id(tensor))) is not None:
            return known[1]
        like = self.tensor_like(tensor, self._before.get(id(tensor), (None, None))[1])
        self.known[id(tensor)] = (tensor, like)
        return like

    def _dict(self, value: dict) -> dict:
        mapped = [self._mapped(item) for item in value.values()]
        return (
            value if _same(mapped, value.values()) else type(value)(zip(value, mapped, strict=True))
        )

    def _sequence(self, value: list | tuple | set) -> list | tuple | set:
        mapped = [self._mapped(item) for item in value]
        return value if _same(mapped, value) else type(value)(mapped)

    def _method(self, method: MethodType) -> MethodType:
        owner = (
            self._mapped(method.__self__)
            if isinstance(method.__self__, torch.nn.Module)
            else method.__self__
        )
        return method if owner is method.__self__ else MethodType(method.__func__, owner)

    def _reference(self, reference: weakref.ref) -> weakref.ref:
        target = reference()
        mapped = self._mapped(target)
        return reference if mapped is target else weakref.ref(mapped)


_MAPS: dict[type, Callable[[Likeness, Any], Any]] = {
    dict: Likeness._dict,
    OrderedDict: Likeness._dict,
    list: Likeness._sequence,
    tuple: Likeness._sequence,
    set: Likeness._sequence,
    MethodType: Likeness._method,
    weakref.ref: Likeness._reference,
}


def _same(mapped: Iterable[Any], original: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(mapped, original, strict=True))


def _empty(module: torch.nn.Module) -> torch.nn.Module:
    """An object of the same class without attributes."""
    if isinstance(module, torch.jit.ScriptModule):
        raise CapabilityError(
            f"a {type(module).__name__} of TorchScript cannot be replicated: replicate the module "
            "that it was made from"
        )
    return object.__new__(type(module))


def _refuse_compiled(module: torch.nn.Module) -> None:
    """An error for ``module.compile()``, whose program calls the module that it was made from, from
    any copy.
    """
    if vars(module).get("_compiled_call_impl") is not None:
        raise CapabilityError(
            f"a {type(module).__name__} that was compiled in place by module.compile() cannot be "
            "replicated: wrap what torch.compile(module) gives, or wrap it before and leave it as "
            "it is"
        )


def _compiled_anew(module: torch.nn.Module, copy: torch.nn.Module, before: dict[str, Any]) -> None:
    """A copy of what ``torch.compile`` gave calls its own copy of the module."""
    if not isinstance(module, torch._dynamo.eval_frame.OptimizedModule):
        return
    if "forward" in before and before.get("dynamo_ctx") is vars(module).get("dynamo_ctx"):
        vars(copy).update(
            {name: before[name] for name in ("forward", "_forward") if name in before}
        )
    else:
        copy._initialize()  # type: ignore[operator]


class Copied(torch.autograd.Function):
    """A copy on another device. Tensor.to is that too, but refuses gradients that are sparse."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: torch.Tensor, place: torch.device) -> torch.Tensor:  # type: ignore[override]
        return tensor.to(place, copy=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.home = inputs[0].device

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:  # type: ignore[override]
        return gradient.to(ctx.home), None


class Copies(Likeness):
    """A likeness with parameters and buffers of its own, which are leaves.

    Two kinds of tensors get the gradients of their copies in the same backward pass: those that are
    no parameters of the original, such as one in a list, which nobody would add up; and parameters
    with hooks, which see the sum.
    """

    def __init__(self, device: torch.device) -> None:
        """On a device."""
        super().__init__(self._own)
        self.device = device
        self._versions: dict[
            int, tuple[int, int]
        ] = {}  # of an original buffer and its copy, when they were equal
        self._parameters: set[int] = set()
        self._taken: dict[int, int] = {}  # of an original parameter, the version that was copied

    def follow(self, original: torch.nn.Module) -> torch.nn.Module:
        """As above; what is no more is forgotten."""
        self._parameters = {id(parameter) for parameter in original.parameters()}
        like = super().follow(original)
        self._versions = {
            key: versions for key, versions in self._versions.items() if key in self.known
        }
        self._taken = {key: version for key, version in self._taken.items() if key in self.known}
        return like

    def leaf_of(self, parameter: torch.Tensor) -> torch.nn.Parameter | None:
        """The copy of a parameter that keeps gradients of its own; None where the parameter gets
        them.
        """
        copy = self.of(parameter)
        return copy if isinstance(copy, torch.nn.Parameter) and copy is not parameter else None

    def take(self, parameters: Iterable[torch.Tensor]) -> None:
        """Copy the values of these parameters of the original."""
        pairs = [
            (parameter, self.leaf_of(parameter))
            for parameter in parameters
            if not is_lazy(parameter)
        ]
        pairs = [(parameter, own) for parameter, own in pairs if own is not None]
        if pairs:
            torch._foreach_copy_([own for _, own in pairs], [parameter for parameter, _ in pairs])
        self._taken |= {id(parameter): _version(parameter) for parameter, _ in pairs}

    def is_behind(self, parameter: torch.Tensor) -> bool:
        """Whether a parameter of the original has another value since it was copied."""
        if self._taken.get(id(parameter), _version(parameter)) == _version(parameter):
            return False
        if _differs(parameter, self.of(parameter).to(parameter.device)):
            return True
        self._taken[id(parameter)] = _version(
            parameter
        )  # written to without a change: a parametrization does so
        return False

    def take_buffers(self) -> None:
        """Give every module new buffers with the values of the original's."""
        renewed: dict[int, torch.Tensor] = {}
        for module, copy in list(self.known.values()):
            if isinstance(module, torch.nn.Module):
                for name, buffer in module._buffers.items():
                    if buffer is not None and id(buffer) not in renewed:
                        renewed[id(buffer)] = self._renewed(buffer)
                    copy._buffers[name] = None if buffer is None else renewed[id(buffer)]

    def has_moved(self, original: torch.nn.Module) -> bool:
        """Whether a buffer may have changed: in training mode always, since PyTorch's batch norm
        leaves no trace.
        """
        for module in original.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and (
                    module.training or self._differs(buffer, self.of(module)._buffers[name])
                ):
                    return True
        return False

    def _differs(self, buffer: torch.Tensor, copy: torch.Tensor | None) -> bool:
        versions = self._versions.get(id(buffer))
        return self.of(buffer) is not copy or versions != (_version(buffer), _version(copy))

    def _own(self, original: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        if is_lazy(original):
            return before if type(before) is type(original) else _lazy_like(original, self.device)
        if id(original) in self._parameters and not has_hooks(original):
            if before is original or not _fits(before, original):
                before, self._taken[id(original)] = (
                    torch.nn.Parameter(self._copied(original)),
                    _version(original),
                )
            before.requires_grad = original.requires_grad  # type: ignore[union-attr]
            return before  # type: ignore[return-value]
        if original.requires_grad:
            _hand_over(before, original)
            self._taken.pop(id(original), None)
            with torch.enable_grad():
                return (
                    original
                    if original.device == self.device
                    else Copied.apply(original, self.device)
                )
        return (
            before
            if before is not None and not self._differs_now(original, before)
            else self._renewed(original)
        )

    def _differs_now(self, original: torch.Tensor, before: torch.Tensor) -> bool:
        return self._versions.get(id(original), (None,))[0] != _version(original)

    def _renewed(self, buffer: torch.Tensor) -> torch.Tensor:
        own = _lazy_like(buffer, self.device) if is_lazy(buffer) else self._copied(buffer)
        self.known[id(buffer)] = (buffer, own)
        self._versions[id(buffer)] = (_version(buffer), _version(own))
        return own

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self.device, copy=True)


def _differs(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether values differ; those that are not a number are equal."""
    if torch.equal(tensor, other):
        return False
    return bool(((tensor != other) & ~(tensor.isnan() & other.isnan())).any())


def _fits(before: torch.Tensor | None, original: torch.Tensor) -> bool:
    return (
        before is not None
        and not is_lazy(before)
        and before.dtype == original.dtype
        and before.shape == original.shape
        and before.stride() == original.stride()
    )


def _version(tensor: torch.Tensor | None) -> int:
    return -1 if tensor is None or tensor.is_inference() else tensor._version


def _lazy_like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A parameter or buffer without a shape."""
    if isinstance(tensor, UninitializedParameter):
        return UninitializedParameter(tensor.requires_grad, device, tensor.dtype)
    return UninitializedBuffer(False, device, tensor.dtype)


def has_hooks(parameter: torch.Tensor) -> bool:
    """Whether there are hooks that would see, or change, a gradient of this parameter."""
    return parameter.requires_grad and bool(
        parameter._backward_hooks or parameter._post_accumulate_grad_hooks
    )


def _hand_over(copy: torch.Tensor | None, original: torch.Tensor) -> None:
    """Add what a copy has gathered, before its original got hooks."""
    if copy is None or copy is original or not copy.is_leaf or copy.grad is None:
        return
    gradient, copy.grad = copy.grad.to(original.device), None
    original.grad = gradient if original.grad is None else original.grad + gradient
