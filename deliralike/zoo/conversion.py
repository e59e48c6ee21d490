"""Convert weight files for an architecture: fit names, apply layouts, check outputs."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import nest
from deliralike import weights as weight_files
from deliralike.errors import (
    AnotherBackend,
    ProofFailed,
    SettingError,
    StateError,
    UnknownName,
    suggestion,
)
from deliralike.network.core import unwrap
from deliralike.weights import (
    Contents,
    ConversionReport,
    Renaming,
    chainer_names,
    foreign,
    foreign_layouts,
)
from deliralike.zoo import loading
from deliralike.zoo.building import on_first
from deliralike.zoo.registry import Architecture, find

LIMIT = 1e-6  # of the largest output
_NOT_CHECKED = (
    "not checked: no outputs were compared with those of the network that the file was made for; "
    "check=... (--check) takes it"
)
OURS = (
    "torchvision"  # the layout of our own names, also where they are another library's
)


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    model: str | None = None,
    to: str | None = None,
    dry_run: bool = False,
    check: Any = None,
    names: Mapping[str, str | None] | None = None,
    guess: bool = False,
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
        check: The network of the library that wrote the source, or that reads the target where `to`
            says whose names it has: a network of PyTorch, Chainer or flax, or the name of a class
            or function that makes one (``"torchvision.models:resnet18"``, ``"file.py:Net"``). It
            takes the weights of its file, and its outputs are compared in double precision with
            those of the architecture with the other file, in evaluation mode, on inputs that are
            drawn. Nothing is checked where it is not given, and the report says so.
        names: Names in the source by those of the model, as far as they are known; None for one of
            either that has no counterpart.
        guess: Whether a choice that is open is taken as proposed; see `deliralike.weights.load`.
        settings: The settings of the architecture.

    Raises:
        UnknownName: The zoo has no such architecture, or it has no such layout.
        StateError: The weights do not fit the architecture, or do so in more than one way.
        ProofFailed: The outputs differ by more than a millionth of the largest, or cannot be
            compared. Nothing was written.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `deliralike.weights.convert`.
    """
    if model is None:
        if (
            check is not None
            or settings
            or names
            or guess
            or to not in (None, "chainer")
        ):
            raise SettingError(
                "which network the weights belong to is not said: name it, model=... (--model)"
            )
        rename = _to_chainer if to else None
        return weight_files.convert(source, target, dry_run, rename)
    architecture = find(model)
    plan = _Plan(architecture, settings, to, names, guess)
    if check is None:
        report = weight_files.convert(source, target, dry_run, plan)
        return replace(report, notes=(*report.notes, _NOT_CHECKED))
    # The check works in a folder that is deleted, so a failure leaves the target alone.
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / Path(target).name
        notes = weight_files.convert(source, trial, rename=plan).notes
        difference = plan.compared(Path(source), trial, check, notes)
    report = weight_files.convert(source, target, dry_run, plan)
    return replace(report, largest_difference=difference)


