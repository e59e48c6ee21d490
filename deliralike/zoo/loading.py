"""Load weights of others: names and shapes are fitted, and every step is reported."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import weights as weight_files
from deliralike.errors import StateError, UnknownName, listed, suggestion
from deliralike.network.core import unreplicated, unwrap
from deliralike.network.state import LoadReport, Slot, host_array
from deliralike.terminal import log
from deliralike.weights import foreign_layouts
from deliralike.zoo import stem_and_head
from deliralike.zoo.keymaps import KeyMap

State = Mapping[str, np.ndarray]

# Prefixes that trainers and other networks put before the names of a network; see `load`.
PREFIXES = (
    "module.",
    "_orig_mod.",
    "model.",
    "net.",
    "network.",
    "encoder.",
    "backbone.",
    "transformer.",
    "bert.",
    "vit.",
    "vision_model.",
)
_MOST_STEPS = 3
_MOST_REASONS = 5
_MOST_SHOWN = 6  # names
_REMEDY = (
    "\n  build the network with the settings that the weights were made with; or "
    "strict=False leaves these alone"
)


@dataclass(frozen=True)
class Adapted:
    """One array that was made to fit.

    Attributes:
        name: The name in the network.
        came: The shape in the file.
        wanted: The shape in the network.
        how: A description in words.
    """

    name: str
    came: tuple[int, ...]
    wanted: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class WeightsReport:
    """The result of `load`, name by name.

    Attributes:
        source: The file; ``"a mapping"`` for a mapping.
        layout: A description of the place of the weights in the source, and of the way from its
            names to the network's.
        loaded: The network's names whose weights were loaded, adapted ones too.
        adapted: The arrays among them that were made to fit.
        skipped: The names that were skipped on purpose, each with the reason.
        missing: The network's names that the source lacks; they have their start values.
        unexpected: The names in the source that the network lacks.
        notes: Known differences between the source's network and this one.
    """

    source: str
    layout: str
    loaded: tuple[str, ...]
    adapted: tuple[Adapted, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every array was loaded without a change."""
        return not (self.adapted or self.skipped or self.missing or self.unexpected)

    def __str__(self) -> str:
        """Return a line for what was loaded, and one for each kind of exception."""
        lines = [f"{self.source}, {self.layout}: {len(self.loaded)} names loaded"]
        for entry in self.adapted:
            lines.append(
                f"adapted: {entry.name} from {entry.came} to {entry.wanted}, {entry.how}"
            )
        lines += self._skipped_lines()
        if self.missing:
            lines.append(f"missing: {listed(self.missing, _MOST_SHOWN)}")
        if self.unexpected:
            lines.append(f"unexpected: {listed(self.unexpected, _MOST_SHOWN)}")
        for note in self.notes:
            lines.append(f"note: {note}")
        return "\n  ".join(lines)

    def _skipped_lines(self) -> list[str]:
        """Return a line for each reason, up to a limit."""
        names: dict[str, list[str]] = {}
        for name, reason in self.skipped:
            names.setdefault(reason, []).append(name)
        lines = []
        for reason in list(names)[:_MOST_REASONS]:
            lines.append(f"left alone: {listed(names[reason], _MOST_SHOWN)}: {reason}")
        more = len(names) - _MOST_REASONS
        if more > 0:
            lines.append(f"left alone: {more} more kinds")
        return lines


