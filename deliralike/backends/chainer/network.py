"""The native base on Chainer, and the neutral state: names, order and shapes of Chainer's links."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import Variable, chainer, chainermn
from deliralike.errors import ArgumentError, ConstructionError, StateError
from deliralike.nest.arrays import widest
from deliralike.network.arguments import recorded_arguments
from deliralike.network.base import AbstractNetwork, NetworkType, StateDictNames
from deliralike.network.construction import current_construction
from deliralike.network.core import NetworkCore
from deliralike.network.parallelism import Hooks, Single
from deliralike.network.state import Slot
from deliralike.network.tree import block_tree, walk
from deliralike.network.unregistered_modules import refuse_without_init
from deliralike.network.wrapper import NativeWrapper
from deliralike.nn.start import Shape

L = chainer.links

_NORM = {"gamma": "weight", "beta": "bias"}
_STATISTICS = {
    "avg_mean": "running_mean",
    "avg_var": "running_var",
    "N": "num_batches_tracked",
}
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
    parameter._grad = gradient
    parameter._grad_valid = gradient_valid
    parameter.update_rule = update_rule
    parameter.to_device(device)
    set_requires_grad(parameter, requires_grad)
    return parameter


def set_requires_grad(parameter: chainer.Parameter, value: bool) -> None:
    """Freeze or thaw a parameter: backward skips a frozen one, and so does its update rule."""
    unstable.set_requires_grad(parameter, value)
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

    is_resizable = True

    def __init__(self, link: chainer.Link, name: str, is_parameter: bool) -> None:
        """Refer to an attribute of a link; nothing is copied."""
        self.link = link
        self.name = name
        self.is_parameter = is_parameter

    @property
    def native(self) -> Any:
        """The parameter, or the value of the buffer now."""
        return self.link.__dict__[self.name]

    @property
    def trainable(self) -> bool:
        """Whether the parameter takes a gradient and an update."""
        return self.is_parameter and self.native.requires_grad

    @trainable.setter
    def trainable(self, value: bool) -> None:
        set_requires_grad(self.native, value)

    @property
    def shape(self) -> Shape:
        """The shape.

        The slope of a native `PReLU`, a scalar on Chainer, has one element as on PyTorch.
        """
        shape = self._array().shape
        if shape == () and isinstance(self.link, L.PReLU):
            return (1,)
        return shape

    def read(self) -> np.ndarray:
        """Return a copy on the host."""
        value = arrays.numpy(self._array())
        if isinstance(self.native, int):
            return value.astype(np.int64)
        return value.reshape(self.shape)

    def write(self, value: np.ndarray) -> None:
        """Copy a value into the array, in its type, on its device."""
        if isinstance(self.native, int):
            self.link.__dict__[self.name] = int(value)
            return
        array = self._array()
        value = value.reshape(array.shape).astype(array.dtype)
        array[...] = arrays.array_module(array).asarray(value)

    def resize(self, shape: Shape) -> None:
        """Let the parameter hold zeros of another shape."""
        if not self.is_parameter:
            super().resize(shape)
        array = self._array()
        self.native.cleargrad()
        self.native.array = arrays.array_module(array).zeros(shape, array.dtype)

    def in_native_layout(self, value: np.ndarray) -> np.ndarray:
        """Return a value without an axis where the link holds a scalar."""
        return value.reshape(self._array().shape)

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
    kind: Any = type(link)
    neutral_names = _neutral_names(kind)
    attributes = vars(link)
    own = [*neutral_names, *(name for name in attributes if name not in neutral_names)]
    may_be_absent = attributes if isinstance(link, AbstractNetwork) else neutral_names
    slots: dict[str, Slot] = {}
    for name in own:
        if name in link._params:
            slots[neutral_names.get(name, name)] = ChainerSlot(link, name, True)
    for name in own:
        if name not in link._persistent:
            continue
        if name in may_be_absent and attributes[name] is None:
            continue
        slots[neutral_names.get(name, name)] = ChainerSlot(link, name, False)
    for path, child in _children(link):
        for name, slot in _slots(child).items():
            slots[f"{path}.{name}"] = slot
    return slots


@cache
def _neutral_names(kind: Any) -> dict[str, str]:
    for known, names in _NEUTRAL.items():
        if issubclass(kind, known):
            return names
    return {}


def _slots(link: chainer.Link) -> dict[str, Slot]:
    if isinstance(link, AbstractNetwork):
        return link.neutral_slots()
    return link_slots(link)


def _children(link: chainer.Link) -> list[tuple[str, chainer.Link]]:
    """Return the children with their names, in creation order.

    Chainer itself does not keep that order in a `Chain`.
    """
    if isinstance(link, chainer.ChainList):
        return [(str(index), child) for index, child in enumerate(link)]
    names = getattr(link, "_children", ())
    return [(name, child) for name, child in vars(link).items() if name in names]


def _children_of_link(link: Any) -> list[tuple[str, chainer.Link]]:
    return _children(link.native if isinstance(link, WrappedChainerNetwork) else link)


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


_ChainType: Any = type(chainer.Chain)


class ChainerNetworkType(NetworkType, _ChainType):
    """The metaclass of networks that are links: our construction, and Chainer's checks."""

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Build one network on the device of its construction, Chainer's own links in it too.

        A link does not know the device of its arrays unless it was moved there.
        """
        network = super().__call__(*args, **kwargs)
        construction = current_construction()
        device = None if construction is None else construction.device
        if device not in (None, arrays.HOST):
            network.to_device(device)
        return network


class ChainerSingle(Single):
    """The computations of a plain Chainer network."""

    def update_hooks(self) -> Hooks:
        """Return no hooks: `ChainerOptimizer` keeps replicated blocks in step."""
        return [], []

    def clear_replica_gradients(self, parameters: Mapping[str, Any]) -> None:
        """Clear the gradients in every replica but the root: there are none."""

    def forget_gradients(self) -> None:
        """Drop the gradients by ``cleargrads``."""
        self.network.cleargrads()


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
    _may_be_hidden = frozenset({"repeat"})
    block_path = ""
    _training = True

    def __init__(self, **arguments: Any) -> None:
        """Make a chain of the links among the keyword arguments, and record all others.

        They are recorded in `init_kwargs`.
        """
        links = {}
        others = {}
        for name, value in arguments.items():
            if isinstance(value, chainer.Link):
                links[name] = value
            else:
                others[name] = value
        chainer.Chain.__init__(self, **links)
        self._record(others)

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
            if self._is_registered(name):
                self._refuse_value(name, value)
            super().__setattr__(name, value)

    def _is_registered(self, name: str) -> bool:
        """Return whether an attribute is a parameter or a link; there are none before __init__."""
        names = vars(self)
        return name in names.get("_params", ()) or name in names.get("_children", ())

    def _register(self, name: str, value: Any) -> None:
        refuse_without_init(self, name, "_children")
        is_taken = hasattr(chainer.Chain, name) and name not in self._may_be_hidden
        if is_taken or name == "name":
            raise ConstructionError(
                f"{type(self).__name__}: {name!r} is something that every Chainer link has"
            )
        if type(self.__dict__.get(name)) not in (type(value), Parameter):
            self._forget(name)
        if value.name is None or isinstance(value, chainer.Parameter):
            value.name = name  # a block may have set its attribute of that name
        names = self._children if isinstance(value, chainer.Link) else self._params
        names.add(name)
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
        former = self.__dict__[name]
        value = arrays.raw(value)
        if arrays.is_array(former) and value is not None:
            value = arrays.array_module(former).asarray(value, dtype=former.dtype)
        object.__setattr__(self, name, value)

    # Calls and training mode
    # ------------------------------------------------------------

    @property
    def training(self) -> bool:
        """Whether this block is in training mode: its own flag and Chainer's ``config.train``."""
        return self._training and _running.allows_training()

    @training.setter
    def training(self, value: bool) -> None:
        object.__setattr__(self, "_training", bool(value))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with Chainer's link hooks, ``config.train`` being this block's own mode."""
        running = _running
        now = chainer.config.train
        former = (running.allowed, running.last)
        allowed = running.allowed if now is running.last else now
        mode = self._training and allowed
        if now is mode and former == (allowed, mode):
            return super().__call__(
                *args, **kwargs
            )  # within a network in the same mode
        running.allowed, running.last = allowed, mode
        try:
            if now is mode:
                return super().__call__(*args, **kwargs)
            with chainer.using_config("train", mode):
                return super().__call__(*args, **kwargs)
        finally:
            running.allowed, running.last = former

    def _mode_attributes(self, block: Any, training: bool) -> dict[str, bool]:
        # Chainer's own switch may hide it from `training`
        return {"_training": training} if hasattr(block, "_training") else {}

    def _has_own_mode(self, block: Any) -> bool:
        return getattr(type(block), "train", None) not in (None, NetworkCore.train)

    # The neutral interface
    # ------------------------------------------------------------

    def neutral_slots(self) -> dict[str, Slot]:
        """Return own parameters, own buffers and children; ties appear under each name."""
        return link_slots(self)

    def named_blocks(self) -> Iterator[tuple[str, chainer.Link]]:
        """Return every link with its dotted path, each once."""
        return walk(self, _children_of_link)

    def params(self, include_uninit: bool = True) -> Iterator[chainer.Parameter]:
        """Return Chainer's `params`, with each shared parameter once.

        So Chainer's optimizers update it once.
        """
        found = super().params(include_uninit)
        return iter({id(parameter): parameter for parameter in found}.values())

    def copy(self, mode: str = "share") -> AbstractChainerNetwork:
        """Copy by Chainer's `copy`, with links and parameters shared as in the original.

        Chainer would give each name of a shared one a copy of its own.
        """
        twin = super().copy(mode)
        tie_as(self, twin, {})
        return twin

    @property
    def device_name(self) -> str:
        """The device of the link."""
        return str(self.device)

    @property
    def dtype_name(self) -> str:
        """The floating type of the parameters; without any that of the buffers."""
        dtypes = (parameter.dtype for parameter in self.params(include_uninit=False))
        dtype = widest(each for each in dtypes if each.kind == "f")
        if dtype is None:
            values = [arrays.raw(slot.native) for slot in self.neutral_slots().values()]
            dtypes = (value.dtype for value in values if arrays.is_array(value))
            dtype = widest(each for each in dtypes if each.kind == "f")
        return self.dtype_built if dtype is None else str(dtype)

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
    pairs = list(zip(_children(link), _children(twin), strict=True))
    for (name, child), (_, child_twin) in pairs:
        if not isinstance(child, chainer.Link):
            continue  # a function, which a chainer.Sequential may hold
        if id(child) not in twins:
            tie_as(child, child_twin, twins)
        elif isinstance(twin, chainer.ChainList):
            twin._children[int(name)] = twins[id(child)]
        else:
            vars(twin)[name] = twins[id(child)]


class WrappedChainerNetwork(NativeWrapper, AbstractChainerNetwork):
    """A plain link seen as an abstract network: the same parameters under the same names."""

    def __init__(self, native: chainer.Link) -> None:
        """Share the link's parameters; nothing is copied."""
        super().__init__()
        name = native.name
        self.native = native
        native.name = name  # Chainer calls it "native" from here on

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the link."""
        return self.native(*args, **kwargs)

    def neutral_slots(self) -> dict[str, Slot]:
        """Return the link's own names, without a prefix."""
        return link_slots(self.native)


def set_dtype(network: chainer.Link, dtype: str) -> None:
    """Convert the floating parameters and persistent arrays of a link and all below it.

    A batch normalization without gamma or beta makes them at each call, in a type that it notes.
    """
    for parameter in list(network.params(include_uninit=False)):
        if parameter.dtype.kind == "f":
            parameter.array = parameter.array.astype(dtype)
            parameter.cleargrad()
    for link in network.links():
        for name in link._persistent:
            value = vars(link)[name]
            if arrays.is_array(value) and value.dtype.kind == "f":
                object.__setattr__(link, name, value.astype(dtype))
        unstable.set_statistics_type(link, dtype)


def _tree(link: chainer.Link) -> str:
    """Return the text of a link and all below it, indented."""
    if not isinstance(link, chainer.Link):
        return getattr(
            link, "__name__", repr(link)
        )  # a function in a chainer.Sequential
    settings = recorded_arguments(link)
    items = link.printable_specs if settings is None else settings.items()
    plain = [pair for pair in items if not isinstance(pair[1], chainer.Link | Variable)]
    children = [(name, _tree(child)) for name, child in _children(link)]
    return block_tree(type(link).__name__, plain, children)
