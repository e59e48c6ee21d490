"""Compiled programs over a network: its variables go in as arguments, and come out changed.

A program is traced on a copy of the network built around traced variables. It is used again as long
as the loss function, the network's settings (training mode, frozen parameters, blocks) and the
other arguments stay the same.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.extend.core import jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr

from deliralike import nest, random
from deliralike.backends.base import Gradients
from deliralike.backends.jax import arrays
from deliralike.backends.jax.arrays import numpy as to_host
from deliralike.backends.jax.compiled.channels_last import channels_last
from deliralike.backends.jax.network import JaxSlot, holds, walk
from deliralike.optim.loss import LossResult, no_scalar

_KEPT = 16
_BY_VALUE = (bool, int, float, str, type(None))
_OF_PARTS = (tuple, frozenset)


class Members:
    """The variables of a network as they stand: trainable parameters, frozen ones, and all others.

    Attributes:
        slots: Every parameter's slot by its neutral name; of tied parameters the first name.
        owned: Those that are an optimizer's; all of them unless it has a part of the network.
        parameters: The trainable ones among those owned.
        frozen: All other parameters.
        others: Buffers and random states, in the order of creation.
    """

    def __init__(self, network: Any, owns: Callable[[str], bool] = lambda name: True) -> None:
        """Look through a network; nothing is copied."""
        self.network = network
        slots = {name: slot for name, slot in network.neutral_slots().items() if slot.is_parameter}
        self.slots = _each_once(slots)
        owned = {
            id(slot.native) for name, slot in slots.items() if owns(name)
        }  # by any name of a tied one
        self.owned = {name: slot for name, slot in self.slots.items() if id(slot.native) in owned}
        self.parameters = {name: slot.native for name, slot in self.owned.items() if slot.trainable}
        self.frozen = {
            name: slot.native for name, slot in self.slots.items() if name not in self.parameters
        }
        known = {id(slot.native) for slot in self.slots.values()}
        nodes = [node for _, node in walk(network)]
        self.others = [
            node for node in nodes if isinstance(node, nnx.Variable) and id(node) not in known
        ]
        self.nodes = [node for node in nodes if not isinstance(node, nnx.Variable)]
        self.held = [
            dict(vars(node)) for node in self.nodes
        ]  # keeps what is compared by identity alive
        self._ids = [[*map(id, held.values())] for held in self.held]
        self._trainable = [slot.trainable for slot in self.slots.values()]
        self._read = [
            {name: _reader(variable) for name, variable in named.items()}
            for named in (self.parameters, self.frozen)
        ]
        self._read_others = [_reader(variable) for variable in self.others]
        self._write = {name: _writer(variable) for name, variable in self.parameters.items()}

    def mark(self) -> tuple:
        """Return a mark that changes with settings, blocks and frozen parameters.

        It does not change with values.
        """
        settings = (
            value
            for node in self.nodes
            for name, value in vars(node).items()
            if name[:8] != "_pytree_"
        )
        frozen = (slot.trainable for slot in self.slots.values())
        return (*map(_mark, settings), *frozen)

    def set_since(self, before: Members) -> list[str]:
        """Return the attributes, as ``Class.name``, whose marks differ from an earlier look.

        `before` is the earlier look at the same network.
        """
        found = []
        for node, held, then in zip(self.nodes, self.held, before.held, strict=False):
            changed = (
                name for name, value in held.items() if _mark(value) != _mark(then.get(name))
            )
            found += [f"{type(node).__name__}.{name}" for name in changed if name[:8] != "_pytree_"]
        return list(dict.fromkeys(found))

    def is_untouched(self) -> bool:
        """Return whether every setting, block and parameter is still the very same object.

        This is quicker than comparing marks.
        """
        same = all(
            [*map(id, vars(node).values())] == ids
            for node, ids in zip(self.nodes, self._ids, strict=True)
        )
        return same and [slot.trainable for slot in self.slots.values()] == self._trainable

    def values(self) -> tuple[dict[str, jax.Array], dict[str, jax.Array], list[Any]]:
        """The arrays of parameters, frozen parameters and others."""
        named = ({name: read() for name, read in each.items()} for each in self._read)
        return (*named, [read() for read in self._read_others])  # type: ignore[return-value]

    @property
    def dtype(self) -> np.dtype | None:
        """The type of the first floating parameter; None where there is none."""
        types = (read().dtype for each in self._read for read in each.values())
        return next(
            (dtype for dtype in types if jax.numpy.issubdtype(dtype, jax.numpy.floating)), None
        )

    def only_owned(self, named: dict[str, Any]) -> dict[str, Any]:
        """Those of named values whose parameters are owned."""
        return {name: value for name, value in named.items() if name in self.owned}

    def rebuilt(
        self, parameters: dict[str, Any], frozen: dict[str, Any], others: list[Any]
    ) -> tuple[Any, list[nnx.Variable]]:
        """A copy of the network around other arrays, and the copy's buffers and random states."""
        pairs = [(v, parameters[name]) for name, v in self.parameters.items()]
        pairs += [(v, frozen[name]) for name, v in self.frozen.items()] + list(
            zip(self.others, others, strict=True)
        )
        new = {id(variable): variable.copy(value) for variable, value in pairs}
        return copied_around(self.network, new), [new[id(variable)] for variable in self.others]

    def store(self, parameters: dict[str, Any], others: Sequence[Any]) -> None:
        """Set new values; None leaves a variable as it is."""
        for name, value in parameters.items():
            if value is not None:
                self._write[name](value)
        for variable, value in zip(self.others, others, strict=True):
            if value is not None:
                variable.set_value(value)


