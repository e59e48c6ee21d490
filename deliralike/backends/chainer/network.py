"""The native base on Chainer, and the neutral state: names, order and shapes of Chainer's links."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import Variable, chainer, chainermn
from deliralike.errors import ArgumentError, ConstructionError, StateError
from deliralike.network.base import AbstractNetwork, Block, NetworkType, StateDictNames
from deliralike.network.enclosing import EnclosingNetwork
from deliralike.network.parallelism import Hooks, Single
from deliralike.network.state import Slot

L = chainer.links

_NORM = {"gamma": "weight", "beta": "bias"}
_STATISTICS = {"avg_mean": "running_mean", "avg_var": "running_var", "N": "num_batches_tracked"}
_WEIGHTS = {"W": "weight", "b": "bias"}
# Chainer's names and the neutral ones, in neutral order. A link that is not listed keeps its own
# names.
_NEUTRAL: dict[type, dict[str, str]] = {
    L.Linear: _WEIGHTS,
    L.Convolution2D: _WEIGHTS,
    L.ConvolutionND: _WEIGHTS,
    L.DilatedConvolution2D: _WEIGHTS,
    L.Deconvolution2D: _WEIGHTS,
    L.DeconvolutionND: _WEIGHTS,
    L.EmbedID: {"W": "weight"},
    L.PReLU: {"W": "weight"},
    L.BatchNormalization: _NORM | _STATISTICS,
    chainermn.links.MultiNodeBatchNormalization: _NORM | _STATISTICS,
    L.LayerNormalization: _NORM,
    L.GroupNormalization: _NORM,
}


class Parameter(chainer.Parameter):
    """A parameter that stays frozen, if it is, when it is copied or pickled."""

    def __copy__(self) -> Any:
        return self._copy_to(type(self)())

    def __reduce__(self) -> tuple:
        _, arguments = super().__reduce__()
        return _restore_parameter, (self.requires_grad, *arguments)


def _restore_parameter(requires_grad: bool, *arguments: Any) -> Parameter:
    value, name, gradient, gradient_valid, initializer, update_rule, device = arguments
    parameter = Parameter(initializer, name=name)
    parameter.array = value
    parameter._grad, parameter._grad_valid, parameter.update_rule = (
        gradient,
        gradient_valid,
        update_rule,
    )
    parameter.to_device(device)
    set_requires_grad(parameter, requires_grad)
    return parameter


def set_requires_grad(parameter: chainer.Parameter, value: bool) -> None:
    """Freeze or thaw a parameter: backward skips a frozen one, and so does its update rule."""
    parameter._requires_grad = parameter._node._requires_grad = value
    if parameter.update_rule is not None:
        parameter.update_rule.enabled = value
    if not value:
        parameter.cleargrad()


class BufferValue:
    """The result of ``nn.Buffer``: an array that is about to become an attribute."""

    def __init__(self, value: Any) -> None:
        """Store the array."""
        self.value = value


class ChainerSlot(Slot):
    """A parameter or persistent value of a link, under its neutral name."""

    def __init__(self, link: chainer.Link, name: str, is_parameter: bool) -> None:
        """Refer to an attribute of a link; nothing is copied."""
        self.link, self.name, self.is_parameter = link, name, is_parameter

    @property
    def native(self) -> Any:  # type: ignore[override]
        """The parameter, or the value of the buffer now."""
        return self.link.__dict__[self.name]

    @property
    def trainable(self) -> bool:  # type: ignore[override]
        """Whether the parameter takes a gradient and an update."""
        return self.is_parameter and self.native.requires_grad

    @trainable.setter
    def trainable(self, value: bool) -> None:
        set_requires_grad(self.native, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape.

        The slope of a native `PReLU`, a scalar on Chainer, has one element as on PyTorch.
        """
        shape = np.shape(self._array())
        return (1,) if shape == () and isinstance(self.link, L.PReLU) else shape

    def read(self) -> np.ndarray:
        """Return a copy on the host."""
        value = arrays.numpy(self._array())
        return value.astype(np.int64) if isinstance(self.native, int) else value.reshape(self.shape)

    def write(self, value: np.ndarray) -> None:
        """Copy a value into the array, in its type, on its device."""
        if isinstance(self.native, int):
            self.link.__dict__[self.name] = int(value)
            return
        array = self._array()
        array[...] = arrays.array_module(array).asarray(
            value.reshape(array.shape).astype(array.dtype)
        )

    def in_native_layout(self, value: np.ndarray) -> np.ndarray:
        """Return a value without an axis where the link holds a scalar."""
        return value.reshape(np.shape(self._array()))

    @property
    def value(self) -> Any:
        """The array; a plain number counts as an array without axes.

        When it is set, the new array is copied into it.
        """
        return self._array()

    @value.setter
    def value(self, array: Any) -> None:
        if isinstance(self.native, int):
            self.link.__dict__[self.name] = int(array)
            return
        self._array()[...] = array

    def _array(self) -> Any:
        array = arrays.raw(self.native)
        if array is None:
            raise StateError(
                f"{type(self.link).__name__}: the shape of {self.name!r} is not known yet: call "
                "the network once, or give the link its input size"
            )
        return array if arrays.is_array(array) else np.asarray(array)


