"""An optimizer of PyTorch's over a replicated network, on PyTorch's own step hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deliralike.backends.torch.replicas.network import DataParallelTorchNetwork
from deliralike.errors import OptimizerError


class DataParallelTorchOptimizer(torch.optim.Optimizer):
    """Any optimizer of PyTorch's over a replicated network: ``loss.backward()``, then
    ``optimizer.step()``.

    Before each step the replicas' gradients are added to the module's, after it the parameters are
    copied to the replicas: PyTorch's own step hooks, so hooks that are registered later see the
    accumulated gradients. It is a ``torch.optim.Optimizer``: schedulers, ``state_dict``, parameter
    groups and ``zero_grad`` work, and every attribute of the inner optimizer can be read and set.

    Better than the original: there was none for PyTorch; Chainer's could not set an attribute of
    the inner one. Whoever wants the accumulated gradients before `step`, to clip or unscale them,
    calls `accumulate` first.

    Args:
        optimizer: Over parameters of the network.
        network: A replicated network; for any other one the optimizer is as it was.

    Example:
        >>> network = DataParallelTorchNetwork(torch.nn.Linear(3, 1), ["cpu", "cpu"])
        >>> optimizer = DataParallelTorchOptimizer.from_optimizer_class(torch.optim.SGD, network, lr=0.1)
        >>> network(torch.ones(4, 3)).sum().backward()
        >>> optimizer.step()
        >>> network.module.bias.grad
        tensor([4.])
    """

    def __init__(self, optimizer: torch.optim.Optimizer, network: torch.nn.Module) -> None:
        """Register the two hooks."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise OptimizerError(
                f"DataParallelTorchOptimizer wants an optimizer, not {optimizer!r}: give one that "
                "is made, or call from_optimizer_class(cls, network, ...)"
            )
        vars(self).update(optimizer=optimizer, network=network)
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
        """One of a class of PyTorch's over all parameters of the network, or over ``params``.

        Raises:
            OptimizerError: It is no class of optimizers.
        """
        if not (
            isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer)
        ):
            raise OptimizerError(
                f"from_optimizer_class wants a class of torch.optim, not {optimizer_class!r}"
            )
        return cls(
            optimizer_class(kwargs.pop("params", network.parameters()), *args, **kwargs), network
        )

    def accumulate(self) -> None:
        """Add the replicas' gradients to the module's, in the order of replicas, and clear them
        there.
        """
        if not isinstance(self.network, DataParallelTorchNetwork):
            return
        parameters, owned = self.network.own_parameters(), self._owned()
        for gradients in self.network.parallelism.replica_gradients(owned):
            for name, gradient in gradients.items():
                if gradient is not None:
                    parameter = parameters[name]
                    parameter.grad = self.network.backend.add(
                        parameter.grad, gradient, str(parameter.device)
                    )

    def copy_parameters(self) -> None:
        """Copy this optimizer's parameters to the replicas."""
        if isinstance(self.network, DataParallelTorchNetwork):
            self.network.copy_parameters(self._owned())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Accumulate, the user's hooks, the inner step, copy; each call of a closure is accumulated
        as well.
        """
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of this optimizer's parameters, in every replica."""
        self.optimizer.zero_grad(set_to_none)
        for parameter in (
            self._parameters() if isinstance(self.network, DataParallelTorchNetwork) else ()
        ):
            for copy in self.network.parallelism.copies_of(parameter):
                copy.grad = None

    def _before_step(self, optimizer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        closure = (
            args[1] if len(args) > 1 else kwargs.get("closure")
        )  # the first is the optimizer itself
        if closure is None:
            self.accumulate()
            return None
        return (args[0], self._accumulated(closure)), {
            k: v for k, v in kwargs.items() if k != "closure"
        }

    def _accumulated(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            self.copy_parameters()  # a line search has moved the module's
            loss = closure()
            self.accumulate()
            return loss

        return run

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _owned(self) -> list[str]:
        mine = {id(parameter) for parameter in self._parameters()}
        return [
            name
            for name, parameter in self.network.own_parameters().items()
            if id(parameter) in mine
        ]

    # What the inner optimizer has
    # ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """The inner optimizer's."""
        if name == "optimizer":
            raise AttributeError(name)  # not unpickled yet
        return getattr(self.optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the inner optimizer's, where it has one of that name."""
        inner = vars(self).get("optimizer")
        if inner is not None and name not in vars(self) and name in vars(inner) and name != "step":
            setattr(inner, name, value)
        else:
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """The inner one in brackets."""
        return f"DataParallelTorchOptimizer({self.optimizer!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Both parts; hooks of an optimizer are not pickled."""
        return {"optimizer": self.optimizer, "network": self.network}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Register the hooks anew."""
        DataParallelTorchOptimizer.__init__(self, **state)


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: DataParallelTorchOptimizer, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.optimizer, name)(*args, **kwargs)

    method.__name__, method.__doc__ = name, f"The inner optimizer's ``{name}``."
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
    setattr(DataParallelTorchOptimizer, _name, _forwarded(_name))