def _mark(value: Any) -> Any:
    """What is equal for two settings with which a network computes the same."""
    kind = type(value)
    if kind in _BY_VALUE:
        return kind, value  # as 1, 1.0 and True are equal, and do not compute the same
    if kind in _OF_PARTS:
        return kind, kind(map(_mark, value))
    return id(value)


def _is_plain(variable: nnx.Variable) -> bool:
    """Return whether a variable is an array and nothing else.

    Such a variable is no reference to an array, and has no hook that wants to see it.
    """
    hooks = any(variable.has_metadata(name) for name in ("on_get_value", "on_set_value"))
    return not hooks and isinstance(variable.get_raw_value(), jax.Array)


def _reader(variable: nnx.Variable) -> Callable[[], Any]:
    return (
        variable.get_raw_value if _is_plain(variable) else variable.get_value
    )  # the latter takes ten times as long


def _writer(variable: nnx.Variable) -> Callable[[Any], None]:
    return variable.set_raw_value if _is_plain(variable) else variable.set_value


class ProgramCache:
    """The programs compiled for one network, the latest sixteen."""

    def __init__(self, network: Any, owns: Callable[[str], bool] = lambda name: True) -> None:
        """Compile nothing yet."""
        self.network, self._owns = network, owns
        self._members: OrderedDict[tuple, Members] = OrderedDict()
        self._compiled: OrderedDict[Any, Any] = OrderedDict()
        self._warned = False

    def members(self) -> Members:
        """Return the network's variables.

        The network is searched anew only where something other than a value has changed.
        """
        arrays.refuse_fork()
        if self._members:
            latest = self._members[next(reversed(self._members))]
            if latest.is_untouched():
                return latest
            mark = latest.mark()
            if mark in self._members:
                self._members.move_to_end(mark)
                return self._members[mark]
        found = Members(self.network, self._owns)
        _keep(self._members, found.mark(), found)
        return found

    def compiled(self, key: Any, make: Callable[[], Any]) -> Any:
        """The program of a key, made when there is none."""
        if key not in self._compiled:
            if len(self._compiled) == _KEPT and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{type(self.network).__name__}: more than {_KEPT} programs were compiled. "
                    f"{self._cause()}",
                    stacklevel=4,
                )
            _keep(self._compiled, key, make())
        self._compiled.move_to_end(key)
        return self._compiled[key]

    def _cause(self) -> str:
        """What is likely to have made so many programs necessary."""
        looks = list(self._members.values())
        changed = looks[-1].set_since(looks[-2]) if len(looks) >= _KEPT // 2 else []
        if changed:
            return (
                f"Steps set {', '.join(changed)} to other objects, and a network is compiled for "
                "each setting: change it less often, or make it an array, an nnx.Variable or "
                "nn.Buffer"
            )
        return (
            "Does each step bring a new loss function (a lambda made in the loop), or new values "
            "that are no arrays?"
        )


