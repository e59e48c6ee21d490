"""Taps: the inputs and outputs of each block and function, recorded, forced and judged.

A unit is a network or a block of one with its inputs. Its taps are the calls made while it runs: of
blocks, and of functions of `nn` between them; what happens inside of a tapped call belongs to that
call. Three runs of a unit:

- `record` notes the inputs and outputs of each tap, and of the unit;
- `cotangents` gives the gradient of the unit's scalar with respect to each of them;
- `force` gives every tap the inputs that another network had, and its output to what follows. So
  each is judged alone, forward and backward, and so is what the unit itself does between them.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deliralike import backends, nest, random
from deliralike.backends.base import Backend, Gradients
from deliralike.conformance.findings import Observed
from deliralike.network.base import AbstractNetwork
from deliralike.network.calls import functions_called_through

UNIT = ""  # the name of a unit among its taps

Arrays = list[Any]  # the leaves of a nest that are arrays, None in the places of the others


class Held(str):
    """In the place of an argument that is a parameter or buffer of the network: its name."""

    __slots__ = ()


class Setting:
    """A plain argument of a native function: one leaf, whatever it is.

    Settings show in what a function gives. They are not compared, as an axis is another one where
    channels are last, and they have no part in how arrays are matched. (It is no dataclass, which
    would be a nest.)
    """

    def __init__(self, value: Any) -> None:
        """Hold a value."""
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def bare(values: Any) -> Any:
    """Return a nest with plain values in the place of settings."""
    return nest.map(lambda leaf: leaf.value if isinstance(leaf, Setting) else leaf, values)


@dataclass(frozen=True)
class Unit:
    """A network, or a block seen as one, and how it is called.

    Attributes:
        network: On any backend.
        call: ``call(network, *args, **kwargs)``: a loss, or the block's own call.
        args, kwargs: NumPy arrays and plain values, in any nest.
        training: The mode.
        tapped: The name of the tap that the call of a block is, by the block's path; None where it
            is looked into.
        seed: Of the portable random stream.
        functions: Whether calls of functions of `nn` are taps as well; in a native network also
            those of the framework's own functions.
        same: Which of the arguments are one object; see `Call`.
        opened: Whether gradients pass `stop_gradient` where that is no tap: to see what it is that
            it stops.
    """

    network: AbstractNetwork
    call: Callable[..., Any]
    args: tuple[Any, ...]
    training: bool
    tapped: Callable[[str], str | None]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    functions: bool = True
    same: tuple[int, ...] = ()
    opened: bool = False

    @property
    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All arguments, as one nest."""
        return self.args, dict(self.kwargs)

    def output(
        self, network: AbstractNetwork, inputs: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> Any:
        """Call a network, which may be a copy that a compiler traces, with native arguments."""
        is_array = network.backend.is_array
        own = nest.map(lambda leaf: _instead(leaf, leaf) if is_array(leaf) else leaf, inputs)
        args, kwargs = _tied(own, self.same)
        return self.call(network, *args, **kwargs)

    @property
    def backend(self) -> Backend:
        """The network's backend."""
        return backends.of(self.network)


@dataclass(frozen=True)
class Call:
    """One call of a tap: nests of NumPy arrays, plain values and `Held`.

    Attributes:
        path: The block's path in the network that was followed; None for a function.
        same: For each leaf of the arguments the first one that is the very same array: layers may
            ask for that.
        within: The path of the innermost block that makes the call and is no tap itself.
    """

    path: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    same: tuple[int, ...] = ()
    within: str = ""


@dataclass(frozen=True)
class Around:
    """What belongs to a call, as flat lists of arrays: of its inputs, and of its output."""

    inputs: Arrays
    output: Arrays


@dataclass(frozen=True)
class Recording:
    """What a run of a unit showed.

    Attributes:
        output: What the unit gave.
        calls: The taps by name in the order of their calls; the second call of ``"relu"`` is
            ``"relu#2"``.
        parameters: The gradient of each parameter.
        inputs: The gradient of each of the unit's arguments.
        state: Buffers afterwards.
    """

    output: Any
    calls: Mapping[str, Call] = field(default_factory=dict)
    parameters: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    inputs: tuple[Any, ...] = ()
    state: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Forced:
    """What a forced run showed.

    Attributes:
        observed: What each tap computed by itself; under `UNIT` what the unit computed between
            them.
        others: Taps that were met besides those that were forced.
        beyond: What these were given, and what they made of it.
    """

    observed: Mapping[str, Observed]
    others: tuple[str, ...]
    beyond: Mapping[str, Call] = field(default_factory=dict)


def record(unit: Unit, cotangent: Any = None) -> Recording:
    """Run a unit as it is, and record its calls and gradients.

    Gradients are those of the sum of its outputs times a cotangent, or of its output itself.

    Args:
        unit: Its network is left as it was.
        cotangent: A nest like the output; None for a unit that gives a loss.
    """

    def run(network: AbstractNetwork, weight: Arrays | None, inputs: Any) -> tuple[Any, Any, Any]:
        calls: dict[str, Any] = {}

        def tap(
            name: str, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
        ) -> Any:
            given, same = _copied(network, (args, kwargs)), _same(network, (args, kwargs))
            output = call(*args, **kwargs)
            calls[name] = (path, *given, _copied(network, output), same, within[-1])
            return output

        with _tapped(unit, network, tap) as within:
            output = unit.output(network, inputs)
        return _scalar(network, output, weight), _copied(network, output), calls

    found, state = _run(unit, run, _weights(cotangent), unit.inputs)
    output, calls = found.beside
    named = {name: Call(*parts) for name, parts in calls.items()}
    return Recording(output, named, found.parameters, found.inputs[1][0], state)


def listen(unit: Unit) -> dict[str, Call]:
    """Run a unit forwards, and return its calls up to where it raises an error, if it does.

    Args:
        unit: Its network is left as it was.
    """
    network, backend = unit.network, unit.backend
    calls: dict[str, Call] = {}

    def tap(
        name: str, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        same = _same(network, (args, kwargs))
        own_args, own_kwargs = backend.to_numpy(_copied(network, (args, kwargs)))
        # All that is known if it raises.
        calls[name] = Call(path, own_args, own_kwargs, None, same)
        output = call(*args, **kwargs)
        result = backend.to_numpy(_copied(network, output))
        calls[name] = Call(path, own_args, own_kwargs, result, same)
        return output

    try:
        _forwards(unit, tap)
    except Exception:  # noqa: BLE001  # what a stranger's network raises ends the recording
        return calls
    return calls


def cotangents(unit: Unit, calls: Mapping[str, Call], cotangent: Any = None) -> dict[str, Around]:
    """Return the gradient of the unit's scalar at each tap's inputs and output.

    It is None where they are no floating arrays.
    """
    zeros = {
        name: (_zeros((call.args, call.kwargs)), _zeros(call.output))
        for name, call in calls.items()
    }

    def run(network: AbstractNetwork, weight: Arrays | None, zeros: Any, inputs: Any) -> Any:
        def tap(
            name: str, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
        ) -> Any:
            if name not in zeros:
                return call(*args, **kwargs)
            to_inputs, to_output = zeros[name]
            shifted = _with(network, (args, kwargs), to_inputs, lambda x, zero: x + zero)
            args, kwargs = _tied(shifted, calls[name].same)
            return _with(network, call(*args, **kwargs), to_output, lambda x, zero: x + zero)

        with _tapped(unit, network, tap):
            output = unit.output(network, inputs)
        return _scalar(network, output, weight)

    found, _ = _run(unit, run, _weights(cotangent), zeros, unit.inputs)
    return {name: Around(*parts) for name, parts in found.inputs[1].items()}


def force(
    unit: Unit, calls: Mapping[str, Call], weights: Mapping[str, Around], cotangent: Any = None
) -> Forced:
    """Return the results of each tap, and of the unit (`UNIT`) between them, at given inputs.

    Args:
        unit: Its network is left as it was.
        calls: What to give to each tap, and what to take as its output afterwards.
        weights: The cotangent of each output, and of each input for what precedes it.
        cotangent: Of the unit's output.
    """
    given = {
        name: (_arrays((call.args, call.kwargs)), _arrays(call.output))
        for name, call in calls.items()
    }
    weighing = {name: (around.inputs, around.output) for name, around in weights.items()}

    def run(
        network: AbstractNetwork, weight: Arrays | None, weighing: Any, given: Any, inputs: Any
    ) -> Any:
        terms: list[Any] = []
        own: dict[str, Any] = {}
        others: dict[str, Any] = {}

        def tap(
            name: str, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
        ) -> Any:
            if name not in given:
                before = _copied(network, (args, kwargs))
                result = args[0] if unit.opened and stops(name) else call(*args, **kwargs)
                others[name] = (path, *before, _copied(network, result))
                return result
            (into, output), (weight_into, weight_output) = given[name], weighing[name]
            before = _copied(network, (args, kwargs))
            terms.append(_weighted(network, (args, kwargs), weight_into))
            args, kwargs = _tied(_with(network, (args, kwargs), into, _instead), calls[name].same)
            result = call(*args, **kwargs)
            own[name] = (path, before, _copied(network, result))
            terms.append(_weighted(network, result, weight_output))
            return _with(network, result, output, _instead)

        with _tapped(unit, network, tap):
            result = unit.output(network, inputs)
        terms.append(_scalar(network, result, weight))
        return sum(terms[1:], start=terms[0]), _copied(network, result), own, others

    found, state = _run(unit, run, _weights(cotangent), weighing, given, unit.inputs)
    beyond = {name: Call(*parts) for name, parts in found.beside[2].items()}
    return Forced(_observed(unit, found, state, calls), tuple(beyond), beyond)


def handed_on(unit: Unit, calls: Mapping[str, Call], instead: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a unit hands to each tap and gives itself, forwards, with other results of calls.

    Args:
        unit: Its network is left as it was.
        calls: What to give to each tap, and what to take as its output, as in `force`.
        instead: The results of further calls, by tap: nests of NumPy arrays.
    """
    network, backend = unit.network, unit.backend
    given = {
        name: (_arrays((call.args, call.kwargs)), _arrays(call.output))
        for name, call in calls.items()
    }
    own: dict[str, Any] = {}
    prepared, results = backend.prepare((given, dict(instead)), network)

    def tap(
        name: str, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        if name in results:
            if path is None:
                call(*args, **kwargs)  # a native function's result is given in the form of its own
            return results[name]
        if name not in given:
            return call(*args, **kwargs)
        into, output = prepared[name]
        own[f"the input of {name}"] = _copied(network, (args, kwargs))
        args, kwargs = _tied(_with(network, (args, kwargs), into, _instead), calls[name].same)
        return _with(network, call(*args, **kwargs), output, _instead)

    result = _forwards(unit, tap)
    return backend.to_numpy({**own, "output": _copied(network, result)})


def _forwards(unit: Unit, tap: Callable[..., Any]) -> Any:
    """Run a unit without gradients, with its taps routed; its network is left as it was."""
    network, before = unit.network, _buffers(unit.network)
    try:
        with (
            network.training_mode(unit.training),
            random.portable(unit.seed),
            unit.backend.evaluating(),
            _tapped(unit, network, tap),
        ):
            return unit.output(network, unit.backend.prepare(unit.inputs, network))
    finally:
        _write(network, before)


def function_of(name: str) -> str:
    """The function of a tap.

    Example:
        >>> function_of("relu()#2")
        'relu'
    """
    return name.partition("(")[0]


def stops(name: str) -> bool:
    """Whether a tap is a call of `stop_gradient`."""
    return name.partition("#")[0] == "stop_gradient()"


def watch(unit: Unit, elements: int | None = None) -> Recording:
    """Run a unit that gives a loss, and record the output of every block call, nested ones too.

    Args:
        unit: Its network is left as it was.
        elements: How many elements of each array are kept, at equal distances; all of them when
            None.
    """

    def run(network: AbstractNetwork, inputs: Any) -> tuple[Any, Any, Any]:
        calls: dict[str, Any] = {}
        counts: Counter[str] = Counter()

        def around(
            path: str, block: Any, call: Callable[..., Any], args: tuple, kwargs: dict
        ) -> Any:
            output = call(*args, **kwargs)
            counts[path] += 1
            name = path if counts[path] == 1 else f"{path}#{counts[path]}"
            calls[name] = (path, (), {}, _thinned(network, output, elements if path else None))
            return output

        with network.backend.called_through(network, around):
            loss = unit.output(network, inputs)
        return loss, _copied(network, loss), calls

    found, state = _run(unit, run, unit.inputs)
    output, calls = found.beside
    named = {name: Call(*parts) for name, parts in calls.items()}
    return Recording(output, named, found.parameters, found.inputs[0][0], state)


def _thinned(network: AbstractNetwork, values: Any, elements: int | None) -> Any:
    """A nest with copies of its arrays, or of some elements of each."""

    def leaf(value: Any) -> Any:
        if not network.backend.is_array(value):
            return value
        size = math.prod(value.shape)
        if elements is None or size <= elements:
            return network.backend.copied(value)
        flat = network.backend.nn.reshape(value, (size,))
        return network.backend.copied(flat[:: -(-size // elements)])

    return nest.map(leaf, values)


def _observed(
    unit: Unit, found: Gradients, state: Mapping[str, np.ndarray], calls: Mapping[str, Call]
) -> dict[str, Observed]:
    """Return the results of a forced run, sorted by what computed them.

    Parameters and buffers go to the block that holds them.
    """
    output, own = found.beside[:2]
    of_given, of_inputs = found.inputs[2:]
    observed, rest, rest_state = {}, dict(found.parameters), dict(state)
    for name, (path, _, result) in own.items():
        inputs = _by_path(
            of_given[name][0], {"args": calls[name].args, "kwargs": calls[name].kwargs}
        )
        observed[name] = Observed(
            result, inputs, _below(path, found.parameters), _below(path, state)
        )
        rest, rest_state = _not_below(path, rest), _not_below(path, rest_state)
    into = {f"the input of {name}": before for name, (_, before, _) in own.items()}
    inputs = _by_path(nest.leaves(of_inputs), {"args": unit.args, "kwargs": dict(unit.kwargs)})
    for name in own:
        inputs |= _by_path(of_given[name][1], {f"the output of {name}": calls[name].output})
    observed[UNIT] = Observed(into | {"output": output}, inputs, rest, rest_state)
    return observed


def _below(path: str | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to a block, by its name there; nothing belongs to a function."""
    start = f"{path}." if path else ""
    return (
        {}
        if path is None
        else {n.removeprefix(start): x for n, x in named.items() if n.startswith(start)}
    )


def _not_below(path: str | None, named: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{path}." if path else ""
    return (
        dict(named) if path is None else {n: x for n, x in named.items() if not n.startswith(start)}
    )


def _by_path(gradients: Arrays, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return gradients of floating arrays by paths, such as ``"args[0]"``; unused ones are zeros."""
    leaves = [
        pair for root, nested in values.items() for pair in nest.leaves_with_paths(nested, root)
    ]
    return {
        path: np.zeros_like(leaf) if gradient is None else gradient
        for gradient, (path, leaf) in zip(gradients, leaves, strict=True)
        if isinstance(leaf, np.ndarray) and _is_floating(leaf)
    }


def _run(
    unit: Unit, function: Callable[..., Any], *inputs: Any
) -> tuple[Gradients, dict[str, np.ndarray]]:
    """Return the gradients of a function in the unit's mode, and the buffers afterwards.

    The network is left as it was.
    """
    network = unit.network
    before = _buffers(network)
    try:
        with network.training_mode(unit.training), random.portable(unit.seed):
            found = unit.backend.gradients(function, network, *inputs)
        return found, _buffers(network)
    finally:
        _write(network, before)


def _write(network: AbstractNetwork, buffers: Mapping[str, np.ndarray]) -> None:
    slots = network.neutral_slots()
    for name, value in buffers.items():
        slots[name].write(value)


def _buffers(network: AbstractNetwork) -> dict[str, np.ndarray]:
    """What a forward pass may change."""
    return {
        name: slot.read() for name, slot in network.neutral_slots().items() if not slot.is_parameter
    }


@contextmanager
def _tapped(unit: Unit, network: AbstractNetwork, tap: Callable[..., Any]) -> Iterator[list[str]]:
    """Route each call that is a tap through a function, but no call inside of such a call.

    Yields the paths of the blocks that are being called and are no taps, the innermost one last.
    """
    counts: Counter[str] = Counter()
    inside, within = False, [""]

    def through(
        name: str, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        nonlocal inside
        counts[name] += 1
        inside = True
        try:
            return tap(
                name if counts[name] == 1 else f"{name}#{counts[name]}", path, call, args, kwargs
            )
        finally:
            inside = False

    def around_block(
        path: str, block: Any, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        if inside:
            return call(*args, **kwargs)
        name = unit.tapped(path)
        if name is not None:
            return through(name, path, call, args, kwargs)
        within.append(path)
        try:
            return call(*args, **kwargs)
        finally:
            within.pop()

    def around_function(
        name: str, functions: Any, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        if inside or not unit.functions:
            return call(*args, **kwargs)
        return through(f"{name}()", None, call, *_bound(call, args, kwargs))

    def around_native(name: str, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if inside or name in _MOVES:
            return call(*args, **kwargs)
        packed = tuple(map(_packed, args))
        return through(f"{name}()", None, lambda *given: call(*bare(given)), packed, kwargs)

    backend = network.backend
    with ExitStack() as stack:
        stack.enter_context(backend.called_through(network, around_block))
        stack.enter_context(functions_called_through(backend.nn, around_function))
        if unit.functions and _is_native(network):
            stack.enter_context(backend.native_functions_called_through(network, around_native))
        yield within


def _is_native(network: AbstractNetwork) -> bool:
    """Return whether a network is one of a framework's own, not one that is written once."""
    return hasattr(network, "native")


# Where pictures have channels last, code moves axes as the other side does not.
_MOVES = frozenset(
    {"broadcast_to", "expand_dims", "flatten", "permute", "reshape", "squeeze", "transpose"}
)


def _packed(value: Any) -> Any:
    """Return an argument without arrays as a `Setting`."""
    is_plain = all(isinstance(leaf, int | float | str | None) for leaf in nest.leaves(value))
    return Setting(value) if is_plain else value


def _bound(call: Callable[..., Any], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Return arguments by position, with the defaults, however a function is called."""
    try:
        bound = inspect.signature(call).bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # the call itself says what is wrong
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _copied(network: AbstractNetwork, values: Any) -> Any:
    """A nest with copies of its arrays, which code that writes in place leaves alone."""
    backend = network.backend
    held = _held(network)

    def leaf(value: Any) -> Any:
        if id(value) in held:
            return held[id(value)]
        return backend.copied(value) if backend.is_array(value) else value

    return nest.map(leaf, values)


def _held(network: AbstractNetwork) -> dict[int, Held]:
    return {id(slot.native): Held(name) for name, slot in network.neutral_slots().items()}


def _with(
    network: AbstractNetwork, values: Any, arrays: Arrays, change: Callable[[Any, Any], Any]
) -> Any:
    """Return a nest with ``change(leaf, array)`` where there is an array.

    A nest of another structure stays as it is.
    """
    leaves, structure = nest.flatten(values)
    if len(leaves) != len(arrays):
        return values
    held = _held(network)
    pairs = zip(leaves, arrays, strict=True)
    return nest.unflatten(
        structure, [x if y is None or id(x) in held else change(x, y) for x, y in pairs]
    )


def _same(network: AbstractNetwork, values: Any) -> tuple[int, ...]:
    """Return for each leaf the position of the first leaf that is the same array.

    A plain value has its own position.
    """
    first: dict[int, int] = {}
    positions = enumerate(nest.leaves(values))
    is_array = network.backend.is_array
    return tuple(first.setdefault(id(leaf), at) if is_array(leaf) else at for at, leaf in positions)


def _tied(values: Any, same: tuple[int, ...]) -> Any:
    """Return a nest in which leaves that should be one object are one.

    A nest of another structure stays as it is.
    """
    leaves, structure = nest.flatten(values)
    if len(leaves) != len(same):
        return values
    return nest.unflatten(structure, [leaves[position] for position in same])


def _instead(own: Any, given: Any) -> Any:
    """Return a given array in the place of another; a floating one as a new array.

    So code may write into it in place.

    One with more or fewer axes is reshaped, as where one side flattens before a layer and the other
    within it. Where that cannot be, its own stays: what follows could not go on with the given one.
    """
    shape = tuple(getattr(own, "shape", ()))
    if len(shape) != len(given.shape):
        flat = len(shape) == 2 < len(given.shape) and shape[0] == given.shape[0]
        if not shape or not (flat or _have_like_shapes(own, given)):
            return own
        given = given.reshape((shape[0], -1) if flat else shape)
    return given + 0.0 if _is_floating(given) else given


def _weighted(network: AbstractNetwork, values: Any, weights: Arrays) -> Any:
    """Return the sum of a nest's arrays times weights.

    It is 0.0 where there are none, or weights of other sizes.
    """
    nn, held = network.backend.nn, _held(network)
    leaves = nest.leaves(values)
    if len(leaves) != len(weights):
        return 0.0
    pairs = [
        (x, w) for x, w in zip(leaves, weights, strict=True) if w is not None and id(x) not in held
    ]
    fitting = [
        nn.sum(x * nn.stop_gradient(w.reshape(x.shape)))
        for x, w in pairs
        if _have_like_shapes(x, w)
    ]
    return sum(fitting[1:], start=fitting[0]) if fitting else 0.0


def _have_like_shapes(own: Any, given: Any) -> bool:
    """Whether two arrays have one shape, or as many elements on more or fewer axes."""
    mine, theirs = tuple(getattr(own, "shape", ())), tuple(given.shape)
    return mine == theirs or (len(mine) != len(theirs) and math.prod(mine) == math.prod(theirs))


def _scalar(network: AbstractNetwork, output: Any, weight: Arrays | None) -> Any:
    return output if weight is None else _weighted(network, output, weight)


def _arrays(values: Any) -> Arrays:
    return [leaf if isinstance(leaf, np.ndarray) else None for leaf in nest.leaves(values)]


def _weights(cotangent: Any) -> Arrays | None:
    return None if cotangent is None else _arrays(cotangent)


def _zeros(values: Any) -> Arrays:
    return [None if x is None or not _is_floating(x) else np.zeros_like(x) for x in _arrays(values)]


def _is_floating(array: Any) -> bool:
    return "float" in str(array.dtype)