class _Plan:
    """The way from a file's names to those of an architecture and of the wanted layout."""

    def __init__(
        self,
        architecture: Architecture,
        settings: Mapping[str, Any],
        to: str | None,
        names: Mapping[str, str | None] | None,
        guess: bool,
    ) -> None:
        self._architecture = architecture
        self._settings = dict(settings)
        self._to = to
        self._names = names
        self._guess = guess
        self._network = self._outlined()
        self._slots = self._network.neutral_slots()
        self._keymaps = {
            keymap.name: keymap for keymap in getattr(self._network, "keymaps", ())
        }
        layouts = [OURS, "chainer", *self._keymaps]
        if to not in (None, *layouts):
            raise UnknownName(
                f"{architecture.name} has no layout {to!r}. {suggestion(str(to), layouts)}"
            )
        self._ours: dict[str, np.ndarray] = {}

    def _outlined(self) -> Any:
        """Return a network without values, or a class of one framework alone as it is."""
        outline = importlib.import_module("deliralike.backends.outline").BACKEND
        try:
            return self._architecture.on(outline)(**self._settings)
        except AnotherBackend:
            names = importlib.import_module("deliralike.backends").available()
            return on_first(self._architecture.name, names, settings=self._settings)

    def __call__(self, contents: Contents) -> Renaming:
        self._ours, words, notes = self._with_names_of_zoo(contents)
        state = self._ours
        if self._to in self._keymaps:
            keymap = self._keymaps[str(self._to)]
            state = keymap.to_layout(state)
            notes = (*notes, *keymap.notes)
        of_chainer = self._to == "chainer"
        if of_chainer:
            state = chainer_names.renamed(state)
        old_names = set().union(*contents.states.values())
        return Renaming(
            state,
            layout=f"{words}; written as {self._to or OURS}",
            renamed=len(state.keys() - old_names),
            notes=tuple(dict.fromkeys([*contents.notes, *notes])),
            neutral=not of_chainer,
        )

    def _with_names_of_zoo(
        self, contents: Contents
    ) -> tuple[dict[str, np.ndarray], str, tuple[str, ...]]:
        """Return the weights under the architecture's own names.

        Returns:
            The weights, a description of how their names were found, and notes on their layout.
        """
        plan = loading.Plan.of(self._network, contents.states)
        if plan.as_it_is and not self._names:
            arrays = foreign_layouts.settled(
                self._network, contents, plan.arrays, self._guess
            )
            return arrays, plan.choice.words, plan.choice.notes
        if 2 * len(plan.arrays) > len(self._slots) and not self._names:
            # most names are known: something else is wrong
            raise StateError(self._misfit(plan.problem()))
        try:
            _, arrays = foreign.matched(
                self._network, contents, self._names, self._guess
            )
        except StateError as error:
            raise StateError(
                self._misfit(f"their names are not the network's, and {error}")
            ) from None
        return arrays, "matched by names, shapes and order", ()

    def _misfit(self, reason: str) -> str:
        return f"the weights do not fit {self._architecture.name} with these settings: {reason}"

    def compared(
        self, source: Path, converted: Path, check: Any, notes: Sequence[str]
    ) -> float:
        """Return the largest difference from the outputs of another library's network.

        Raises:
            ProofFailed: It is too large, or the outputs cannot be compared.
        """
        reference = _reference(check)
        ours: Any = converted
        try:
            loading.load(reference, source)
        except StateError:
            if self._to is None:
                raise
            loading.load(reference, converted)
            ours = self._ours
        backend = importlib.import_module("deliralike.backends").available()[0]
        network = self._architecture.on(backend, dtype="float64")(**self._settings)
        loading.load(network, ours)
        inputs = self._architecture.sample(batch=2, dtype="float64", **self._settings)
        difference = _difference(reference, _outputs(network, inputs), inputs)
        if not difference <= LIMIT:
            raise ProofFailed(
                f"nothing was written: outputs differ from those of {_name(reference)} by "
                f"{difference:.3g} of the largest one. {'. '.join(notes)}"
            )
        return difference


def _reference(check: Any) -> Any:
    """Return a copy of the network in double precision that the outputs are compared with."""
    backends = importlib.import_module("deliralike.backends")
    if isinstance(check, str):
        check = on_first(check, backends.available())
    network = backends.wrap(check)
    return network.backend.in_dtype(network, "float64")


def _outputs(network: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays that a network gives in evaluation mode."""
    backend = network.backend
    with network.training_mode(False), backend.evaluating():
        output = backend.to_numpy(network(*backend.prepare(tuple(inputs), network)))
    return [leaf for leaf in nest.leaves(output) if isinstance(leaf, np.ndarray)]


def _difference(
    reference: Any, outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray]
) -> float:
    """Return the largest difference from a reference's outputs, as a part of the largest of them.

    The reference may have the channels last; the layout that fits better counts.

    Raises:
        ProofFailed: Its outputs have other shapes, or it takes no such inputs.
    """
    differences = []
    reason = ""
    for move in (lambda x, *_: x, np.moveaxis):
        moved = [move(x, 1, -1) if x.ndim > 2 else x for x in inputs]
        try:
            wanted = _outputs(reference, moved)
        except Exception as error:  # noqa: BLE001  # of another library
            reason = reason or f": {error}"
            continue
        wanted = [move(x, -1, 1) if x.ndim > 2 else x for x in wanted]
        if [x.shape for x in wanted] == [x.shape for x in outputs]:
            largest = max(np.abs(x).max(initial=0.0) for x in wanted)
            off = [
                np.abs(a - b).max(initial=0.0)
                for a, b in zip(wanted, outputs, strict=True)
            ]
            differences.append(float(max(off) / (largest or 1.0)))
    if not differences:
        shapes = ", ".join(str(x.shape) for x in outputs)
        raise ProofFailed(
            f"{_name(reference)} does not give outputs of shapes {shapes} to compare with{reason}"
        )
    return min(differences)


def _name(network: Any) -> str:
    return type(unwrap(network)).__name__


def _to_chainer(contents: Contents) -> Renaming:
    state, notes = contents.without_network()
    state = chainer_names.renamed(state)
    renamed = sum("/" in name for name in state)
    return Renaming(
        state, "written as chainer", renamed=renamed, notes=notes, neutral=False
    )
