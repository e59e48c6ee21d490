"""Optimizer steps on PyTorch: its own optimizers follow the neutral rules, every number passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.members import Members
from deliralike.backends.torch.update_rules import GroupRates
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot
from deliralike.optim.loss import LossResult, as_loss, no_scalar
from deliralike.optim.optimizer import AbstractOptimizer, refuse_unknown_owners


class TorchOptimizer(AbstractOptimizer):
    """A ``torch.optim.Optimizer`` behind the neutral interface; `native` is PyTorch's own."""

    def __init__(
        self,
        network: AbstractNetwork,
        native: torch.optim.Optimizer | Callable[[Mapping[str, Slot]], torch.optim.Optimizer],
        pattern: str | None = None,
    ) -> None:
        """Use a native optimizer over parameters of the network, or one made from the slots that
        match the pattern.

        Frozen parameters are among them: they may be thawed later.
        """
        super().__init__(network, pattern)
        made = isinstance(native, torch.optim.Optimizer)
        self.native: torch.optim.Optimizer = native if made else native(self._slots())
        self._rates = GroupRates(self.native)
        self._members = Members(network, self.owns)

    def holds(self):
        """Those in its parameter groups."""
        names = {
            id(parameter): name for name, parameter in reversed(self._members.parameters.items())
        }
        held = [parameter for group in self.native.param_groups for parameter in group["params"]]
        return [
            names.get(id(parameter), f"a parameter of shape {tuple(parameter.shape)}")
            for parameter in held
        ]

    def gradients(self, loss_function, *batch):
        """Forward and backward; gradients of a previous step are dropped first. A tied one comes
        under its first name.

        A loss in replicas runs backward in each replica's thread.
        """
        self._members.look()
        parameters, parallelism = self._members.each_once, self.network.parallelism
        for parameter in parameters.values():
            parameter.grad = (
                None  # of frozen ones too, which PyTorch would move by a gradient that is left over
            )
            for copy in parallelism.copies_of(parameter):
                copy.grad = None
        with parallelism.gradients_wanted(parameters):
            result = as_loss(loss_function).forward_backward(self.network, _backward, *batch)
        return _detached(result), {
            name: p.grad for name, p in parameters.items() if p.requires_grad
        }

    def apply(self, gradients):
        """One native step on these gradients."""
        parameters = self._members.parameters
        for name, gradient in gradients.items():
            if parameters[name].grad is not gradient:
                parameters[name].grad = gradient
            if gradient is not None and gradient.is_sparse:
                self._leave_fused_kernels()
        self.native.step()

    def _leave_fused_kernels(self) -> None:
        """Step parameter by parameter from now on: fused kernels take no sparse gradients."""
        for group in (group for group in self.native.param_groups if group.get("fused")):
            group["fused"] = False

    def settings(self):
        """Those of each parameter group, and the class."""
        apart = ("params", "lr", "initial_lr")
        groups = [
            {key: each for key, each in group.items() if key not in apart}
            for group in self.native.param_groups
        ]
        return {"class": type(self.native).__name__, "groups": groups}

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group; when it is set, the others keep their
        ratios to it.
        """
        return self._rates.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._rates.lr = value

    def neutral_state(self) -> dict[str, np.ndarray]:
        """State arrays as ``"parameter/slot"``, each parameter's own step count as
        ``"parameter/step"``.

        That of a tied parameter comes under its first name, as its gradient does.
        """
        state = {"steps": np.array(self.steps)}
        self._members.look()
        for name, parameter in self._members.each_once.items():
            held = self.native.state.get(parameter, {})
            for slot, value in (
                held.items() if held.get("step") != 0 else ()
            ):  # Adagrad's are made before any update
                if value is not None:
                    state[f"{name}/{slot}"] = arrays.numpy(torch.as_tensor(value))
        return state

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Take over state arrays by name, in each parameter's own type."""
        self._members.look()
        parameters = self._members.parameters
        refuse_unknown_owners(state, parameters)
        self.steps = int(state["steps"])
        for parameter in parameters.values():
            self.native.state.pop(parameter, None)
        groups = {id(p): group for group in self.native.param_groups for p in group["params"]}
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if name:
                parameter = parameters[name]
                self.native.state[parameter][slot] = _loaded(
                    slot, value, parameter, groups.get(id(parameter), {})
                )

    def _slots(self) -> dict[str, Slot]:
        slots = self.network.neutral_slots().items()
        return {name: slot for name, slot in slots if slot.is_parameter and self.owns(name)}


def _backward(loss: torch.Tensor) -> None:
    if loss.numel() != 1:
        raise no_scalar(loss.shape)
    loss.backward()


def _loaded(
    slot: str, value: Any, parameter: torch.Tensor, group: Mapping[str, Any]
) -> torch.Tensor:
    """A state array in its parameter's type and place; PyTorch counts steps on the host unless a
    kernel reads them.
    """
    if slot == "step":
        by_kernel = group.get("fused") or group.get("capturable")
        place: dict[str, Any] = (
            {"dtype": torch.float32, "device": parameter.device} if by_kernel else {}
        )
        return torch.tensor(float(value), **place)
    return arrays.like(torch.tensor(value), parameter)


def _detached(result: Any) -> Any:
    parts = LossResult.of(result)
    return parts.with_value(parts.value.detach()).returned