def link_slots(link: chainer.Link) -> dict[str, Slot]:
    """Return the slots of a link and of all links below it.

    They are own parameters, own buffers, and children, each in creation order.
    """
    names = _neutral_names(type(link))
    own = [*names, *(name for name in vars(link) if name not in names)]
    slots = {
        names.get(name, name): ChainerSlot(link, name, True) for name in own if name in link._params
    }
    slots |= {
        names.get(name, name): ChainerSlot(link, name, False)
        for name in own
        if name in link._persistent and (name not in names or vars(link)[name] is not None)
    }
    for path, child in _children(link):
        slots |= {f"{path}.{name}": slot for name, slot in _slots(child).items()}
    return slots


@cache
def _neutral_names(kind: type) -> dict[str, str]:
    return next((names for known, names in _NEUTRAL.items() if issubclass(kind, known)), {})


def _slots(link: chainer.Link) -> dict[str, Slot]:
    return link.neutral_slots() if isinstance(link, AbstractNetwork) else link_slots(link)


def _children(link: chainer.Link) -> list[tuple[str, chainer.Link]]:
    """Return the children with their names, in creation order.

    Chainer itself does not keep that order in a `Chain`.
    """
    if isinstance(link, chainer.ChainList):
        return [(str(index), child) for index, child in enumerate(link)]
    names = getattr(link, "_children", ())
    return [(name, child) for name, child in vars(link).items() if name in names]


def _blocks(path: str, link: chainer.Link, seen: set[int]) -> Iterator[tuple[str, chainer.Link]]:
    if id(link) in seen:
        return
    seen.add(id(link))
    yield path, link
    below = link.native if isinstance(link, WrappedChainerNetwork) else link
    for name, child in _children(below):
        yield from _blocks(f"{path}.{name}" if path else name, child, seen)


class _Running(threading.local):
    """The network that runs in this thread.

    Attributes:
        allowed: Whether Chainer's own ``config.train`` allows training.
        last: The value to which ``config.train`` was set last.
    """

    allowed = True
    last: bool | None = None

    def allows_training(self) -> bool:
        """Return Chainer's ``config.train`` as the user set it, outside or inside the network."""
        now = chainer.config.train
        return self.allowed if now is self.last else now


_running = _Running()


class ChainerNetworkType(NetworkType, type(chainer.Chain)):
    """The metaclass of networks that are links: our construction, and Chainer's checks."""


class ChainerSingle(Single):
    """The computations of a plain Chainer network."""

    def update_hooks(self) -> Hooks:
        """Return no hooks: `ChainerOptimizer` keeps replicated blocks in step."""
        return [], []

    def clear_replica_gradients(self) -> None:
        """Clear the gradients in every replica but the root: there are none."""


