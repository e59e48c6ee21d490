"""Weights of a file into a network: by the network's own names, or by a match of names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deliralike.errors import StateError
from deliralike.network.state import LoadReport
from deliralike.weights import foreign, foreign_layouts
from deliralike.weights.foreign import Names
from deliralike.weights.inflate import AnyPath
from deliralike.weights.reading import contents, report, without_prefix

if TYPE_CHECKING:
    from deliralike.network.base import AbstractNetwork


def load(
    network: AbstractNetwork,
    path: AnyPath,
    strict: bool = True,
    match: bool | Names = False,
    guess: bool = False,
) -> LoadReport:
    """Load the weights in a file into a network; see `read`.

    `deliralike.zoo.load` also loads files that other libraries and trainers have saved.

    Args:
        network: Any network.
        path: The file.
        strict: Whether names that are missing or unexpected are refused.
        match: Whether names of another hand are matched to the network's by names, shapes and
            order: True, or names of the file by names of the network (None for one that has no
            counterpart). Without it the names are the network's own.
        guess: Whether arrays of flax whose layout the file does not tell are taken as
            these usually have them: pixels before channels where a picture is flattened, and
            kernels of flax's transposed convolutions turned around. Otherwise they are refused.
            With `match` all pairs are taken as proposed, though another choice would do as well.

    Returns:
        The report; with `match` it also lists the pairs, as `deliralike.weights.match` does.

    Raises:
        StateError: The weights do not fit the network, or do so in more than one way. The network
            is left as it was.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `read`.
    """
    if match is not False:
        return foreign.load(
            network, path, strict, None if match is True else match, guess
        )
    file_contents = contents(path)
    state, notes = file_contents.first()
    slots = network.neutral_slots()
    # Prefixes are taken off only if no name fits: a network may well have a block called "module".
    if slots.keys().isdisjoint(state):
        state = without_prefix(state)
    report(path, file_contents.kind, notes)
    try:
        state = foreign_layouts.settled(network, file_contents, state, guess)
        return network.load_neutral_state(state, strict=strict)
    except StateError as error:
        hint = ""
        if slots.keys().isdisjoint(state):
            hint = (
                "\n  deliralike.zoo.load(network, path) knows names of trainers and other "
                "libraries, and match=True finds pairs by shape"
            )
        raise StateError(f"{path}: {error}{hint}") from None
