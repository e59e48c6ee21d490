"""MMEngine's name for a mapping of optimizers, for networks whose parts each have their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    StateError,
    refuse_unknown,
)
from deliralike.optim.optimizer import AbstractOptimizer


class OptimWrapperDict(dict[str, AbstractOptimizer]):
    """Several optimizers by name, as a `Trainer` takes them and a ``train_step`` gets them.

    Args:
        optimizers: The optimizers, by name: ``OptimWrapperDict(generator=..., critic=...)``.

    Raises:
        ArgumentError: A value is no optimizer of deliralike's.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> optimizers = OptimWrapperDict(
        ...     body=net.backend.optimizer(rules.rule("sgd", lr=0.1), net, "layers.0.*"),
        ...     head=net.backend.optimizer(rules.rule("adam", lr=0.02), net, "layers.1.*"),
        ... )
        >>> optimizers.get_lr()
        {'body.lr': [0.1], 'head.lr': [0.02]}
    """

    def __init__(self, **optimizers: AbstractOptimizer) -> None:
        for name, each in optimizers.items():
            if not isinstance(each, AbstractOptimizer):
                raise ArgumentError(
                    f"optimizer {name!r} is a {type(each).__name__}: give one from "
                    "backend.optimizer(rule, network), or backend.wrap_optimizer(optimizer, "
                    "network) around the framework's own"
                )
        super().__init__(optimizers)

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rates by name, as MMEngine has them: ``{"generator.lr": [0.1]}``."""
        return {f"{name}.lr": [each.lr] for name, each in self.items()}

    def state_dict(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the state of each optimizer, in neutral names and layouts."""
        return {name: each.neutral_state() for name, each in self.items()}

    def load_state_dict(self, state: Mapping[str, dict[str, np.ndarray]]) -> None:
        """Load what `state_dict` returned, also on another backend.

        Raises:
            UnknownName: The state has an optimizer that is not here.
            StateError: The state lacks an optimizer, or the state of one does not fit.
        """
        for name in state:
            message = f"the state has an optimizer {name!r}, which is not here"
            refuse_unknown(name, self, message)
        missing = [name for name in self if name not in state]
        if missing:
            raise StateError(
                f"the state lacks the optimizers {', '.join(map(repr, missing))}"
            )
        for name, each in state.items():
            self[name].load_neutral_state(each)

    def update_params(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error, as in MMEngine: each optimizer has a loss of its own."""
        raise CapabilityError(
            "several optimizers have no update together: optimizers['name'].update(loss_function, "
            "*batch) for each"
        )