class AbstractChainerNetwork(
    StateDictNames, AbstractNetwork, chainer.Chain, metaclass=ChainerNetworkType
):
    """The base of networks on Chainer: a ``chainer.Chain`` that answers the neutral interface.

    Written-once networks are bound to it; a network written for Chainer alone may subclass it as it
    would ``chainer.Chain``, with or without ``init_scope``. ``params``, ``copy``, ``to_device``,
    ``serializers`` … are Chainer's own. Training mode holds where both `training` and Chainer's
    ``config.train`` say so.

    Better than in delira: each network has a record of its own arguments; evaluation needs no
    optimizer; labels keep their type.
    """

    _parallelism = ChainerSingle
    block_path = ""
    _training = True

    def __init__(self, **arguments: Any) -> None:
        """Make a chain of the links among the keyword arguments, and record all others.

        They are recorded in `init_kwargs`.
        """
        links = {
            name: value for name, value in arguments.items() if isinstance(value, chainer.Link)
        }
        chainer.Chain.__init__(self, **links)
        self._record({name: value for name, value in arguments.items() if name not in links})

    def __setattr__(self, name: str, value: Any) -> None:
        """Register parameters, links and buffers; a buffer takes over the value of an array."""
        if isinstance(value, BufferValue):
            self._forget(name)
            self.add_persistent(name, value.value)
        elif isinstance(value, chainer.Parameter | chainer.Link):
            self._register(name, value)
        elif name in self.__dict__.get("_persistent", ()):
            self._set_buffer(name, value)
        else:
            if name in self.__dict__.get("_params", ()) or name in self.__dict__.get(
                "_children", ()
            ):
                self._refuse_value(name, value)
            super().__setattr__(name, value)

    def _register(self, name: str, value: Any) -> None:
        if "_children" not in self.__dict__:
            raise ConstructionError(
                f"{type(self).__name__}: call super().__init__() before assigning {name!r}"
            )
        if hasattr(chainer.Chain, name) or name == "name":
            raise ConstructionError(
                f"{type(self).__name__}: {name!r} is something that every Chainer link has"
            )
        if type(self.__dict__.get(name)) not in (type(value), Parameter):
            self._forget(name)
        value.name = name
        (self._children if isinstance(value, chainer.Link) else self._params).add(name)
        object.__setattr__(self, name, value)

    def _forget(self, name: str) -> None:
        """Remove an attribute, so that attributes stay in the order of registration."""
        for names in (self._params, self._children, self._persistent):
            names.discard(name)
        self.__dict__.pop(name, None)

    def _refuse_value(self, name: str, value: Any) -> None:
        """Unregister a parameter or link that is set to None; refuse any other value."""
        if value is not None:
            raise ArgumentError(
                f"{type(self).__name__}: {name!r} is a registered "
                f"{type(self.__dict__[name]).__name__} and cannot be set to a "
                f"{type(value).__name__}: assign one of the same kind, or None, or set its array"
            )
        self._params.discard(name)
        self._children.discard(name)

    def _set_buffer(self, name: str, value: Any) -> None:
        """Store a value in the buffer's type, without its graph."""
        before, value = self.__dict__[name], arrays.raw(value)
        if arrays.is_array(before) and value is not None:
            value = arrays.array_module(before).asarray(value, dtype=before.dtype)
        object.__setattr__(self, name, value)

    # Calls and training mode
    # ------------------------------------------------------------

    @property
    def training(self) -> bool:  # type: ignore[override]
        """Whether this block is in training mode: its own flag and Chainer's ``config.train``."""
        return self._training and _running.allows_training()

    @training.setter
    def training(self, value: bool) -> None:
        object.__setattr__(self, "_training", bool(value))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with Chainer's link hooks, ``config.train`` being this block's own mode."""
        running, now = _running, chainer.config.train
        allowed = running.allowed if now is running.last else now
        wanted = self._training and allowed
        before = running.allowed, running.last
        if now is wanted and before == (
            allowed,
            wanted,
        ):  # within a network in the same mode: nothing to set
            return super().__call__(*args, **kwargs)
        _running.allowed, _running.last = allowed, wanted
        try:
            if now is wanted:
                return super().__call__(*args, **kwargs)
            with chainer.using_config("train", wanted):
                return super().__call__(*args, **kwargs)
        finally:
            _running.allowed, _running.last = before

    def train(self, mode: bool = True) -> Any:
        """Set training or evaluation mode for this network and all blocks; return the network."""
        for _, block in self.named_blocks():
            if isinstance(block, AbstractChainerNetwork):
                block.training = mode
        return self

    @contextmanager
    def training_mode(self, training: bool) -> Iterator[Any]:
        """Hold training or evaluation mode for a ``with`` block, then restore each block's mode."""
        blocks = [
            block for _, block in self.named_blocks() if isinstance(block, AbstractChainerNetwork)
        ]
        before = [
            block._training for block in blocks
        ]  # not `training`, which Chainer's own switch may hide
        self.train(training)
        try:
            yield self
        finally:
            for block, was_training in zip(blocks, before, strict=True):
                block.training = was_training

    # The neutral interface
    # ------------------------------------------------------------

    def neutral_slots(self) -> dict[str, Slot]:
        """Return own parameters, own buffers and children; ties appear under each name."""
        return link_slots(self)

    def named_blocks(self) -> Iterator[tuple[str, chainer.Link]]:
        """Return every link with its dotted path, each once."""
        return _blocks("", self, set())

    def params(self, include_uninit: bool = True) -> Iterator[chainer.Parameter]:
        """Return Chainer's `params`, with each shared parameter once.

        So Chainer's optimizers update it once.
        """
        seen: set[int] = set()
        for parameter in super().params(include_uninit):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter

    def copy(self, mode: str = "share") -> AbstractChainerNetwork:
        """Copy by Chainer's `copy`, with links and parameters shared as in the original.

        Chainer would give each name of a shared one a copy of its own.
        """
        new = super().copy(mode)
        tie_as(self, new, {})
        return new

    @property
    def device_name(self) -> str:
        """The device of the link."""
        return str(self.device)

    @property
    def dtype_name(self) -> str:
        """The floating type of the parameters, or of the first buffer."""
        first = next((p for p in self.params(include_uninit=False) if p.dtype.kind == "f"), None)
        if first is not None:
            return str(first.dtype)
        values = (arrays.raw(slot.native) for slot in self.neutral_slots().values())
        return next(
            (str(v.dtype) for v in values if arrays.is_array(v) and v.dtype.kind == "f"),
            self.dtype_built,
        )

    def __repr__(self) -> str:
        """Return the tree of blocks in creation order, each with its arguments."""
        return _tree(self)

    __str__ = __repr__


