"""Convert weight files for an architecture: fit names, apply layouts, check outputs."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import nest
from deliralike import weights as weight_files
from deliralike.errors import SettingError, StateError, UnknownName, suggestion
from deliralike.weights import (
    Contents,
    ConversionReport,
    Renaming,
    chainer_names,
    foreign,
    foreign_layouts,
    trees,
)
from deliralike.zoo import chainer_links, loading
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.registry import Architecture, find

OURS = "torchvision"  # the layout of our own names, also where they are another library's


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    model: str | None = None,
    to: str | None = None,
    dry_run: bool = False,
    check: bool = False,
    names: Mapping[str, str | None] | None = None,
    guess: bool | Collection[str] = False,
    **settings: Any,
) -> ConversionReport:
    """Write the weights of one file into another; see `deliralike.weights.convert`.

    Args:
        model: The architecture that they belong to. Names are then converted to its own, as `load`
            does; where they are unknown (another library's network of the same layers), arrays are
            matched by names, shapes and order, as `deliralike.weights.match` does, and refused
            where these leave a choice.
        to: The layout of the target: ``"torchvision"`` (this zoo's own names, also where they are
            another library's), ``"chainer"``, or one of the architecture's key maps, ``"timm"`` …;
            the zoo's own when not given.
        dry_run: Read and check everything, write nothing.
        check: Compare outputs in double precision: of the network with the weights as they were
            read and as they were written, and of the framework's own network where there is one. A
            file of another framework's layouts without one is reported as not checked.
        names: Names in the source by those of the model, as far as they are known; None for one of
            either that has no counterpart.
        guess: Whether a choice that is open is taken as proposed; see `deliralike.weights.load`.
        settings: The settings of the architecture.

    Raises:
        UnknownName: The zoo has no such architecture, or it has no such layout.
        StateError: The weights do not fit the architecture, or do so in more than one way.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `deliralike.weights.convert`.
    """
    if model is None:
        if check or settings or names or guess or to not in (None, "chainer"):
            raise SettingError(
                "which network the weights belong to is not said: name it, model=... (--model)"
            )
        rename = _to_chainer if to else None
        return weight_files.convert(source, target, dry_run, rename)
    architecture = find(model)
    plan = _Plan(architecture, settings, to, Path(target), names, guess)
    if not check:
        return weight_files.convert(source, target, dry_run, plan)
    # The check works in a folder that is deleted, so a failure leaves the target alone.
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / Path(target).name
        report = weight_files.convert(source, trial, rename=plan)
        difference, notes = plan.compared(trial)
    if not dry_run:
        report = weight_files.convert(source, target, rename=plan)
    return replace(
        report,
        target=Path(target),
        written=not dry_run,
        notes=(*report.notes, *notes),
        largest_difference=difference,
    )


class _Plan:
    """The way from a file's names to those of an architecture and of the wanted layout."""

    def __init__(
        self,
        architecture: Architecture,
        settings: Mapping[str, Any],
        to: str | None,
        target: Path,
        names: Mapping[str, str | None] | None,
        guess: bool | Collection[str],
    ) -> None:
        self._architecture = architecture
        self._settings = dict(settings)
        self._to = to
        self._target = target
        self._names = names
        self._guess = guess
        outline = importlib.import_module("deliralike.backends.outline").BACKEND
        self._network = architecture.on(outline)(**settings)
        self._slots = self._network.neutral_slots()
        self._keymaps = {keymap.name: keymap for keymap in getattr(self._network, "keymaps", ())}
        layouts = [OURS, "chainer", *self._keymaps]
        if to not in (None, *layouts):
            raise UnknownName(
                f"{architecture.name} has no layout {to!r}. {suggestion(str(to), layouts)}"
            )
        self._ours: dict[str, np.ndarray] = {}
        self._layouts: list[KeyMap] = []
        self._is_foreign = False  # its names or layouts are not those of a file of ours

    def __call__(self, contents: Contents) -> Renaming:
        self._ours, words, layouts = self._to_ours(contents)
        self._is_foreign |= contents.channels_last and not contents.exact
        state: dict[str, np.ndarray] = self._ours
        if self._to in self._keymaps:
            keymap = self._keymaps[str(self._to)]
            state = keymap.to_theirs(state)
            layouts = [*layouts, keymap]
        of_chainer = self._to in ("chainer", chainer_links.NAME)
        if of_chainer:
            state = chainer_names.renamed(state)
        self._layouts = layouts
        old_names = set().union(*contents.states.values())
        notes = list(contents.notes)
        for keymap in layouts:
            notes += keymap.notes
        return Renaming(
            state,
            layout=f"{words}; written as {self._to or OURS}",
            renamed=len(state.keys() - old_names),
            reshaped=self._reshaped(contents),
            notes=tuple(dict.fromkeys(notes)),
            neutral=not of_chainer,
        )

    def _reshaped(self, contents: Contents) -> tuple[str, ...]:
        """Return the names of the arrays that a layout, or the target's order of axes, reshapes."""
        names = []
        for name in self._ours:
            if any(keymap.reshapes(name) for keymap in self._layouts):
                names.append(name)
        if contents.channels_last != weight_files.channels_last(self._target):
            names += trees.kernels(self._ours)
        return tuple(dict.fromkeys(names))

    def _to_ours(self, contents: Contents) -> tuple[dict[str, np.ndarray], str, list[KeyMap]]:
        """Return the weights under the architecture's own names.

        Returns:
            The weights, a description of how their names were found, and their former layouts.
        """
        plan = loading.Plan.of(self._network, contents.states)
        if plan.as_it_is and not self._names:
            layouts = []
            if plan.choice.keymap is not None:
                layouts.append(plan.choice.keymap)
            arrays = foreign_layouts.settled(
                self._network, contents, plan.arrays, contents.kind, self._guess
            )
            return arrays, plan.choice.words, layouts
        if 2 * len(plan.arrays) > len(self._slots) and not self._names:
            # most names are known: something else is wrong
            raise StateError(self._misfit(plan.problem()))
        try:
            _, arrays = foreign.matched(
                self._network, contents, contents.kind, self._names, self._guess
            )
        except StateError as error:
            raise StateError(
                self._misfit(f"their names are not the network's, and {error}")
            ) from None
        self._is_foreign = True
        return arrays, "matched by names, shapes and order", []

    def _misfit(self, reason: str) -> str:
        return f"the weights do not fit {self._architecture.name} with these settings: {reason}"

    def compared(self, converted: Path) -> tuple[float | None, tuple[str, ...]]:
        """Compare the outputs of the network with the weights as they came and those written.

        Names and layouts of another framework are held against that framework's own network, where
        it has one; against our own network they would be held against themselves.

        Returns:
            The largest difference, None where nothing was compared; and notes.
        """
        backends = importlib.import_module("deliralike.backends")
        backend = backends.get(backends.available()[0])
        inputs = self._architecture.sample(batch=2, dtype="float64", **self._settings)
        written = self._outputs(backend, converted, inputs)
        differences = []
        notes = []
        for keymap in self._layouts:
            if keymap.framework not in backends.available():
                continue
            framework = backends.get(keymap.framework)
            own = framework.own_outputs(keymap.to_theirs(self._ours), *inputs)
            if own is not None:
                name, *outputs = own
                differences.append(_largest(written, outputs))
                notes.append(f"{name} itself differs by {differences[-1]:.3g}")
        if self._is_foreign and not differences:
            note = (
                "not checked: the network that the file was written by is not run here, and which "
                "array is which rests on names, shapes and order; compare outputs with its own"
            )
            return None, (note,)
        return _largest(self._outputs(backend, self._ours, inputs), written), tuple(notes)

    def _outputs(
        self, backend: Any, weights: Any, inputs: tuple[np.ndarray, ...]
    ) -> list[np.ndarray]:
        network = self._architecture.on(backend, dtype="float64")(**self._settings)
        loading.load(network, weights)
        arrays = [backend.array(x, x.dtype.name) for x in inputs]
        with network.training_mode(False), backend.evaluating():
            output = network(*arrays)
        return [backend.numpy(leaf) for leaf in nest.leaves(output)]


def _largest(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    """Return the largest difference between two sequences of arrays."""
    differences = []
    for a, b in zip(one, other, strict=True):
        differences.append(float(np.abs(a - b).max(initial=0.0)))
    return max(differences)


def _to_chainer(contents: Contents) -> Renaming:
    state, notes = contents.best()
    state = chainer_names.renamed(state)
    renamed = sum("/" in name for name in state)
    return Renaming(state, "written as chainer", renamed=renamed, notes=notes, neutral=False)
