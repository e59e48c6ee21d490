"""The neutral update rules on PyTorch: its own optimizers where their formulas are the same, every
number passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar

import torch

from deliralike.backends.torch.arrays import is_spread
from deliralike.errors import ArgumentError
from deliralike.network.state import Slot
from deliralike.optim import rules
from deliralike.optim.groups import Groups, scaled_lr


class NeutralOptimizer(torch.optim.Optimizer):
    """A neutral rule that PyTorch has no optimizer for; each setting may differ between parameter
    groups.

    It is a ``torch.optim.Optimizer``: schedulers, ``state_dict``, hooks and ``copy`` work. The
    state has PyTorch's form, with each parameter's own ``step``. A sparse gradient counts as the
    dense one that it stands for.
    """

    kind: ClassVar[type[rules.Rule]]

    def __init__(self, params: Any, **settings: Any) -> None:
        """Over parameters or groups of them, with the settings of the rule."""
        super().__init__(params, asdict(self.kind(**settings)))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """One update of each parameter that has a gradient; gives what `closure` gave, which is
        called first.
        """
        with torch.enable_grad():
            result = None if closure is None else closure()
        for group in self.param_groups:
            rule = self._rule(group)
            for parameter in (
                parameter for parameter in group["params"] if parameter.grad is not None
            ):
                self._update(parameter, rule)
        return result

    def _rule(self, group: Mapping[str, Any]) -> rules.Rule:
        settings = {field.name: group[field.name] for field in fields(self.kind)}
        return self.kind(**(settings | {"lr": float(group["lr"])}))

    def _update(self, parameter: torch.Tensor, rule: rules.Rule) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state.update({slot: torch.zeros_like(parameter) for slot in rule.slots})
        state["step"] += 1
        value, new = rule.update(
            parameter, parameter.grad, state, rule.scalars(int(state["step"])), torch
        )
        parameter.copy_(value)
        state.update(new)


class Lion(NeutralOptimizer):
    """`deliralike.optim.rules.Lion` as an optimizer of PyTorch's."""

    kind = rules.Lion


class LAMB(NeutralOptimizer):
    """`deliralike.optim.rules.LAMB` as an optimizer of PyTorch's."""

    kind = rules.LAMB


_KINDS: dict[type[rules.Rule], type[torch.optim.Optimizer]] = {
    rules.SGD: torch.optim.SGD,
    rules.Adam: torch.optim.Adam,
    rules.AMSGrad: torch.optim.Adam,
    rules.AdamW: torch.optim.AdamW,
    rules.RMSprop: torch.optim.RMSprop,
    rules.Adagrad: torch.optim.Adagrad,
    rules.Adadelta: torch.optim.Adadelta,
    rules.Lion: Lion,
    rules.LAMB: LAMB,
}
_FIXED: dict[type[torch.optim.Optimizer], dict[str, Any]] = {
    torch.optim.SGD: {"dampening": 0.0},
    torch.optim.RMSprop: {"centered": False},
    torch.optim.Adagrad: {"lr_decay": 0.0, "initial_accumulator_value": 0.0},
}

_FUSED = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
)  # one kernel for all parameters, half the time or less


def native_optimizer(groups: Groups, slots: Mapping[str, Slot]) -> torch.optim.Optimizer:
    """PyTorch's optimizer for neutral rules; the first parameter group is that of the rule itself.

    Raises:
        ArgumentError: There is none for a rule of this class.
        UnknownName: A group's pattern matches no parameter.
    """
    kind = _KINDS.get(type(groups.rules[0]))
    if kind is None:
        raise ArgumentError(
            f"backend 'torch' has no optimizer for {type(groups.rules[0]).__name__}"
        )
    members: list[dict[int, torch.Tensor]] = [{} for _ in groups.rules]
    for name, place in groups.assigned(slots).items():
        members[place][id(slots[name].native)] = slots[name].native
    pairs = zip(groups.rules, members, strict=True)
    made: Any = kind
    fusible = all(
        p.is_floating_point() and not is_spread(p) for own in members for p in own.values()
    )
    fused = {"fused": True} if kind in _FUSED and fusible else {}
    return made(
        [{"params": list(own.values())} | asdict(rule) for rule, own in pairs],
        **asdict(groups.rules[0]),
        **_FIXED.get(kind, {}),
        **fused,
    )


class GroupRates:
    """The learning rates of an optimizer's parameter groups, which keep the ratios that they were
    found with.
    """

    def __init__(self, native: torch.optim.Optimizer) -> None:
        """Look at the groups there are."""
        self.native = native
        self._found: list[tuple[float, float]] = []
        if "lr" in native.param_groups[0]:
            self._look()

    @property
    def lr(self) -> float:
        """That of the first group.

        Raises:
            ArgumentError: The optimizer has none.
        """
        if "lr" not in self.native.param_groups[0]:
            raise ArgumentError(f"{type(self.native).__name__} has no learning rate")
        return float(self.native.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        self._look()
        rates = [scaled_lr(own, first, value) for own, first in self._found]
        for group, rate in zip(self.native.param_groups, rates, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)  # a compiled step reads it there
            else:
                group["lr"] = rate

    def _look(self) -> None:
        """Remember groups that are new, each beside what the first one has by then."""
        first = self.lr
        for group in self.native.param_groups[len(self._found) :]:
            self._found.append((float(group["lr"]), first))
