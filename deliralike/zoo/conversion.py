"""Weight files converted with an architecture in mind: names fitted to it, layouts of other libraries, and a check."""

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
from deliralike.errors import SettingError, StateError, UnknownName, suggestion
from deliralike.weights import Contents, ConversionReport, Renaming, chainer_names, fitting, trees
from deliralike.zoo import chainer_links, loading
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.registry import Architecture, find

OURS = "torchvision"  # what our names are called, whoever's they are


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    model: str | None = None,
    to: str | None = None,
    dry_run: bool = False,
    check: bool = False,
    **settings: Any,
) -> ConversionReport:
    """Write the weights of one file into another; see `deliralike.weights.convert`.

    Args:
        model: The architecture that they belong to. Names are then brought to its own, as `load`
            does; where they say nothing (another library's network of the same layers), layers are
            fitted by their order and shapes, and refused where these leave a choice.
        to: Whose names to write: ``"torchvision"`` (this zoo's own names, also where they are
            another library's), ``"chainer"``, or one of the architecture's key maps, ``"timm"`` …;
            the zoo's own when not given.
        dry_run: Read and check everything, write nothing.
        check: Build the network from both files and compare outputs in double precision.
        settings: Of the architecture.

    Raises:
        UnknownName: The zoo has no such architecture, or it has no such layout.
        StateError: The weights do not fit the architecture, or do so in more than one way.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `deliralike.weights.convert`.
    """
    if model is None:
        if check or settings or to not in (None, "chainer"):
            raise SettingError(
                "which network the weights belong to is not said: name it, model=... (--model)"
            )
        return weight_files.convert(source, target, dry_run, _to_chainer if to else None)
    architecture = find(model)
    plan = _Plan(architecture, settings, to, Path(target))
    if not check:
        return weight_files.convert(source, target, dry_run, plan)
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # nothing of a check stays, and a failure leaves the target alone
        trial = Path(folder) / Path(target).name
        report = weight_files.convert(source, trial, rename=plan)
        difference, notes = plan.compared(Path(source), trial)
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
    """How a file's names become those of an architecture and of the layout that is wanted."""

    def __init__(
        self, architecture: Architecture, settings: Mapping[str, Any], to: str | None, target: Path
    ) -> None:
        self._architecture, self._settings, self._to, self._target = (
            architecture,
            dict(settings),
            to,
            target,
        )
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
        self._fitted = False

    def __call__(self, contents: Contents) -> Renaming:
        self._ours, words, layouts = self._to_ours(contents)
        state: dict[str, np.ndarray] = self._ours
        if self._to in self._keymaps:
            keymap = self._keymaps[str(self._to)]
            state, layouts = keymap.to_theirs(state), [*layouts, keymap]
        of_chainer = self._to in ("chainer", chainer_links.NAME)
        if of_chainer:
            state = chainer_names.renamed(state)
        self._layouts = layouts
        before = {name for found in contents.states.values() for name in found}
        last = contents.channels_last != weight_files.channels_last(self._target)
        turned = [name for name in self._ours if any(keymap.reshapes(name) for keymap in layouts)]
        turned += trees.kernels(self._ours) if last else []
        return Renaming(
            state,
            layout=f"{words}; written as {self._to or OURS}",
            renamed=sum(name not in before for name in state),
            reshaped=tuple(dict.fromkeys(turned)),
            notes=tuple(
                dict.fromkeys(
                    [*contents.notes, *(note for keymap in layouts for note in keymap.notes)]
                )
            ),
            neutral=not of_chainer,
        )

    def _to_ours(self, contents: Contents) -> tuple[dict[str, np.ndarray], str, list[KeyMap]]:
        """The weights under the architecture's own names, how they came there, and by whose layout."""
        plan = loading.Plan.of(self._network, contents.states)
        if plan.as_it_is:
            keymap = plan.choice.keymap
            return plan.arrays, plan.choice.words, [] if keymap is None else [keymap]
        if 2 * len(plan.arrays) > len(
            self._slots
        ):  # the names are known: what is wrong is something else
            raise StateError(self._misfit(plan.problem()))
        state, _ = contents.best()
        wanted = {name: slot.shape for name, slot in self._slots.items()}
        try:
            names = fitting.fit(
                {name: value.shape for name, value in state.items()}, wanted, contents.order
            )
        except StateError as error:
            raise StateError(
                self._misfit(f"their names are not the network's, and {error}")
            ) from None
        self._fitted = True
        return (
            {ours: state[theirs] for ours, theirs in names.items()},
            "fitted by order and shapes",
            [],
        )

    def _misfit(self, reason: str) -> str:
        return f"the weights do not fit {self._architecture.name} with these settings: {reason}"

    def compared(self, source: Path, converted: Path) -> tuple[float, tuple[str, ...]]:
        """The largest difference between the outputs of the network with the source's weights and with those written.

        Where a framework has the network that a layout is named after, a note tells how far that
        one's outputs are.
        """
        backends = importlib.import_module("deliralike.backends")
        backend = backends.get(backends.available()[0])
        inputs = self._architecture.sample(batch=2, dtype="float64", **self._settings)
        first, second = (
            self._outputs(backend, weights, inputs)
            for weights in (self._ours if self._fitted else source, converted)
        )
        notes = []
        for keymap in self._layouts:
            if keymap.framework in backends.available():
                own = backends.get(keymap.framework).own_outputs(
                    keymap.to_theirs(self._ours), *inputs
                )
                notes += (
                    []
                    if own is None
                    else [f"{own[0]} itself differs by {_largest(second, own[1:]):.3g}"]
                )
        return _largest(first, second), tuple(notes)

    def _outputs(
        self, backend: Any, weights: Any, inputs: tuple[np.ndarray, ...]
    ) -> list[np.ndarray]:
        network = self._architecture.on(backend, dtype="float64")(**self._settings)
        loading.load(network, weights)
        with network.training_mode(False), backend.evaluating():
            output = network(*(backend.array(x, x.dtype.name) for x in inputs))
        return [backend.numpy(leaf) for leaf in nest.leaves(output)]


def _largest(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max(initial=0.0)) for a, b in zip(one, other, strict=True))


def _to_chainer(contents: Contents) -> Renaming:
    state, notes = contents.best()
    state = chainer_names.renamed(state)
    renamed = sum("/" in name for name in state)
    return Renaming(state, "written as chainer", renamed=renamed, notes=notes, neutral=False)
