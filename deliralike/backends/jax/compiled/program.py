"""Compiled programs over a network: its variables go in as arguments, and come out changed.

A program is traced on a copy of the network built around traced variables. It is used again as long
as the loss function, the network's settings (training mode, frozen parameters, blocks) and the
other arguments stay the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from deliralike import nest, random
from deliralike.backends.jax import arrays
from deliralike.backends.jax import random as native_random
from deliralike.backends.jax.compiled.copies import copy_around
from deliralike.backends.jax.compiled.marks import (
    BY_VALUE,
    is_setting,
    mark_of_nodes,
    mark_of_setting,
)
from deliralike.backends.jax.compiled.nested_gradients import unchecked
from deliralike.backends.jax.compiled.snapshot import Snapshot
from deliralike.backends.jax.compiled.surroundings import (
    CACHE_SIZE,
    Surroundings,
    keep,
    surroundings_of,
)
from deliralike.backends.jax.network import JaxSlot, walk
from deliralike.backends.jax.unstable import checks_of_update
from deliralike.backends.jax.variables import array_of, holding, overwrite
from deliralike.errors import CapabilityError
from deliralike.nest.arrays import widest
from deliralike.network.state import each_once, owned_slots
from deliralike.terminal import warn

# what is passed to a program; arrays of JAX's own take longest to tell
_PASSED = (np.ndarray, np.generic, float, jax.Array)
_OWN_SETTINGS = ("_inside",)  # of copies of replicated networks
Setting = tuple[Any, str, Any]  # of a node: its name and value
Named = dict[str, Any]
Values = tuple[Named, Named, list[Any]]  # of parameters, of frozen ones, of all others


class Rebuilt(NamedTuple):
    """A copy of a network around other arrays.

    Attributes:
        network: The copy.
        others: Its buffers and random states.
        copies: The copy of each node and variable, by the id of the original.
    """

    network: Any
    others: list[nnx.Variable]
    copies: dict[int, Any]


class ModuleVariables:
    """The variables of a network as they stand: trainable parameters, frozen ones, and all others.

    Attributes:
        slots: Every parameter's slot by its neutral name; of tied parameters the first name.
        owned: Those that are an optimizer's; all of them unless it has a part of the network.
        parameters: The trainable ones among those owned.
        frozen: All other parameters.
        others: Buffers and random states, in the order of creation.
        nodes: The modules, and whatever else holds variables.
        attributes: The attributes of each node at the time of the search.
    """

    def __init__(
        self, network: Any, owns: Callable[[str], bool] = lambda name: True
    ) -> None:
        """Search a network; nothing is copied."""
        self.network = network
        slots = {
            name: slot
            for name, slot in network.neutral_slots().items()
            if slot.is_parameter
        }
        self.slots: dict[str, JaxSlot] = each_once(slots)
        self.owned: dict[str, JaxSlot] = each_once(owned_slots(slots, owns))
        self.parameters: dict[str, nnx.Variable] = {}
        self.frozen: dict[str, nnx.Variable] = {}
        for name, slot in self.slots.items():
            if name in self.owned and slot.trainable:
                self.parameters[name] = slot.native
            else:
                self.frozen[name] = slot.native
        known = {id(slot.native) for slot in self.slots.values()}
        self.others: list[nnx.Variable] = []
        self.nodes: list[Any] = []
        for _, node in walk(network):
            if not isinstance(node, nnx.Variable):
                self.nodes.append(node)
            elif id(node) not in known:
                self.others.append(node)
        self.attributes = [dict(vars(node)) for node in self.nodes]
        self._snapshot = Snapshot(network)
        self._streams = [
            node for node in self.nodes if isinstance(node, native_random.RngStream)
        ]
        self._read_parameters = _readers(self.parameters)
        self._read_frozen = _readers(self.frozen)
        self._read_others = [*map(_reader, self.others)]
        named = {**self.parameters, **self.frozen}
        self._write = {name: _writer(variable) for name, variable in named.items()}
        self._write_others = [*map(_writer, self.others)]
        # nnx refuses to write variables of another trace; the first one stands for all
        checked = [*self.parameters.values(), *self.others][:1]
        self._checks = checks_of_update(checked)
        self.traced_settings: list[Setting] | None = (
            None  # that the program traced last writes
        )
        self._written_settings: dict[
            int, tuple[Any, list[Setting]]
        ] = {}  # by the program's id

    def mark(self) -> tuple:
        """Return a mark that changes with settings, blocks and frozen parameters.

        It does not change with values.
        """
        # in an order that does not depend on which parameters are frozen
        parameters = [slot.native for slot in self.slots.values()]
        return mark_of_nodes(self.nodes, [*parameters, *self.others])

    def changed_attributes(self, before: ModuleVariables) -> list[str]:
        """Return the attributes, as ``Class.name``, whose marks differ from an earlier search.

        `before` is the earlier search of the same network.
        """
        changed: dict[str, None] = {}
        for node, now, then in zip(
            self.nodes, self.attributes, before.attributes, strict=False
        ):
            for name, value in now.items():
                if is_setting(name) and mark_of_setting(value) != mark_of_setting(
                    then.get(name)
                ):
                    changed[f"{type(node).__name__}.{name}"] = None
        return list(changed)

    def is_untouched(self) -> bool:
        """Return whether every setting, block and parameter is still the very same object.

        This is quicker than comparing marks.
        """
        return self._snapshot.is_current(self.network)

    def start_streams(self) -> None:
        """Start the random streams that draw for the first time since the seed."""
        if native_random.waiting:
            native_random.start(self._streams)

    def values(self) -> Values:
        """The arrays of parameters, frozen parameters and others."""
        self.start_streams()
        parameters = {name: read() for name, read in self._read_parameters.items()}
        frozen = {name: read() for name, read in self._read_frozen.items()}
        return parameters, frozen, [read() for read in self._read_others]

    @property
    def dtype(self) -> np.dtype | None:
        """The floating type of the parameters, see `widest`; None where there is none."""
        reads = chain(self._read_parameters.values(), self._read_frozen.values())
        return widest(filter(arrays.is_floating, (read().dtype for read in reads)))

    def only_owned(self, named: Named) -> Named:
        """Those of named values whose parameters are owned."""
        return {name: value for name, value in named.items() if name in self.owned}

    def rebuild(
        self, parameters: Named, frozen: Named, others: Sequence[Any]
    ) -> Rebuilt:
        """A copy of the network around other arrays."""
        copies: dict[int, Any] = {}
        for name, variable in self.parameters.items():
            copies[id(variable)] = variable.copy(parameters[name])
        for name, variable in self.frozen.items():
            copies[id(variable)] = variable.copy(frozen[name])
        for variable, value in zip(self.others, others, strict=True):
            copies[id(variable)] = variable.copy(value)
        network = copy_around(self.network, copies, shares_settings=False)
        return Rebuilt(
            network, [copies[id(variable)] for variable in self.others], copies
        )

    @contextmanager
    def in_place(
        self, rebuilt: Rebuilt, parameters: Named, frozen: Named, others: Sequence[Any]
    ) -> Iterator[None]:
        """Return a block in which the network itself holds the arrays of a copy, too.

        A function may use it by another name than its argument, as ``self`` or in a closure. What
        the function sets there is set in the copy.
        """
        named = {**self.parameters, **self.frozen}
        arrays = {**parameters, **frozen}
        variables = [*named.values(), *self.others]
        values = [*map(arrays.__getitem__, named), *others]
        with holding(variables, values), unchecked():
            yield
            for variable, value in zip(variables, values, strict=True):
                if array_of(variable) is not value:
                    overwrite(rebuilt.copies[id(variable)], array_of(variable))

    def written(self, rebuilt: Rebuilt, parameters: Named, frozen: Named) -> Named:
        """The parameters that a function has set in a copy, and what to."""
        values = {}
        for name, variable in (*self.parameters.items(), *self.frozen.items()):
            value = array_of(rebuilt.copies[id(variable)])
            before = parameters if name in parameters else frozen
            if value is not before[name]:
                values[name] = value
        return values

    def settings_written(self, rebuilt: Rebuilt) -> list[Setting]:
        """The settings, as counters of Python's, that a function has set in a copy.

        Raises:
            CapabilityError: It has set one to an array, which a program would keep to itself.
        """
        found = []
        for node, before in zip(self.nodes, self.attributes, strict=True):
            now = before
            if id(node) in rebuilt.copies:
                now = vars(rebuilt.copies[id(node)])
            for name in filter(is_setting, before):
                value = now.get(name)
                if value is before[name] or name in _OWN_SETTINGS:
                    continue
                if _holds_new_array(value, before[name]):
                    raise CapabilityError(
                        f"forward sets {type(node).__name__}.{name} to an array, which a compiled "
                        "step would forget: make it a variable, such as self.nn.State(shape, like) "
                        "or nnx.Cache(array), and set that"
                    )
                if type(value) in BY_VALUE and value != before[name]:
                    found.append((node, name, value))
        return found

    def write_settings(self, program: Any) -> None:
        """Set the settings that a program writes, which has just been run."""
        if self.traced_settings:
            self._written_settings[id(program)] = (program, self.traced_settings)
        self.traced_settings = None
        if self._written_settings:
            for node, name, value in self._written_settings.get(
                id(program), (None, [])
            )[1]:
                setattr(node, name, value)

    def refuse_written(
        self, rebuilt: Rebuilt, parameters: Named, frozen: Named
    ) -> None:
        """Refuse replicas that set parameters or settings, of which each has its own.

        Raises:
            CapabilityError: Names what is set.
        """
        names = [*self.written(rebuilt, parameters, frozen)]
        names += [
            f"{type(node).__name__}.{name}"
            for node, name, _ in self.settings_written(rebuilt)
        ]
        if names:
            raise CapabilityError(
                f"forward sets {', '.join(names)}, or gives it back from a transformation such as "
                "nnx.remat, which replicas do not: each would set its own. Train it on one device, "
                "make it a buffer, an nnx.BatchStat, or take deliralike.checkpoint_blocks"
            )

    def store(self, parameters: Named, others: Sequence[Any]) -> None:
        """Set new values; None leaves a variable as it is."""
        for check in self._checks:
            check()
        for name, value in parameters.items():
            if value is not None:
                self._write[name](value)
        for write, value in zip(self._write_others, others, strict=True):
            if value is not None:
                write(value)


def _holds_new_array(now: Any, before: Any) -> bool:
    """Whether a setting is or holds an array that it did not hold before.

    What a dict did not hold at all is a cache, which a program needs to fill but once.
    """
    if isinstance(now, dict) and isinstance(before, dict):
        pairs = [(now[name], before[name]) for name in now if name in before]
    elif isinstance(now, list) and isinstance(before, list):
        pairs = [*zip_longest(now, before)]
    else:
        return isinstance(now, jax.Array) and now is not before
    return any(_holds_new_array(*pair) for pair in pairs)


def _reader(variable: nnx.Variable) -> Callable[[], Any]:
    """Return what reads the array of a variable; see `array_of`."""
    if isinstance(variable.get_raw_value(), jax.Array):
        return variable.get_raw_value
    return variable.get_value


def _readers(variables: dict[str, nnx.Variable]) -> dict[str, Callable[[], Any]]:
    return {name: _reader(variable) for name, variable in variables.items()}


def _writer(variable: nnx.Variable) -> Callable[[Any], None]:
    """Return what writes the array of a variable, without nnx's check of the trace."""
    is_array = isinstance(variable.get_raw_value(), jax.Array)
    is_plain = hasattr(type(variable), "_raw_value") and not variable.has_metadata(
        "on_set_value"
    )
    if is_array and is_plain:
        return partial(
            object.__setattr__, variable, "_raw_value"
        )  # as `overwrite`, quicker
    return variable.set_value


