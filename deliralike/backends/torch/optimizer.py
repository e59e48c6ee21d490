"""Optimizer steps on PyTorch, by its own optimizers."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import torch

from deliralike.backends.torch import arrays
from deliralike.backends.torch.network import first_tensor
from deliralike.backends.torch.update_rules import GroupRates
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unreplicated
from deliralike.network.state import Slot
from deliralike.optim.backward_optimizer import BackwardOptimizer, OwnedParameters
from deliralike.optim.loss import as_loss


class TorchOptimizer(BackwardOptimizer):
    """A ``torch.optim.Optimizer``, its attribute `native`, behind the neutral interface."""

    def __init__(
        self,
        network: AbstractNetwork,
        native: torch.optim.Optimizer
        | Callable[[Mapping[str, Slot]], torch.optim.Optimizer],
        pattern: str | None = None,
    ) -> None:
        """Use a native optimizer, or make one from the slots whose names match the pattern.

        Frozen parameters are among the slots: they may be thawed later.
        """
        super().__init__(network, pattern)
        if not isinstance(native, torch.optim.Optimizer):
            native = native(self.owned_slots())
        self.native: torch.optim.Optimizer = native
        self._rates = GroupRates(native)
        self._owned = TorchParameters(network, self.owns)

    def native_parameters(self):
        """Return the parameters in the parameter groups."""
        groups = self.native.param_groups
        return chain.from_iterable(group["params"] for group in groups)

    def forward_backward(self, loss_function, backward, batch):
        """Return the result of a loss function; previous gradients are dropped first."""
        self._owned.refresh()
        parameters = self._owned.parameters
        for parameter in parameters.values():
            # frozen ones too: PyTorch would update them with a gradient that is left over
            parameter.grad = None
        context: AbstractContextManager[None] = nullcontext()
        if self.parallelism.is_replicated:
            context = self.parallelism.gradients_wanted(parameters)
        with context:
            return as_loss(loss_function).forward_backward(
                self.network, backward, *batch
            )

    def update_with(self, gradients):
        """Make the update; gradients that are kept are copies.

        Those of the parameters are what another optimizer's backward pass adds to, in place.
        """
        super().update_with(gradients)
        copies = {}
        for name, gradient in self.latest_gradients.items():
            copies[name] = None if gradient is None else gradient.clone()
        self.latest_gradients = copies

    def apply(self, gradients):
        """Make one native step with these gradients."""
        parameters = self._owned.parameters
        for name, gradient in gradients.items():
            if parameters[name].grad is not gradient:
                parameters[name].grad = gradient
            if gradient is not None and gradient.is_sparse:
                # fused kernels take none: step parameter by parameter from now on
                for group in self.native.param_groups:
                    if group.get("fused"):
                        group["fused"] = False
        self.native.step()

    def settings(self):
        """Return the name of the native class, and the settings of each parameter group."""
        groups = [dict(group) for group in self.native.param_groups]
        for group in groups:
            for name in ("params", "lr", "initial_lr"):
                group.pop(name, None)
        return {"class": type(self.native).__name__, "groups": groups}

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group; others keep their ratios to it."""
        return self._rates.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._rates.lr = value

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return state arrays as ``"parameter/slot"``, each step count as ``"parameter/step"``.

        The state of a tied parameter comes under its first name, as its gradient does.
        """
        state = {"steps": np.array(self.steps)}
        self._owned.refresh()
        for name, parameter in self._owned.parameters.items():
            slots = self.native.state.get(parameter, {})
            if slots.get("step") == 0:
                continue  # Adagrad makes its slots before the first update
            for slot, value in slots.items():
                if value is not None:
                    state[f"{name}/{slot}"] = arrays.numpy(torch.as_tensor(value))
        return state

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Load state arrays by name, each in the type in which the optimizer makes it."""
        self._owned.refresh()
        parameters = self._owned.parameters
        self.refuse_wrong_state(state, parameters)
        self.steps = int(state["steps"])
        for parameter in parameters.values():
            self.native.state.pop(parameter, None)
        groups: dict[int, dict[str, Any]] = {}
        for group in self.native.param_groups:
            groups.update((id(parameter), group) for parameter in group["params"])
        for name, parameter in parameters.items():
            prefix = f"{name}/"
            found = {
                key: value for key, value in state.items() if key.startswith(prefix)
            }
            if found and parameter.element_size() < 4:
                fresh = self._trial_state(parameter)
            else:
                fresh = None
            group = groups.get(id(parameter), {})
            for key, value in found.items():
                slot = key.removeprefix(prefix)
                like = parameter if fresh is None else fresh.get(slot, parameter)
                tensor = _slot_tensor(slot, value, parameter, group, like)
                self.native.state[parameter][slot] = tensor

    def native_state_shapes(self, name):
        """Return the shapes that the optimizer's own update makes."""
        slots = self._trial_state(self._owned.parameters[name])
        if slots is None:
            return None
        return {
            slot: tuple(np.shape(value))
            for slot, value in slots.items()
            if value is not None
        }

    def _trial_state(self, parameter: torch.Tensor) -> dict[str, Any] | None:
        """Return the state that the optimizer's own update makes, of an array without values.

        None where that fails.
        """
        empty = torch.empty_like(parameter, device="meta", requires_grad=True)
        empty.grad = torch.empty_like(empty)
        trial = copy.copy(self.native)
        trial.state = defaultdict(dict)
        for group in self.native.param_groups:
            if any(each is parameter for each in group["params"]):
                trial.param_groups = [{**group, "params": [empty], "capturable": False}]
        try:
            trial.step()
        except Exception:  # noqa: BLE001  # what others' optimizers need for a step is not known
            return None
        return trial.state[empty]


def _slot_tensor(
    slot: str, value: Any, parameter: torch.Tensor, group: Mapping[str, Any], like: Any
) -> torch.Tensor:
    """Return a state array in the type of what the optimizer makes, on its parameter's device.

    PyTorch counts steps on the host unless a kernel reads the count.
    """
    if slot != "step":
        tensor = arrays.like(torch.tensor(value), parameter)
        if isinstance(like, torch.Tensor) and like.dtype != parameter.dtype:
            tensor = torch.tensor(value, dtype=like.dtype, device=parameter.device)
        return tensor
    if group.get("fused") or group.get("capturable"):
        return torch.tensor(float(value), dtype=torch.float32, device=parameter.device)
    return torch.tensor(float(value))


class TorchParameters(OwnedParameters):
    """The parameters of an optimizer on PyTorch, and what a batch is prepared for."""

    def find_blocks(self) -> None:
        """Remember the tables of parameters and children of every module."""
        root: Any = unreplicated(self.network)
        first = first_tensor(root, torch.is_tensor)
        self.first = first if isinstance(first, torch.nn.Parameter) else None
        self._tables: list[dict[str, Any]] = []
        for module in root.modules():
            if not isinstance(
                module, torch.jit.ScriptModule
            ):  # one of those keeps what it has
                self._tables += (module._parameters, module._modules)

    def contents(self) -> tuple[list[int], list[Any]]:
        """Return the sizes of the tables, and the names and objects in them."""
        objects = chain.from_iterable(map(dict.values, self._tables))
        return list(map(len, self._tables)), [
            *chain.from_iterable(self._tables),
            *objects,
        ]

    @property
    def device_name(self) -> str:
        """The device of the network, as of the last `refresh`."""
        if self.first is None:
            return self.network.device_name
        return arrays.name_of_device(self.first.device)
