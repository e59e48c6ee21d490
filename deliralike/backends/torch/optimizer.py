"""Optimizer steps on PyTorch: its own optimizers follow the neutral rules, every number passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deliralike import rules
from deliralike.backends.torch import arrays
from deliralike.errors import ArgumentError
from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer, refuse_unknown_owners


def native_optimizer(rule: rules.Rule, network: AbstractNetwork) -> torch.optim.Optimizer:
    """PyTorch's optimizer for a neutral rule, over every parameter of the network, frozen ones included."""
    parameters = list({id(s.native): s.native for s in network.neutral_slots().values() if s.is_parameter}.values())
    match rule:
        case rules.SGD():
            options: dict[str, Any] = {"momentum": rule.momentum, "dampening": 0.0, "nesterov": rule.nesterov}
            native: Any = torch.optim.SGD
        case rules.Adam():
            options = {"betas": rule.betas, "eps": rule.eps, "amsgrad": False}
            native = torch.optim.AdamW if isinstance(rule, rules.AdamW) else torch.optim.Adam
        case rules.RMSprop():
            options = {"alpha": rule.alpha, "eps": rule.eps, "momentum": rule.momentum, "centered": False}
            native = torch.optim.RMSprop
        case _:
            raise ArgumentError(f"backend 'torch' has no optimizer for {type(rule).__name__}")
    return native(parameters, lr=rule.lr, weight_decay=rule.weight_decay, **options)


class TorchOptimizer(AbstractOptimizer):
    """A ``torch.optim.Optimizer`` behind the neutral interface; `native` is PyTorch's own."""

    def __init__(self, network: AbstractNetwork, native: torch.optim.Optimizer) -> None:
        """Use a native optimizer over parameters of the network."""
        super().__init__(network)
        self.native = native
        self._latest: dict[str, torch.nn.Parameter] = {}  # of the step in progress: looking them up takes its time

    def gradients(self, loss_function, *batch):
        """Forward and backward; gradients of a previous step are dropped first."""
        parameters = self._latest = self._parameters(trainable_only=False)
        for parameter in parameters.values():
            parameter.grad = None  # of frozen ones too, which PyTorch would move by a gradient that is left over
        result = loss_function(self.network, *batch)
        (result[0] if isinstance(result, tuple) else result).backward()
        return _detached(result), {name: p.grad for name, p in parameters.items() if p.requires_grad}

    def apply(self, gradients):
        """One native step on these gradients."""
        parameters = self._latest or self._parameters(trainable_only=False)
        for name, gradient in gradients.items():
            parameters[name].grad = gradient
        self.native.step()
        self._latest = {}

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group; setting it sets all groups."""
        return float(self.native.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.native.param_groups:
            group["lr"] = value

    def neutral_state(self) -> dict[str, np.ndarray]:
        """State arrays as ``"parameter/slot"``, each parameter's own step count as ``"parameter/step"``."""
        state = {"steps": np.array(self.steps)}
        for name, parameter in self._parameters(trainable_only=False).items():
            for slot, value in self.native.state.get(parameter, {}).items():
                if value is not None:
                    state[f"{name}/{slot}"] = arrays.numpy(torch.as_tensor(value))
        return state

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Take over state arrays by name, in each parameter's own type."""
        parameters = self._parameters(trainable_only=False)
        refuse_unknown_owners(state, parameters)
        self.steps = int(state["steps"])
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if name:
                parameter = parameters[name]
                options = {} if slot == "step" else {"dtype": parameter.dtype, "device": parameter.device}
                self.native.state[parameter][slot] = torch.tensor(value, **options).clone()

    def _parameters(self, trainable_only: bool = True) -> dict[str, torch.nn.Parameter]:
        slots = {name: slot for name, slot in self.network.neutral_slots().items() if slot.is_parameter}
        return {name: slot.native for name, slot in slots.items() if slot.trainable or not trainable_only}


def _detached(result: Any) -> Any:
    first = result[0] if isinstance(result, tuple) else result
    return (first.detach(), *result[1:]) if isinstance(result, tuple) else first.detach()