class ProgramCache:
    """The programs compiled for one network, the latest sixteen."""

    def __init__(
        self, network: Any, owns: Callable[[str], bool] = lambda name: True
    ) -> None:
        """Compile nothing yet."""
        self.network, self._owns = network, owns
        self._latest_variables: ModuleVariables | None = None
        self._variables: OrderedDict[tuple, ModuleVariables] = OrderedDict()
        self._programs: OrderedDict[Any, Any] = OrderedDict()
        self._latest: tuple[Any, Any] = (None, None)
        self._surroundings: OrderedDict[Any, Surroundings] = OrderedDict()
        self._changed: list[str] = []
        self._warned = False

    def variables(self) -> ModuleVariables:
        """Return the network's variables.

        The network is searched anew only where something other than a value has changed.
        """
        arrays.refuse_fork()
        latest = self._latest_variables
        if latest is not None:
            if latest.is_untouched():
                return latest
            mark = latest.mark()
            if mark in self._variables:
                self._variables.move_to_end(mark)
                self._latest_variables = self._variables[mark]
                return self._latest_variables
        variables = self._latest_variables = ModuleVariables(self.network, self._owns)
        keep(self._variables, variables.mark(), variables)
        return variables

    @property
    def latest(self) -> ModuleVariables:
        """The variables that were returned last, for whoever knows that nothing changed since."""
        assert self._latest_variables is not None
        return self._latest_variables

    def surroundings(self, *functions: Callable[..., Any]) -> Surroundings:
        """Return what functions read beside the network and the batch, as it is now."""
        found = surroundings_of(functions, self.network, self._surroundings)
        self._changed = found.changed
        return found

    def get_or_compile(self, key: Any, make: Callable[[], Any]) -> Any:
        """The program of a key, made when there is none."""
        latest_key, latest = self._latest
        if key == latest_key:  # without the hashes of its parts, which take longer
            self._latest = (
                key,
                latest,
            )  # whose parts will be the very same objects next time
            return latest
        if key not in self._programs:
            if len(self._programs) == CACHE_SIZE and not self._warned:
                self._warned = True
                warn(
                    f"{type(self.network).__name__}: more than {CACHE_SIZE} programs were "
                    f"compiled. {self._cause()}",
                )
            keep(self._programs, key, make())
        self._programs.move_to_end(key)
        self._latest = (key, self._programs[key])
        return self._programs[key]

    def _cause(self) -> str:
        """Return the likely cause of so many programs."""
        if self._changed:
            return (
                f"The loss reads {', '.join(self._changed)}, and is compiled for each value: give "
                "what changes with the batch, as an array or a float"
            )
        searches = list(self._variables.values())
        changed = []
        if len(searches) >= CACHE_SIZE // 2:
            changed = searches[-1].changed_attributes(searches[-2])
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


