"""How a mutant changes a right candidate: another method, setting, weight or loss.

A block keeps its parameters, names, order and path, so it keeps its portable dropout masks too;
what changes is one thing that it does. A plant copies the candidate, and works on every backend.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import LossFunction

Plant = Callable[[Subject], Subject]
State = dict[str, np.ndarray]


def with_methods(path: str, **methods: Any) -> Plant:
    """Plant other methods in the block at a path: ``with_methods("norm", forward=...)``.

    The block stays of the same class.
    """

    def change(network: AbstractNetwork) -> None:
        block = block_at(network, path)
        other = _subclass(type(block).written_once, tuple(methods.items()))
        block.__class__ = other.on(network.backend)

    return on_copy(change)


def with_settings(path: str, **settings: Any) -> Plant:
    """The block at a path has other settings: ``with_settings("norm", eps=2e-5)``."""

    def change(network: AbstractNetwork) -> None:
        block = block_at(network, path)
        for name, value in settings.items():
            if not hasattr(block, name):
                raise AttributeError(
                    f"the block {path!r}, a {type(block).__name__}, has no setting {name!r}"
                )
            setattr(block, name, value)

    return on_copy(change)


def with_weights(change: Callable[[State], State]) -> Plant:
    """Plant the weights that `change` makes of the candidate's neutral state.

    Names and shapes stay.
    """
    return on_copy(
        lambda network: network.load_neutral_state(change(network.neutral_state()))
    )


def with_loss(loss: LossFunction) -> Plant:
    """Plant another loss for training.

    Give a function that exists once: JAX compiles it once.
    """
    return lambda subject: subject.replace(loss=loss)


def block_at(network: AbstractNetwork, path: str) -> Any:
    """The block at a path; the network itself at the empty one."""
    return dict(network.named_blocks())[path]


def on_copy(change: Callable[[AbstractNetwork], Any]) -> Plant:
    """A change made to a copy of the candidate's network."""

    def plant(subject: Subject) -> Subject:
        network = copy.deepcopy(subject.network)
        change(network)
        return subject.replace(network=network)

    return plant


@cache
def _subclass(written_once: Any, methods: tuple[tuple[str, Any], ...]) -> Any:
    """A class written once, of the same name, with other methods."""
    attributes = {
        "__module__": __name__,
        "__doc__": written_once.__doc__,
        **dict(methods),
    }
    return type(written_once)(written_once.__name__, (written_once,), attributes)