def tie_as(link: chainer.Link, twin: chainer.Link, twins: dict[int, Any]) -> None:
    """Let a copy of a link share parameters and children under several names as the link does.

    Args:
        twins: The objects of the copy by the id of the original; empty at the start.
    """
    twins[id(link)] = twin
    for name in link._params:
        vars(twin)[name] = twins.setdefault(id(vars(link)[name]), vars(twin)[name])
    pairs = zip(_children(link), _children(twin), strict=True)
    links = [
        (name, child, copied)
        for (name, child), (_, copied) in pairs
        if isinstance(child, chainer.Link)
    ]
    for name, child, copied in links:  # and no functions, which a chainer.Sequential may hold
        if id(child) not in twins:
            tie_as(child, copied, twins)
        elif isinstance(twin, chainer.ChainList):
            twin._children[int(name)] = twins[id(child)]
        else:
            vars(twin)[name] = twins[id(child)]


class WrappedChainerNetwork(EnclosingNetwork, AbstractChainerNetwork):
    """A plain link seen as an abstract network: the same parameters under the same names."""

    enclosed = "native"

    def __init__(self, native: chainer.Link) -> None:
        """Share the link's parameters; nothing is copied."""
        super().__init__()
        self.native = native

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the link."""
        return self.native(*args, **kwargs)

    def neutral_slots(self) -> dict[str, Slot]:
        """Return the link's own names, without a prefix."""
        return link_slots(self.native)


def set_dtype(network: chainer.Link, dtype: str) -> None:
    """Convert the floating parameters and persistent arrays of a link and all below it."""
    for parameter in (p for p in network.params(include_uninit=False) if p.dtype.kind == "f"):
        parameter.array = parameter.array.astype(dtype)
        parameter.cleargrad()
    for link in network.links():
        for name, value in ((name, vars(link)[name]) for name in link._persistent):
            if arrays.is_array(value) and value.dtype.kind == "f":
                object.__setattr__(link, name, value.astype(dtype))


def _tree(link: chainer.Link) -> str:
    settings = getattr(link, "init_kwargs", None)
    shown = link.printable_specs if settings is None else settings.items()
    settings_text = ", ".join(
        f"{name}={value!r}" for name, value in shown if not _holds_blocks(value)
    )
    lines = [f"({name}): {_tree(child)}".replace("\n", "\n  ") for name, child in _children(link)]
    return (
        f"{type(link).__name__}({settings_text})"
        if not lines
        else "\n  ".join([f"{type(link).__name__}({settings_text}", *lines]) + "\n)"
    )


def _holds_blocks(value: Any) -> bool:
    """Return whether the tree shows a setting anyway."""
    items = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else (value,)
    )
    return any(isinstance(item, Block | chainer.Link | Variable) for item in items)