# Arguments and results
# --------------------------------------------------------------------------------------------------


class Arguments(nest.SplitNest):
    """The flattened arguments of a call.

    Arrays and floats are passed to the program; all else is compiled in.
    """

    @property
    def key(self) -> tuple:
        """The part of a program's key that stands for the arguments."""
        return (self.spec, self.static)

    @property
    def are_arrays(self) -> tuple[bool, ...]:
        """Whether each of `arrays` is an array, and no plain float."""
        return tuple(map(_is_array, self.arrays))


def flatten_arguments(arguments: tuple) -> Arguments:
    """Flatten a nest of arguments."""
    return Arguments(*nest.split(arguments, _PASSED))


def floating_inputs(batch: Sequence[Any], are_arrays: Sequence[bool]) -> list[Any]:
    """The floating arrays among the values of a batch; None in the place of all others."""
    inputs = []
    for value, is_array in zip(batch, are_arrays, strict=True):
        is_floating = is_array and arrays.is_floating(value.dtype)
        inputs.append(value if is_floating else None)
    return inputs


def replace_present(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Values, replaced by those of the others that are not None."""
    chosen = list(values)
    for i, other in enumerate(others):
        if other is not None:
            chosen[i] = other
    return chosen


@jax.tree_util.register_static
@dataclass(frozen=True)
class StaticValue:
    """A value that is no array among the results of a compiled program."""

    value: Any


def pack(result: Any) -> tuple[list[Any], StaticValue]:
    """Pack a nest so that a compiled program can return it."""
    leaves, spec = nest.flatten(result)
    packed = []
    for leaf in leaves:
        value = leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf
        packed.append(value if _is_array(value) else StaticValue(value))
    return packed, StaticValue(spec)


def unpack(result: tuple[Sequence[Any], StaticValue]) -> Any:
    """Return the nest that was packed."""
    packed, spec = result
    leaves = []
    for leaf in packed:
        leaves.append(leaf.value if isinstance(leaf, StaticValue) else leaf)
    return nest.unflatten(spec.value, leaves)


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray)


class StreamPosition(NamedTuple):
    """The position in the portable random stream at which a program runs.

    The seed is compiled in; the rest is passed.
    """

    seed: int | None
    numbers: tuple[Any, ...]

    def enter(self, numbers: tuple[Any, ...]) -> AbstractContextManager[Any]:
        """Return a context with the stream at traced numbers."""
        if self.seed is None:
            return nullcontext()
        return random.portable(self.seed, *numbers)


def stream_position() -> StreamPosition:
    """The position of the portable random stream in force."""
    stream = random.current()
    if stream is None:
        return StreamPosition(None, ())
    return StreamPosition(stream.seed, (stream.step, stream.first_sample))