@dataclass(frozen=True)
class Arguments:
    """The flattened arguments of a call.

    Arrays and floats are passed to the program; all else is compiled in.
    """

    spec: Any
    static: tuple
    arrays: list[Any]

    @property
    def key(self) -> tuple:
        """What a program is compiled for."""
        return (self.spec, self.static)

    def together(self, arrays: Sequence[Any]) -> tuple:
        """The arguments with other arrays in their places."""
        rest = iter(arrays)
        return nest.unflatten(
            self.spec, [next(rest) if is_array else value for is_array, value in self.static]
        )


def taken_apart(arguments: tuple) -> Arguments:
    """Take a nest of arguments apart."""
    leaves, spec = nest.flatten(arguments)
    passed = [isinstance(leaf, jax.Array | np.ndarray | np.generic | float) for leaf in leaves]
    static = tuple(
        (True, None) if is_array else (False, leaf)
        for is_array, leaf in zip(passed, leaves, strict=True)
    )
    return Arguments(
        spec, static, [leaf for is_array, leaf in zip(passed, leaves, strict=True) if is_array]
    )


@dataclass(frozen=True)
class Where:
    """The position in the portable random stream at which a program runs.

    The seed is compiled in; the rest is passed.
    """

    seed: int | None
    numbers: tuple[Any, ...]

    def entered(self, numbers: tuple[Any, ...]) -> AbstractContextManager[Any]:
        """The stream at traced numbers."""
        return nullcontext() if self.seed is None else random.portable(self.seed, *numbers)


def where() -> Where:
    """Where we are now."""
    stream = random.current()
    return (
        Where(None, ())
        if stream is None
        else Where(stream.seed, (stream.step, stream.first_sample))
    )


@jax.tree_util.register_static
@dataclass(frozen=True)
class Plain:
    """A result that is no array, handed through a compiled program."""

    value: Any


def packed(result: Any) -> Any:
    """A nest that a compiled program can give back."""
    leaves, spec = nest.flatten(result)
    leaves = [leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf for leaf in leaves]
    return [
        leaf if isinstance(leaf, jax.Array | np.ndarray) else Plain(leaf) for leaf in leaves
    ], Plain(spec)


def unpacked(result: Any) -> Any:
    """The nest that was packed."""
    leaves, spec = result
    return nest.unflatten(
        spec.value, [leaf.value if isinstance(leaf, Plain) else leaf for leaf in leaves]
    )


def forward(
    members: Members, loss_function: Callable[..., Any], values: tuple, batch: tuple
) -> tuple[Any, Any]:
    """Return the loss on a copy of the network around traced values.

    The result and the changed buffers are returned beside it.
    """
    result, changed = ran(members, loss_function, values, batch)
    return loss_in(result), (packed(result), changed)


def ran(
    members: Members, function: Callable[..., Any], values: tuple, batch: tuple
) -> tuple[Any, list[Any]]:
    """Return a function's result on a copy of the network around traced values.

    The buffers that the function has changed are returned beside it.
    """
    network, others = members.rebuilt(*values)
    result = function(network, *batch)
    changed = [
        None if new.get_value() is old else new.get_value()
        for new, old in zip(others, values[2], strict=True)
    ]
    return result, changed


def loss_in(result: Any) -> Any:
    """The loss in what a loss function returned."""
    loss = LossResult.of(result).value
    if np.shape(loss) != ():
        raise no_scalar(np.shape(loss))
    return loss


def differentiated(function: Callable[[Any], tuple[Any, Any]], at: Any) -> tuple[Any, Any]:
    """Return the auxiliary output of a function, and the gradient of its value.

    The gradient is None at leaves that the value does not depend on.

    The function is traced once. What depends on a leaf is read from the traced derivative: a zero
    in the gradient does not tell a parameter that took no part from one whose gradient vanishes.
    """
    leaves, tree = jax.tree.flatten(at)
    traced, shapes = jax.make_jaxpr(
        lambda *flat: function(jax.tree.unflatten(tree, flat)), return_shape=True
    )(*leaves)
    # elsewhere than on a CPU, XLA chooses the orders of axes itself
    run = channels_last(traced) if jax.default_backend() == "cpu" else jaxpr_as_fun(traced)

    def split(flat: list[Any]) -> tuple[Any, list[Any]]:
        loss, *beside = run(*flat)
        return loss, beside

    used = _used(lambda flat: run(*flat)[0], leaves)
    pick = [leaf for leaf, is_used in zip(leaves, used, strict=True) if is_used]
    beside, found = _gradient_of_some(split, leaves, used, pick)
    rest = iter(found)
    gradient = jax.tree.unflatten(tree, [next(rest) if is_used else None for is_used in used])
    return jax.tree.unflatten(jax.tree.structure(shapes[1]), beside), gradient