def load(
    network: Any,
    weights: str | os.PathLike[str] | Mapping[str, Any],
    strict: bool = True,
    *,
    key: str | None = None,
    guess: bool = False,
) -> WeightsReport:
    """Load weights that were saved under the names or layout of another library or trainer.

    In this order: the file is read (`deliralike.weights.read`; no code runs) and, where it is a
    checkpoint, the state under one of its usual keys is taken (``state_dict``, ``model``,
    ``model_state_dict``, ``network_weights``, ``model_ema``, ``ema``, ``state_dict_ema`` …).
    Prefixes (``module.``, ``_orig_mod.``, ``model.``, ``net.``, ``network.``, ``encoder.``,
    ``backbone.``, ``transformer.``, ``bert.``, ``vit.``, ``vision_model.``) are taken off or put
    before the names, and the network's key maps are tried. Of all these the one under which the
    most names have the right shapes is taken, the plainest where several are equal; the report says
    which. Then the network mends the state (``adapt_state``), and arrays of another shape are
    adapted: the stem's where the network has another number of input channels than the file (to
    one: their sum; to others: repeated in order and scaled by old / new, as timm does), and those
    the network itself knows (``adapt_weight``, position tables). The head keeps its start values
    where the number of classes differs or the file has none; a network without a head leaves the
    file's. A tied array may come under any of its names, and a norm's ``num_batches_tracked`` may
    be missing.

    Args:
        network: A network of the zoo, or any other abstract network, on any backend.
        weights: A file, or arrays by name.
        strict: Refuse missing and unexpected names and other wrong shapes. If not strict, they are
            left alone.
        key: The place of the weights in a checkpoint that has several, such as ``"model_ema"``; the
            most likely one when not given, and the report names the others.
        guess: See `deliralike.weights.load`.

    Returns:
        The report; it is also logged to the logger ``"deliralike"``, as a warning unless it is
        `complete` and has no notes.

    Raises:
        StateError: The weights do not fit, or nothing in them does; the network is as it was.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `deliralike.weights.read`.

    Example:
        >>> from deliralike import zoo
        >>> source = zoo.build("lenet", backend="torch")
        >>> state = {f"module.{name}": value for name, value in source.neutral_state().items()}
        >>> print(load(zoo.build("lenet", backend="torch", seed=1), {"model": state}))
        a mapping, under 'model', without 'module.': 10 names loaded
    """
    contents = _contents_of(weights)
    source = contents.kind
    states, notes = _chosen(contents, key)
    plan = Plan.of(network, states)
    report = plan.report(source)
    report = replace(report, notes=(*notes, *report.notes))
    if not plan.arrays or (strict and not plan.fits):
        remedy = _REMEDY if plan.arrays else ""
        raise StateError(
            f"the weights do not fit {type(unwrap(network)).__name__}, which was left "
            f"unchanged: {source}, {plan.problem()}{remedy}"
        )
    arrays = foreign_layouts.settled(network, contents, plan.arrays, guess)
    network.load_neutral_state(arrays, strict=False)
    level = logging.INFO if report.complete and not report.notes else logging.WARNING
    log(level, report)
    return report


# Where the weights are, and under which names


@dataclass(frozen=True)
class Choice:
    """One way to read the names of a source.

    Attributes:
        state: The arrays, under the network's names as far as they fit.
        words: A description of the way.
        lacking: The names of the network that the layout is known not to have.
        notes: The notes of the layout.
        keymap: The layout, if it is one of the network's key maps.
    """

    state: State
    words: str
    lacking: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    keymap: KeyMap | None = None


def _chosen(
    contents: weight_files.Contents, key: str | None
) -> tuple[Mapping[str, State], tuple[str, ...]]:
    """Return the states that may be taken, and notes on how they were found.

    Raises:
        UnknownName: There is no state under this key.
    """
    states = contents.states
    if key is None:
        if len(states) < 2:
            return states, contents.notes
        places = ", ".join(map(repr, states))
        note = f"there are weights under {places}: key=... says which"
        return states, (*contents.notes, note)
    if key not in states:
        raise UnknownName(
            f"there are no weights under {key!r}. {suggestion(key, states)}"
        )
    return {key: states[key]}, contents.notes


def _contents_of(weights: Any) -> weight_files.Contents:
    """Return the contents of a file, whose name is their kind, or of a mapping."""
    if not isinstance(weights, Mapping):
        return replace(weight_files.contents(weights), kind=str(weights))
    states = {}
    problem = StateError("the mapping is empty")
    for key, state in _flat(weights):
        try:
            states[key] = _host_state(state)
        except StateError as error:  # settings may lie beside weights
            problem = error
    if not states:
        raise problem
    return weight_files.Contents("a mapping", states)


