"""An optimizer of PyTorch's over a replicated network, by PyTorch's own step hooks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch

from deliralike.backends.torch.replicas.network import DataParallelTorchNetwork
from deliralike.errors import OptimizerError


class DataParallelTorchOptimizer(torch.optim.Optimizer):
    """An optimizer of PyTorch's over a replicated network: ``loss.backward()``, then ``step()``.

    When backward ends, the gradients of the whole batch are the module's, to be clipped or logged;
    what is left in replicas is added before each step, and after it the parameters are copied to
    the replicas. This is done by PyTorch's own step hooks, so hooks that are registered later see
    the accumulated gradients. It is a ``torch.optim.Optimizer``: schedulers,
    ``state_dict``, parameter groups and ``zero_grad`` work, and every attribute of the inner
    optimizer can be read and set.

    Better than the original: delira has none for PyTorch, and Chainer's cannot set an attribute of
    the inner optimizer.

    Args:
        optimizer: An optimizer over parameters of the network.
        network: A replicated network; with any other network the inner optimizer works unchanged.

    Example:
        >>> network = DataParallelTorchNetwork(torch.nn.Linear(3, 1), ["cpu", "cpu"])
        >>> optimizer = DataParallelTorchOptimizer(torch.optim.SGD(network.parameters()), network)
        >>> network(torch.ones(4, 3)).sum().backward()
        >>> optimizer.step()
        >>> network.module.bias.grad
        tensor([4.])
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, network: torch.nn.Module
    ) -> None:
        """Register the two hooks."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise OptimizerError(
                f"DataParallelTorchOptimizer wants an optimizer, not {optimizer!r}: give one that "
                "is made, or call from_optimizer_class(cls, network, ...)"
            )
        self.__dict__.update(optimizer=optimizer, network=network)
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(lambda *_: self.copy_parameters())

    @classmethod
    def from_optimizer_class(
        cls,
        optimizer_class: type[torch.optim.Optimizer],
        network: torch.nn.Module,
        *args: Any,
        **kwargs: Any,
    ) -> DataParallelTorchOptimizer:
        """Make an optimizer of a class over ``params``, or all parameters of the network.

        Raises:
            OptimizerError: The first argument is no class of optimizers.
        """
        is_class = isinstance(optimizer_class, type)
        if not is_class or not issubclass(optimizer_class, torch.optim.Optimizer):
            raise OptimizerError(
                f"from_optimizer_class wants a class of torch.optim, not {optimizer_class!r}"
            )
        parameters = kwargs.pop("params", network.parameters())
        return cls(optimizer_class(parameters, *args, **kwargs), network)

    def accumulate(self) -> None:
        """Add gradients that are left in the replicas to the module's, in the order of replicas."""
        if isinstance(self.network, DataParallelTorchNetwork):
            self.network.parallelism.accumulate_gradients(self._owned())

    def copy_parameters(self) -> None:
        """Copy this optimizer's parameters to the replicas."""
        if isinstance(self.network, DataParallelTorchNetwork):
            self.network.copy_parameters(list(self._owned()))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Accumulate gradients, run the user's hooks and the inner step, and copy the parameters.

        Each call of a closure accumulates gradients as well.
        """
        if closure is None:
            return self.optimizer.step()
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of this optimizer's parameters, in every replica."""
        self.optimizer.zero_grad(set_to_none)
        if isinstance(self.network, DataParallelTorchNetwork):
            self.network.parallelism.clear_replica_gradients(self._owned())

    def _before_step(
        self, optimizer: Any, args: tuple, kwargs: dict
    ) -> tuple[tuple, dict] | None:
        # the first of args is the optimizer itself
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self.accumulate()
            return None
        others = {name: value for name, value in kwargs.items() if name != "closure"}
        return (args[0], self._accumulating(closure)), others

    def _accumulating(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            self.copy_parameters()  # a line search has changed those of the module
            loss = closure()
            self.accumulate()
            return loss

        return run

    def _owned(self) -> dict[str, torch.nn.Parameter]:
        """Return the network's parameters that the inner optimizer has, by neutral name."""
        groups = self.optimizer.param_groups
        owned = set(map(id, chain.from_iterable(group["params"] for group in groups)))
        parameters = self.network.root_parameters().items()
        return {name: each for name, each in parameters if id(each) in owned}

    # Attributes of the inner optimizer

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the inner optimizer."""
        if name == "optimizer":
            raise AttributeError(name)  # not unpickled yet
        return getattr(self.optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the inner optimizer, where it has one of that name."""
        own = vars(self)
        inner = own.get("optimizer")
        if (
            inner is not None
            and name not in own
            and name in vars(inner)
            and name != "step"
        ):
            setattr(inner, name, value)
        else:
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Show the inner optimizer in brackets."""
        return f"DataParallelTorchOptimizer({self.optimizer!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return optimizer and network; hooks of an optimizer are not pickled."""
        return {"optimizer": self.optimizer, "network": self.network}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take optimizer and network, and register the hooks again."""
        DataParallelTorchOptimizer.__init__(self, **state)


def _forwarding(name: str) -> Callable[..., Any]:
    def method(self: DataParallelTorchOptimizer, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.optimizer, name)(*args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"Call the inner optimizer's ``{name}``."
    return method


for _name in (
    "state_dict",
    "load_state_dict",
    "add_param_group",
    "register_step_pre_hook",
    "register_step_post_hook",
    "register_state_dict_pre_hook",
    "register_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_load_state_dict_post_hook",
):
    setattr(DataParallelTorchOptimizer, _name, _forwarding(_name))
