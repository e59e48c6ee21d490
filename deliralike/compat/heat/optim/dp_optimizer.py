"""heat's name for optimizers whose updates follow the mean of the gradients of all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deliralike.errors import ArgumentError, SettingError
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.layerwise import LayerwiseNetwork


class DataParallelOptimizer:
    """An optimizer whose updates follow the mean of the gradients of all processes.

    It can be used once `DataParallel` has it. Attributes that this class does not have are those of
    the given optimizer.

    Args:
        torch_optimizer: An optimizer of PyTorch, Chainer or optax, or one of deliralike's over the
            same network.
        blocking: Whether each update is made in `step`; `DataParallel` may require it, too.

    Attributes:
        torch_optimizer: The optimizer that was given.
        blocking_parameter_updates: Whether each update is made in `step`, as `DataParallel` has
            decided.
    """

    def __init__(self, torch_optimizer: Any, blocking: bool = False) -> None:
        if not isinstance(blocking, bool):
            raise ArgumentError(
                f"blocking={blocking!r} is a {type(blocking).__name__}, wanted True or False"
            )
        self.torch_optimizer = torch_optimizer
        self.blocking_parameter_updates = blocking
        self._network: LayerwiseNetwork | None = None
        self._optimizer: AbstractOptimizer | None = None

    def bind(self, network: LayerwiseNetwork, optimizer: AbstractOptimizer) -> None:
        """Bind the optimizer to a network, whose parameters `step` updates from now on.

        Args:
            optimizer: The abstract optimizer around the given one, which makes the steps.
        """
        self._network = network
        self._optimizer = optimizer
        self.blocking_parameter_updates = network.blocking
        network.bind(optimizer)

    def step(self) -> None:
        """Update the network, or record the update with the present settings if it is not blocking.

        Raises:
            SettingError: There is no network yet.
        """
        network, optimizer = self._bound()
        network.step(optimizer)

    def update(self, loss_function: Callable[..., Any], *batch: Any) -> Any:
        """Make a step with the gradients of ``loss_function(network, *batch)``.

        The gradients are for this process's batch. This works on any backend.

        Returns:
            The result of the loss function for this process's batch.
        """
        network, optimizer = self._bound()
        result = network.gradients_of(optimizer, loss_function, batch)
        network.step(optimizer)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; a pending update keeps its own.

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
        """Return an attribute of the given optimizer, after any pending update."""
        if name.startswith("_") or "torch_optimizer" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if self._network is not None:
            self._network.finish()
        return getattr(self.torch_optimizer, name)

    def _bound(self) -> tuple[LayerwiseNetwork, AbstractOptimizer]:
        if self._network is None or self._optimizer is None:
            raise SettingError(
                "the optimizer has no network yet: DataParallel(module, comm, optimizer)"
            )
        return self._network, self._optimizer
