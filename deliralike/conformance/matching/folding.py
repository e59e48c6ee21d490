"""Batch norms that a candidate has folded into the layers before them.

In evaluation a batch norm is a scale and a shift of each channel, which a convolution or linear
layer can take over. The reference is brought to the same form: the scale goes into its layer, and
its norm adds the shift alone. It computes what it did, in evaluation.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.conformance.by_name import owner
from deliralike.conformance.kinds import Named
from deliralike.network.base import AbstractNetwork
from deliralike.weights.matching.match import Match
from deliralike.weights.matching.pairing import STATISTICS


@dataclass(frozen=True)
class Fold:
    """A norm of the reference, the layer before it, and the candidate's layer for both.

    Attributes:
        norm, layer: Paths in the reference.
        partner: Path in the candidate.
        eps: The norm's epsilon.
    """

    norm: str
    layer: str
    partner: str
    eps: float


def folds(match: Match, reference: AbstractNetwork, called: Sequence[str]) -> list[Fold]:
    """The norms of the reference that the candidate lacks, each with the layer called before it."""
    blocks = dict(reference.named_blocks())
    missing = {owner(name) for name in match.missing if name.endswith(STATISTICS)}
    candidates = {
        pair.reference[0].layer: pair.candidate[0].layer
        for pair in match.names
        if pair.reference[0].source.endswith("weight")
    }
    shapes = {name: slot.shape for name, slot in reference.neutral_slots().items()}
    found, before = [], ""
    for path in called:
        features = shapes.get(f"{path}.{STATISTICS[0]}")
        fits = features == shapes.get(f"{before}.weight", ())[:1]
        if path in missing and before in candidates and fits:
            kind, settings = reference.backend.neutral_layer(blocks[path]) or ("", {})
            eps = settings.get("eps", getattr(blocks[path], "eps", None))
            bias = f"{candidates[before]}.bias"
            if eps is not None and bias in match.candidate.tensors:
                found.append(Fold(path, before, candidates[before], float(eps)))
        if path in candidates:
            before = path
    return found


def fold(reference: AbstractNetwork, found: Sequence[Fold]) -> None:
    """Bring a network's norms to the form of a shift, in place."""
    state = {name: np.array(value) for name, value in reference.neutral_state().items()}
    for one in found:
        mean, var = (state[f"{one.norm}.{name}"] for name in STATISTICS)
        weight = state.get(f"{one.norm}.weight", np.ones_like(mean))
        scale = weight / np.sqrt(var + one.eps)
        bias = state.get(f"{one.layer}.bias", np.zeros_like(mean))
        shift = state.get(f"{one.norm}.bias", np.zeros_like(mean)) + (bias - mean) * scale
        kernel = state[f"{one.layer}.weight"]
        state[f"{one.layer}.weight"] = kernel * scale.reshape(-1, *(1,) * (kernel.ndim - 1))
        state[f"{one.norm}.running_mean"] = np.zeros_like(mean)
        state[f"{one.norm}.running_var"] = np.ones_like(var)
        state[f"{one.norm}.bias"] = shift
        if f"{one.norm}.weight" in state:
            state[f"{one.norm}.weight"] = np.full_like(weight, np.sqrt(1.0 + one.eps))
        if f"{one.layer}.bias" in state:
            state[f"{one.layer}.bias"] = np.zeros_like(bias)
    reference.load_neutral_state(state)


def corrections(found: Sequence[Fold]) -> Named:
    """What the folded tensors are in the candidate, as corrections of a match."""
    named: dict[str, Any] = {}
    for one in found:
        named[f"{one.norm}.bias"] = f"{one.partner}.bias"
        named[f"{one.layer}.weight"] = f"{one.partner}.weight"
    return named


def left_out(found: Sequence[Fold], names: Container[str]) -> list[str]:
    """The reference's tensors that folding has made constants."""
    constants = []
    for one in found:
        wanted = [f"{one.norm}.{name}" for name in ("weight", *STATISTICS)]
        constants += [name for name in (*wanted, f"{one.layer}.bias") if name in names]
    return constants
