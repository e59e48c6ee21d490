"""Files whose names are of another hand: matched to a network by names, shapes and order."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from deliralike.errors import StateError
from deliralike.network.core import NetworkCore, unwrap
from deliralike.network.state import LoadReport
from deliralike.terminal import log
from deliralike.weights import foreign_layouts
from deliralike.weights.file_match import FileMatch
from deliralike.weights.inflate import AnyPath
from deliralike.weights.matching.match import (
    by_number,
    by_other_weights,
    propose_between,
)
from deliralike.weights.matching.naming import role
from deliralike.weights.matching.pairing import COUNTER, STATISTICS, Side, Tensor
from deliralike.weights.matching.parts import join
from deliralike.weights.reading import Contents, contents

if TYPE_CHECKING:
    from deliralike.network.base import AbstractNetwork

Names = Mapping[str, str | None]  # of a file by those of a network; None for none
# Endings of names that other hands have given to what a layer holds.
_LEAF = re.compile(
    r"(?:(.+?)_)??(w|weights?|kernel|b|bias|biases|gamma|beta|((running|moving)_)?mean"
    r"|(running_)?var|moving_variance)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class MatchReport(LoadReport):
    """What became of each name when weights of another hand were loaded.

    Attributes:
        match: The pairs.
    """

    match: FileMatch = field(kw_only=True)

    def __str__(self) -> str:
        """Return what was loaded, the pairs' account, and what they rest on."""
        return (
            f"{super().__str__()}; {self.match}\n  names, shapes and order tell which tensor is "
            "which, and no output was compared: try the network on data that you know"
        )


def match(
    network: AbstractNetwork,
    weights: AnyPath | Contents | Mapping[str, np.ndarray],
    names: Names | None = None,
) -> FileMatch:
    """Find which tensor of a file is which of a network; nothing is loaded.

    Equal names and shapes throughout are taken as they are. Otherwise names (words, synonyms,
    numbers in a series), shapes (in any order of axes) and the order in which tensors stand decide,
    as `deliralike.conformance.compare` does before it compares outputs. There is nothing to compare
    here: what two choices fit as well is open, and `load` refuses it.

    Args:
        network: Any network, on any backend.
        weights: A file, its contents, or arrays by name.
        names: What is known: names of the file by those of the network, or None for a tensor of
            either that has no counterpart.

    Raises:
        UnknownName: `names` has a name that is not there.
        ShapeError, StateError: `names` pairs tensors that no order of axes makes one.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `read`.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=4, hidden=(3,), out_features=2)
        >>> old = {"hidden_w": np.ones((3, 4)), "hidden_b": np.ones(3)}
        >>> old |= {"out_w": np.ones((2, 3)), "out_b": np.ones(2)}
        >>> print(match(net, old))
        a mapping, matched to MLP on torch: 4 pairs (4 by shape)
    """
    reference = Side.of(network, with_values=False)
    if isinstance(unwrap(network), NetworkCore):
        # however the backend keeps kernels, the network itself has the channels first
        reference = replace(reference, channels_last=False)
    file = _contents_of(weights)
    state, notes = file.best()
    originals = _spelled(state)
    candidate = _side(file, state, originals)
    spelled: dict[str | None, str] = {
        original: name for name, original in originals.items()
    }
    corrections = {}
    for name, partner_name in (names or {}).items():
        corrections[spelled.get(name, name)] = spelled.get(partner_name, partner_name)
    found = propose_between(reference, candidate, corrections)
    doubts = foreign_layouts.doubts(network, file).items()
    open_layouts = tuple(f"{name}: {doubt.words}" for name, doubt in doubts)
    match = by_other_weights(by_number(found))
    return FileMatch(file.kind, match, originals, notes + open_layouts)


