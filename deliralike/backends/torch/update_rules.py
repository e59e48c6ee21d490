"""The neutral update rules on PyTorch: by its own optimizers where their formulas are the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar

import torch

from deliralike.backends.torch.arrays import is_distributed
from deliralike.errors import ArgumentError
from deliralike.network.state import Slot
from deliralike.optim import rules
from deliralike.optim.groups import Groups, scaled_lr


class NeutralOptimizer(torch.optim.Optimizer):
    """A neutral rule for which PyTorch has no optimizer, as one of PyTorch's.

    Schedulers, ``state_dict``, hooks and ``copy`` work, and each setting may differ between
    parameter groups. The state has PyTorch's form, with each parameter's own ``step``. A sparse
    gradient counts as the dense one that it stands for.
    """

    kind: ClassVar[type[rules.Rule]]

    def __init__(self, params: Any, **settings: Any) -> None:
        """Take parameters, or groups of them, and the settings of the rule."""
        super().__init__(params, asdict(self.kind(**settings)))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Call `closure`, update all parameters that have gradients, return the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            rule = self._rule(group)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, rule)
        return loss

    def _rule(self, group: Mapping[str, Any]) -> rules.Rule:
        settings = {field.name: group[field.name] for field in fields(self.kind)}
        return self.kind(**(settings | {"lr": float(group["lr"])}))

    def _update(self, parameter: torch.Tensor, rule: rules.Rule) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for slot, shape in rule.state_shapes(parameter.shape).items():
                state[slot] = _zeros(parameter, shape)
        state["step"] += 1
        scalars = rule.scalars(int(state["step"]))
        value, new_state = rule.update(parameter, parameter.grad, state, scalars, torch)
        if is_distributed(
            parameter
        ):  # products of matrices have placements of their own
            value = value.redistribute(placements=parameter.placements)
        parameter.copy_(value)
        state.update(new_state)


def _zeros(parameter: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return zeros of a shape; those of the parameter's shape are distributed as it is."""
    if shape == parameter.shape:
        return torch.zeros_like(parameter)
    return parameter.new_zeros(shape)


class SGD(torch.optim.SGD):
    """PyTorch's, whose fused form takes a parameter's first gradient after those of others, too.

    PyTorch's own stops at its missing velocity (2.13).
    """

    def _init_group(self, group, params, grads, momentum_buffer_list):
        has_sparse = super()._init_group(group, params, grads, momentum_buffer_list)
        missing = [
            at for at, velocity in enumerate(momentum_buffer_list) if velocity is None
        ]
        if group["fused"] and len(missing) < len(params):
            for at in missing:
                momentum_buffer_list[at] = torch.zeros_like(params[at])
        return has_sparse


class Lion(NeutralOptimizer):
    """`deliralike.optim.rules.Lion` as a ``torch.optim.Optimizer``."""

    kind = rules.Lion


class LAMB(NeutralOptimizer):
    """`deliralike.optim.rules.LAMB` as a ``torch.optim.Optimizer``."""

    kind = rules.LAMB


class Adafactor(NeutralOptimizer):
    """`deliralike.optim.rules.Adafactor` as a ``torch.optim.Optimizer``.

    PyTorch's own fails on parameters that are sharded over processes (2.13: in-place powers of
    ``DTensor``).
    """

    kind = rules.Adafactor


class Muon(NeutralOptimizer):
    """`deliralike.optim.rules.Muon` as a ``torch.optim.Optimizer``.

    PyTorch's own takes matrices alone, and iterates in bfloat16.
    """

    kind = rules.Muon


_KINDS: dict[type[rules.Rule], type[torch.optim.Optimizer]] = {
    rules.SGD: SGD,
    rules.Adam: torch.optim.Adam,
    rules.AMSGrad: torch.optim.Adam,
    rules.AdamW: torch.optim.AdamW,
    rules.RMSprop: torch.optim.RMSprop,
    rules.Adagrad: torch.optim.Adagrad,
    rules.Adadelta: torch.optim.Adadelta,
    rules.Lion: Lion,
    rules.LAMB: LAMB,
    rules.RAdam: torch.optim.RAdam,
    rules.Adafactor: torch.optim.Adafactor,
    rules.Muon: Muon,
}
# one kernel for all parameters takes half the time or less
_FUSED = (SGD, torch.optim.Adam, torch.optim.AdamW)


def native_optimizer(
    groups: Groups, slots: Mapping[str, Slot]
) -> torch.optim.Optimizer:
    """Make PyTorch's optimizer for neutral rules; its first parameter group has the first rule.

    Raises:
        ArgumentError: PyTorch has no optimizer for a rule of this class.
        UnknownName: A group's pattern matches no parameter.
    """
    first_rule = groups.rules[0]
    kind: Any = _KINDS.get(type(first_rule))
    if kind is None:
        raise ArgumentError(
            f"backend 'torch' has no optimizer for {type(first_rule).__name__}"
        )
    members: list[dict[int, torch.Tensor]] = [{} for _ in groups.rules]
    for name, index in groups.indices(slots).items():
        parameter = slots[name].native
        members[index][id(parameter)] = parameter  # a tied one once
    owned = [parameter for group in members for parameter in group.values()]
    if kind is torch.optim.Adafactor and any(map(is_distributed, owned)):
        kind = Adafactor
    param_groups = []
    for rule, parameters in zip(groups.rules, members, strict=True):
        param_groups.append({"params": list(parameters.values())} | asdict(rule))
    settings = asdict(first_rule)
    if kind in _FUSED and all(map(_is_fusible, param_groups)):
        settings["fused"] = True
    return kind(param_groups, **settings)


def _is_fusible(group: Mapping[str, Any]) -> bool:
    if group.get("dampening"):  # a velocity that starts late would start dampened
        return False
    for p in group["params"]:
        # PyTorch 2.13's SGD leaves most elements of short floating types as they are on a CPU
        is_short = p.is_cpu and p.dtype.itemsize < 4 and "momentum" in group
        if is_short or not p.is_floating_point() or is_distributed(p):
            return False
    return True


class GroupRates:
    """The learning rates of an optimizer's parameter groups, whose ratios stay."""

    def __init__(self, native: torch.optim.Optimizer) -> None:
        """Remember the ratios of the present groups."""
        self.native = native
        # of each group: its rate, and the rate of the first group at that time
        self._remembered: list[tuple[float, float]] = []
        if "lr" in native.param_groups[0]:
            self._remember_new_groups()

    @property
    def lr(self) -> float:
        """The learning rate of the first group.

        Raises:
            ArgumentError: The optimizer has no learning rate.
        """
        if "lr" not in self.native.param_groups[0]:
            raise ArgumentError(f"{type(self.native).__name__} has no learning rate")
        return float(self.native.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        self._remember_new_groups()
        rates = [scaled_lr(own, first, value) for own, first in self._remembered]
        for group, rate in zip(self.native.param_groups, rates, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)  # a compiled step reads it there
            else:
                group["lr"] = rate

    def _remember_new_groups(self) -> None:
        first = self.lr
        for group in self.native.param_groups[len(self._remembered) :]:
            self._remembered.append((float(group["lr"]), first))