def in_neutral_layouts(
    network: Any,
    members: Members,
    arguments: Arguments,
    loss: Any,
    parameters: dict[str, Any],
    inputs: list[Any],
    result: Any = None,
) -> Gradients:
    """Return a loss and its native gradients as NumPy arrays in neutral layouts.

    Gradients of tied parameters appear under every name; those of inputs keep the inputs' nest.
    """
    by_variable = {id(members.parameters[name]): gradient for name, gradient in parameters.items()}
    trainable = {name: slot for name, slot in network.neutral_slots().items() if slot.trainable}
    found = {name: _neutral(by_variable[id(slot.native)], slot) for name, slot in trainable.items()}
    only_arrays = Arguments(
        arguments.spec, tuple((is_array, None) for is_array, _ in arguments.static), []
    )
    host = [None if gradient is None else to_host(gradient) for gradient in inputs]
    beside = network.backend.to_numpy(LossResult.of(result).extras or ())
    return Gradients(float(loss), found, only_arrays.together(host), beside)


def _neutral(gradient: Any, slot: Any) -> np.ndarray | None:
    return None if gradient is None else slot.layout.to_neutral(to_host(gradient))


def _gradient_of_some(
    split: Callable, leaves: list[Any], used: list[bool], pick: list[Any]
) -> tuple[list[Any], list[Any]]:
    def of_used(some: list[Any]) -> tuple[Any, list[Any]]:
        rest = iter(some)
        return split(
            [next(rest) if is_used else leaf for leaf, is_used in zip(leaves, used, strict=True)]
        )

    if not pick:
        return of_used([])[1], []
    found, beside = jax.grad(of_used, has_aux=True)(pick)
    return beside, found


def _used(function: Callable[[list[Any]], Any], leaves: list[Any]) -> list[bool]:
    """Which leaves the derivative of a function depends on."""
    derivative = jax.make_jaxpr(lambda tangents: jax.jvp(function, (leaves,), (tangents,))[1])(
        leaves
    )
    return dce_jaxpr(derivative.jaxpr, [True])[1]


def copied_around(
    root: Any,
    memo: dict[int, Any],
    of_variable: Callable[[nnx.Variable], Any] = lambda variable: variable,
) -> Any:
    """A copy of a module, or of what holds modules; settings are shared.

    Args:
        memo: What stands in the place of which node or variable, by id; the copies made are added
            to it.
        of_variable: What takes the place of a variable that the memo lacks.
    """

    def visit(node: Any) -> Any:
        if id(node) in memo:
            return memo[id(node)]
        if isinstance(node, nnx.Variable):
            new = memo[id(node)] = of_variable(node)
            return new
        if isinstance(node, nnx.Pytree):
            new = memo[id(node)] = object.__new__(type(node))
            vars(new).update(
                {
                    name: visit(value) if holds(value) else value
                    for name, value in vars(node).items()
                }
            )
            object.__setattr__(
                new, "_pytree__state", jax.tree.map(lambda leaf: leaf, vars(node)["_pytree__state"])
            )
            return new
        if type(node) is dict:
            return {name: visit(value) for name, value in node.items()}
        return type(node)(map(visit, node)) if type(node) in (list, tuple) else node

    return visit(root)


def _each_once(slots: dict[str, JaxSlot]) -> dict[str, JaxSlot]:
    first: dict[int, str] = {}
    for name, slot in slots.items():
        first.setdefault(id(slot.native), name)
    return {name: slots[name] for name in first.values()}


def _keep(kept: OrderedDict, key: Any, value: Any) -> None:
    kept[key] = value
    if len(kept) > _KEPT:
        kept.popitem(last=False)