def load(
    network: AbstractNetwork,
    path: AnyPath,
    strict: bool = True,
    names: Names | None = None,
    guess: bool = False,
) -> MatchReport:
    """Match a file and load it; see `deliralike.weights.load`."""
    file = _contents_of(path)
    try:
        found, state = matched(network, file, names, guess, strict)
    except StateError as error:
        raise StateError(
            f"the weights were not loaded, and {type(network).__name__} is unchanged: {error}"
        ) from None
    loaded = network.load_neutral_state(state, strict=False)
    report = MatchReport(
        loaded.loaded, loaded.missing, found.unexpected, loaded.mismatched, match=found
    )
    log(logging.WARNING, report)
    return report


def matched(
    network: AbstractNetwork,
    file: Contents,
    names: Names | None,
    guess: bool,
    strict: bool = True,
) -> tuple[FileMatch, dict[str, np.ndarray]]:
    """Match a file's contents to a network, and return its arrays in the network's layouts too.

    Args:
        guess: Whether what is open is taken as it was proposed, and as its framework usually has
            it.
        strict: Whether tensors of either side without counterpart are refused.

    Raises:
        StateError: Something is open or without counterpart.
    """
    found = match(network, file, names)
    is_left_over = bool(found.missing or found.unexpected)
    does_not_fit = not found.match.names or (strict and is_left_over)
    by_order = any(pair.decided == "order" for pair in found.open_pairs)
    may_guess = not by_order or bool(file.order)
    is_open = bool(found.open_pairs) and not (guess and may_guess)
    if is_open or does_not_fit:
        hint = ""
        if does_not_fit:
            hint = (
                "\n  strict=False of weights.load leaves alone what one side alone has."
            )
        if is_open and may_guess:
            hint += "\n  guess=True takes the pairs as they are above."
        elif is_open:
            hint += "\n  The order of names in such a file says nothing, so these are no guesses."
        raise StateError(
            f"{found}{hint}\n  Say which is which by the names that you know, match= of "
            "weights.load or names= of zoo.convert: "
            '{"network\'s name": "file\'s name", "name of either": None}'
        )
    tensors = found.match.candidate.tensors
    kernels = {}
    for pair in found.match.names:
        unit = pair.reference[0]
        if len(unit.shape) > 2:
            kernels[unit.source] = tensors[pair.candidate[0].source].value
    state = found.state()
    return found, foreign_layouts.settled(network, file, state, guess, kernels)


# The file
# -----------------------------------------------------------------------------


def _contents_of(
    weights: AnyPath | Contents | Mapping[str, np.ndarray],
) -> Contents:
    """Return the contents of a file, whose name is their kind, or of a mapping."""
    if isinstance(weights, Contents):
        return weights
    if isinstance(weights, Mapping):
        state = {name: np.asarray(array) for name, array in weights.items()}
        return Contents("a mapping", {"": state}, exact=True)
    return replace(contents(weights), kind=str(weights))


def _side(
    file: Contents, state: Mapping[str, np.ndarray], originals: Mapping[str, str]
) -> Side:
    """Return the arrays of a file as a side of a match."""
    tensors = {}
    for name, original in originals.items():
        if not name.endswith(COUNTER):
            array = state[original]
            is_parameter = role(name) not in STATISTICS
            tensors[name] = Tensor(tuple(array.shape), is_parameter, name, array)
    return Side(file.kind, tensors, {}, file.channels_last)


def _spelled(names: Iterable[str]) -> dict[str, str]:
    """Return the names by dotted ones; as they are where two would become one.

    Example:
        >>> _spelled(["conv1/w:0", "fc_bias"])
        {'conv1.w': 'conv1/w:0', 'fc.bias': 'fc_bias'}
    """
    as_they_are = {name: name for name in names}
    dotted = {_dotted(name): name for name in as_they_are}
    if len(dotted) < len(as_they_are):
        return as_they_are
    return dotted


def _dotted(name: str) -> str:
    path, _, leaf = name.removesuffix(":0").replace("/", ".").rpartition(".")
    parts = _LEAF.fullmatch(leaf)
    if parts is not None:
        leaf = join(parts[1] or "", parts[2].lower())
    return join(path, leaf)
