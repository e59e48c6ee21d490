"""One optimizer step, stated as a function: gradients, pre-update hooks, update, post-update hooks, in that order."""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike.errors import StateError, UnknownName, suggestion

if TYPE_CHECKING:
    from deliralike.network import AbstractNetwork

LossFunction = Callable[..., Any]
PreUpdateHook = Callable[["AbstractOptimizer", dict[str, Any]], dict[str, Any]]
PostUpdateHook = Callable[["AbstractOptimizer"], None]


class AbstractOptimizer(ABC):
    """The interface of an optimizer on any backend.

    Attributes:
        network: The network whose trainable parameters it updates.
        pattern: Which of them: those whose neutral names match; all when None.
        updated: The parameters that the last update changed.
        steps: The number of finished updates.
        pre_update_hooks: Called in order with the optimizer and the gradients (native arrays by neutral name, None
            for a parameter that took no part); each returns the gradients to go on with. On JAX they are compiled
            into the step of a plain network, and called as they are over a replicated one.
        post_update_hooks: Called in order with the optimizer, after the parameters have changed; one with an attribute
            ``runs_last`` that is true comes after the others.

    Over a replicated network the first pre-update hook accumulates the replicas' gradients, so that hooks added later
    see the whole gradient, and a post-update hook that runs last copies the parameters to the replicas.
    """

    def __init__(self, network: AbstractNetwork, pattern: str | None = None) -> None:
        """Remember the network; nothing of it changes.

        Raises:
            UnknownName: No parameter matches the pattern.
        """
        self.network = network
        self.pattern = pattern
        self.updated: tuple[str, ...] = ()
        self.steps = 0
        self.pre_update_hooks: list[PreUpdateHook]
        self.post_update_hooks: list[PostUpdateHook]
        self.pre_update_hooks, self.post_update_hooks = network.update_hooks()
        self._refuse_empty_pattern()

    def owns(self, name: str) -> bool:
        """Whether a parameter is one of this optimizer's."""
        return self.pattern is None or fnmatch.fnmatchcase(name, self.pattern)

    def _refuse_empty_pattern(self) -> None:
        if self.pattern is None:
            return
        names = [name for name, slot in self.network.neutral_slots().items() if slot.is_parameter]
        if not any(map(self.owns, names)):
            raise UnknownName(f"no parameter matches {self.pattern!r}. {suggestion(self.pattern, names)}")

    def update(self, loss_function: LossFunction, *batch: Any) -> Any:
        """One step on ``loss_function(network, *batch)``; returns the loss (or what the function returned).

        Args:
            loss_function: Returns a scalar, or a tuple of the scalar and anything else to be handed back.
            batch: NumPy or native arrays in any nest; they go to the network's device, floating ones in its type.
        """
        result, gradients = self.gradients(loss_function, *self.network.backend.prepare(batch, self.network))
        for pre_update in self.pre_update_hooks:
            gradients = pre_update(self, gradients)
        self.apply(gradients)
        self.finish_update(name for name, gradient in gradients.items() if gradient is not None)
        return result

    def finish_update(self, updated: Iterable[str]) -> None:
        """Count the update that was made of these parameters, and call the post-update hooks."""
        self.steps += 1
        self.updated = tuple(updated)
        for post_update in sorted(self.post_update_hooks, key=_runs_last):
            post_update(self)

    @abstractmethod
    def gradients(self, loss_function: LossFunction, *batch: Any) -> tuple[Any, dict[str, Any]]:
        """What the loss function returned, and the gradient of each trainable parameter by neutral name."""

    @abstractmethod
    def apply(self, gradients: dict[str, Any]) -> None:
        """Update the parameters; one whose gradient is None is left alone, its state too."""

    @property
    @abstractmethod
    def lr(self) -> float:
        """The learning rate of the next update; may be set."""

    @lr.setter
    @abstractmethod
    def lr(self, value: float) -> None: ...

    @abstractmethod
    def neutral_state(self) -> dict[str, np.ndarray]:
        """The optimizer's state as NumPy arrays named ``"parameter/slot"``, with ``"steps"``."""

    @abstractmethod
    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `neutral_state` gave, also from another backend."""


def _runs_last(hook: PostUpdateHook) -> bool:
    return getattr(hook, "runs_last", False)


def refuse_unknown_owners(state: Mapping[str, Any], owners: Container[str]) -> None:
    """An error when a state, named ``"parameter/slot"``, belongs to parameters that the network lacks.

    Raises:
        StateError: Names those parameters; nothing has been changed.
    """
    unknown = sorted({key.rpartition("/")[0] for key in state if key != "steps"} - {""})
    if unknown := [name for name in unknown if name not in owners]:
        raise StateError(f"the optimizer's state names parameters that the network lacks: {', '.join(unknown)}")