def _host_state(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, value in state.items():
        arrays[str(name)] = host_array(str(name), value)
    return arrays


def _flat(
    weights: Mapping[str, Any], key: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the mappings within that hold no others, each with its key."""
    is_flat = bool(weights)
    for name, value in weights.items():
        if isinstance(value, Mapping):
            is_flat = False
            yield from _flat(value, f"{key}.{name}".strip("."))
    if is_flat:
        yield key, weights


def _best(
    slots: Mapping[str, Slot], states: Mapping[str, State], keymaps: Sequence[KeyMap]
) -> Choice:
    """Return the choice under which the most names and shapes fit.

    Of equal choices it is the first one, which changes least.
    """
    wanted = {name: slot.shape for name, slot in slots.items()}
    perfect = (len(wanted), len(wanted))
    best = None
    best_score = (-1, -1)
    for key, state in states.items():
        for choice in _choices(wanted, state, key, keymaps):
            score = _score(choice, wanted)
            if score == perfect:
                return choice
            if score > best_score:
                best = choice
                best_score = score
    if best is None:
        raise StateError("there are no weights")
    return best


def _score(choice: Choice, wanted: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """Return the number of names whose shapes fit, and the number of names that are known."""
    fitting = 0
    known = 0
    for name, value in choice.state.items():
        if name in wanted:
            known += 1
            fitting += np.shape(value) == wanted[name]
    return fitting, known


def _choices(
    wanted: Mapping[str, tuple[int, ...]],
    state: State,
    key: str,
    keymaps: Sequence[KeyMap],
) -> Iterator[Choice]:
    """Yield every reading of a state's names: without and with prefixes, and by each key map."""
    for names, prefix_steps in _prefixed(state, wanted):
        renamed = {new: state[old] for old, new in names.items()}
        steps = list(prefix_steps)
        if key:
            steps.insert(0, f"under {key!r}")
        yield Choice(renamed, ", ".join(steps) or "names as they are")
        for keymap in keymaps:
            choice = _by_keymap(renamed, keymap, wanted, steps)
            if choice is not None:
                yield choice


def _by_keymap(
    state: State, keymap: KeyMap, wanted: Mapping[str, Any], steps: list[str]
) -> Choice | None:
    """Return the reading of a state in the layout of a key map, or None if it has another one."""
    table = keymap.table(wanted)
    if not any(names in state for names in table.values()):
        return None
    try:
        ours = keymap.from_layout(state, wanted)
    except (ValueError, IndexError, KeyError):
        return None  # the layout's transforms cannot take an array, so the layout is another one
    words = ", ".join([*steps, f"in the layout {keymap.name!r}"])
    lacking = frozenset(wanted) - frozenset(table)
    return Choice(ours, words, lacking, keymap.notes, keymap)


def _prefixed(
    state: State, wanted: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield the state's names as they are, then without and with prefixes.

    Those with the fewest steps come first.
    """
    unchanged: dict[str, str] = {name: name for name in state}
    todo: deque[tuple[dict[str, str], list[str]]] = deque([(unchanged, [])])
    visited: set[tuple[str, ...]] = set()
    while todo:
        names, steps = todo.popleft()
        new_names = tuple(names.values())
        collide = len(set(new_names)) < len(new_names)  # two names would be one
        if collide or new_names in visited:
            continue
        visited.add(new_names)
        yield names, steps
        if len(steps) < _MOST_STEPS:
            todo.extend(_next(names, steps, wanted))


def _next(
    names: Mapping[str, str], steps: list[str], wanted: Mapping[str, Any]
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield the names with one prefix less or more, each with the steps that lead there."""
    for prefix in PREFIXES:
        if _any_starts_with(names.values(), prefix):
            shorter = {old: new.removeprefix(prefix) for old, new in names.items()}
            yield shorter, [*steps, f"without {prefix!r}"]
        if _any_starts_with(wanted, prefix):
            longer = {old: f"{prefix}{new}" for old, new in names.items()}
            yield longer, [*steps, f"with {prefix!r}"]


def _any_starts_with(names: Iterable[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names)


# Loading of each array


def _other_outputs(
    shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> tuple[int, int] | None:
    """Return the two numbers of outputs of heads whose shapes differ in nothing else, or None.

    The layers of a head that is a block may have as many inputs as outputs.
    """
    differences = set()
    first_axis_differs = False
    for came, wanted in shapes:
        if len(came) != len(wanted):
            return None
        for sizes in zip(came, wanted, strict=True):
            if sizes[0] != sizes[1]:
                differences.add(sizes)
        if came[:1] != wanted[:1]:
            first_axis_differs = True
    if len(differences) != 1 or not first_axis_differs:
        return None
    return differences.pop()


class Plan:
    """The arrays to be loaded, adapted and left alone; making a plan changes nothing."""

    @classmethod
    def of(cls, network: Any, states: Mapping[str, State]) -> Plan:
        """Make the plan for the best of some states, under the best reading of its names."""
        slots = network.neutral_slots()
        network = unreplicated(network)  # a replicated one has no key maps
        keymaps = tuple(getattr(network, "keymaps", ()))
        return cls(network, slots, _best(slots, states, keymaps))

    def __init__(self, network: Any, slots: Mapping[str, Slot], choice: Choice) -> None:
        """Adapt or skip the arrays of all names."""
        self._network = network
        self._slots = slots
        self.choice = choice
        adapt_state = getattr(network, "adapt_state", dict)
        self._state = dict(adapt_state(dict(choice.state)))
        self._stem = self._below(stem_and_head.paths(network, "stem"))
        self._heads: dict[str, frozenset[str]] = {}
        for path in stem_and_head.paths(network, "head"):
            self._heads[path] = self._below((path,))
        self.arrays: dict[str, np.ndarray] = {}
        self.adapted: list[Adapted] = []
        self.skipped: dict[str, str] = {}
        self.wrong: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
        for name in slots:
            if name in self._state:
                self._take(name, self._state[name], slots[name].shape)
        self._leave_heads()
        self.missing = self._missing()
        self.unexpected = self._unexpected()

    @property
    def fits(self) -> bool:
        """Whether no name is missing or unexpected, and no shape is wrong."""
        report = LoadReport(
            tuple(self.arrays), self.missing, self.unexpected, tuple(self.wrong)
        )
        return report.complete

    @property
    def as_it_is(self) -> bool:
        """Whether every array fits without a change.

        A head that only one of the two has does not count.
        """
        replaced = set(self.skipped).intersection(self._state, self._slots)
        return bool(self.arrays) and self.fits and not self.adapted and not replaced

    def report(self, source: str) -> WeightsReport:
        """Report what is done if the plan is carried out."""
        skipped = dict(self.skipped)
        for name, came, wanted in self.wrong:
            skipped[name] = f"came as {came}, wanted {wanted}"
        return WeightsReport(
            source,
            self.choice.words,
            tuple(self.arrays),
            tuple(self.adapted),
            tuple(skipped.items()),
            self.missing,
            self.unexpected,
            self.choice.notes,
        )

    def problem(self) -> str:
        """Describe what is wrong, for an error."""
        if not self.arrays:
            ours = listed(self._slots)
            names = listed(self._state)
            return (
                f"{self.choice.words}: there is nothing for it; the network's names are like "
                f"{ours}, the weights' like {names}"
            )
        return str(self.report("")).removeprefix(", ")

    def _below(self, paths: Sequence[str]) -> frozenset[str]:
        """Return the names below some paths, and every other name of the same arrays."""
        prefixes = tuple(f"{path}." for path in paths)
        natives = set()
        for name, slot in self._slots.items():
            if name in paths or name.startswith(prefixes):
                natives.add(id(slot.native))
        return frozenset(
            name for name, slot in self._slots.items() if id(slot.native) in natives
        )

    def _take(self, name: str, value: np.ndarray, shape: tuple[int, ...]) -> None:
        came = tuple(np.shape(value))
        if came == shape:
            self.arrays[name] = value
            return
        adaptation = self._adapt(name, value, shape)
        if adaptation is None:
            self.wrong.append((name, came, shape))
            return
        adapted, how = adaptation
        if adapted.shape != shape:
            raise StateError(
                f"{type(self._network).__name__}.adapt_weight made {name!r} {adapted.shape}, "
                f"wanted {shape}"
            )
        self.arrays[name] = adapted
        self.adapted.append(Adapted(name, came, shape, how))

    def _adapt(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, str] | None:
        if name in self._stem:
            return self._other_channels(name, value, shape)
        if any(name in names for names in self._heads.values()):
            return None
        adapt = getattr(self._network, "adapt_weight", None)
        if adapt is None:
            return None
        keymap = self.choice.keymap
        if keymap is None or keymap.resampling is None:
            adapted = adapt(name, value, shape)
        else:
            adapted = adapt(name, value, shape, keymap.resampling)
        if adapted is None:
            return None
        return np.asarray(adapted), "by the network itself"

    def _other_channels(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, str] | None:
        if value.ndim != len(shape) or value.ndim < 3:
            return None
        same_outputs = value.shape[0] == shape[0]
        same_kernel = value.shape[2:] == shape[2:]
        if not (same_outputs and same_kernel) or stem_and_head.is_grouped(
            self._network, name
        ):
            return None
        old = value.shape[1]
        new = shape[1]
        exact = value.astype(np.result_type(value, np.float32), copy=False)
        if new == 1:
            adapted = exact.sum(1, keepdims=True)
            how = f"summed over {old} input channels"
        else:
            repeated = np.take(exact, np.arange(new) % old, axis=1)
            adapted = repeated * (old / new)
            how = f"{old} input channels repeated to {new} and scaled by {old}/{new}"
        return adapted.astype(value.dtype), how

    def _leave_heads(self) -> None:
        """Leave heads at their start values where the classes differ or the file has no head."""
        shapes = {name: (came, wanted) for name, came, wanted in self.wrong}
        for path, names in self._heads.items():
            if not names:
                continue
            outputs = _other_outputs([shapes[name] for name in names if name in shapes])
            is_tied = not all(name.startswith(f"{path}.") for name in names)
            if outputs is not None:
                reason = f"{outputs[0]} outputs came, the network has {outputs[1]}"
            elif names.isdisjoint(self._state) and not is_tied:
                reason = "the file has no such head"
            else:
                continue
            self._leave(names, f"{reason}; the start values stay")

    def _leave(self, names: frozenset[str], reason: str) -> None:
        """Leave the arrays of these names at their start values."""
        for name in self._slots:
            if name in names:
                self.skipped[name] = reason
                self.arrays.pop(name, None)
        self.wrong = [entry for entry in self.wrong if entry[0] not in names]

    def _missing(self) -> tuple[str, ...]:
        """Return the names that the source lacks.

        A name whose array came under another name is not missing.
        """
        loaded = set()
        for name, slot in self._slots.items():
            if name in self._state:
                loaded.add(id(slot.native))
        missing = []
        for name, slot in self._slots.items():
            is_computed = name in self.choice.lacking and not slot.is_parameter
            is_loaded = id(slot.native) in loaded
            if not is_computed and not is_loaded and name not in self.skipped:
                missing.append(name)
        return tuple(missing)

    def _unexpected(self) -> tuple[str, ...]:
        """Return the names that the network lacks, without those of a head that it could have."""
        unexpected = [name for name in self._state if name not in self._slots]
        if not unexpected or any(self._heads.values()):
            return tuple(unexpected)
        heads = stem_and_head.names(self._network, self._slots)
        keymap = self.choice.keymap
        if keymap is not None and heads:
            table = keymap.table([*self._slots, *heads])
            heads = heads.union(table.values())
        rest = []
        for name in unexpected:
            if name in heads:
                self.skipped[name] = "the network was built without a head"
            else:
                rest.append(name)
        return tuple(rest)
