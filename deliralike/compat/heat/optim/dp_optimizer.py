"""heat's name for optimizers whose updates follow the mean of the gradients of all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deliralike.errors import ArgumentError, SettingError
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.gradient_averaging import GradientAveragingNetwork


class DataParallelOptimizer:
    """An optimizer whose updates follow the mean of the gradients of all processes.

    It can be used once `DataParallel` has it. Attributes that this class does not have are those of
    the given optimizer.

    Args:
        torch_optimizer: An optimizer of PyTorch, or one of deliralike's over the same network.
        blocking: Whether backward waits for each sum; see `DataParallel`.

    Attributes:
        torch_optimizer: The optimizer that was given.
        blocking_parameter_updates: The same, once `DataParallel` has it.
    """

    def __init__(self, torch_optimizer: Any, blocking: bool = False) -> None:
        if not isinstance(blocking, bool):
            raise ArgumentError(
                f"blocking={blocking!r} is a {type(blocking).__name__}, wanted True or False"
            )
        self.torch_optimizer = torch_optimizer
        self.blocking_parameter_updates = blocking
        self._network: GradientAveragingNetwork | None = None
        self._optimizer: AbstractOptimizer | None = None

    def bind(
        self, network: GradientAveragingNetwork, optimizer: AbstractOptimizer
    ) -> None:
        """Bind the optimizer to a network, whose parameters `step` updates from now on.

        Args:
            optimizer: The abstract optimizer around the given one, which makes the steps.
        """
        self._network = network
        self._optimizer = optimizer
        self.blocking_parameter_updates = network.blocking

    def step(self) -> None:
        """Update the network by the means of the gradients.

        Raises:
            SettingError: There is no network yet.
        """
        network, optimizer = self._bound()
        network.step(optimizer)

    def update(self, loss_function: Callable[..., Any], *batch: Any) -> Any:
        """Make a step with the gradients of ``loss_function(network, *batch)``.

        The gradients are for this process's batch.

        Returns:
            The result of the loss function for this process's batch.
        """
        network, optimizer = self._bound()
        result = network.gradients_of(optimizer, loss_function, batch)
        network.step(optimizer)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients.

        Args:
            set_to_none: Whether they become None, so that a parameter that takes no part afterwards
                is not updated; they become zeros otherwise.
        """
        network, optimizer = self._bound()
        network.clear(optimizer, set_to_none)

    @property
    def param_groups(self) -> Any:
        """The groups of a PyTorch optimizer; changes take effect at the next step."""
        return self.torch_optimizer.param_groups

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the given optimizer."""
        if name.startswith("_") or "torch_optimizer" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.torch_optimizer, name)

    def _bound(self) -> tuple[GradientAveragingNetwork, AbstractOptimizer]:
        if self._network is None or self._optimizer is None:
            raise SettingError(
                "the optimizer has no network yet: DataParallel(module, comm, optimizer)"
            )
        return self._network, self._optimizer
