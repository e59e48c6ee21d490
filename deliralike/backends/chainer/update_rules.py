"""The neutral update rules on Chainer, as update rules of Chainer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import chainer
from deliralike.network.state import Slot
from deliralike.optim import rules
from deliralike.optim.groups import Groups

# elements that are updated at once on the host: a few arrays of so many fit into the cache
_PIECE = 1 << 15


class NeutralUpdateRule(chainer.UpdateRule):
    """One parameter's update by a neutral rule; `t` counts the parameter's own updates."""

    @property
    def is_elementwise(self) -> bool:
        """Whether arrays may have a layout of Chainer's, on which norms do not depend."""
        return self.rule.any_layout

    @property
    def rule(self) -> rules.Rule:
        """The rule of this parameter's group with the present learning rate."""
        return self.hyperparam.groups.rules[self.hyperparam.group]

    def init_state(self, param: chainer.Parameter) -> None:
        """Set each slot of the rule to zeros."""
        p, xp = param.array, param.device.xp
        for name, shape in self.rule.state_shapes(p.shape).items():
            self.state[name] = xp.zeros(shape, p.dtype)

    def update(self, param: chainer.Parameter) -> None:
        """Update a parameter with a gradient; without one its state and count stay too."""
        if param.grad is not None:
            super().update(param)

    def update_core(self, param: chainer.Parameter) -> None:
        """Make one step of the rule."""
        rule = self.rule
        scalars = rule.scalars(self.t)
        p, xp = param.array, param.device.xp
        slots = [self.state[name] for name in rule.state_shapes(p.shape)]
        are_flat = all(array.flags.c_contiguous for array in (p, *slots))
        if xp is np and p.size > _PIECE and are_flat and type(rule) in rules.BY_ELEMENT:
            _update_in_pieces(rule, p, param.grad, self.state, scalars)
            return
        value, state = rule.update(p, param.grad, self.state, scalars, xp)
        p[...] = value
        self.state.update(state)


def _update_in_pieces(
    rule: rules.Rule, p: Any, g: Any, state: Any, scalars: Any
) -> None:
    """Update a parameter and its state in place, one piece after the other.

    The arrays between the statements of a rule then stay in the processor's cache.
    """
    p, g = p.reshape(-1), g.reshape(-1)
    slots = {name: state[name].reshape(-1) for name in rule.slots}
    for start in range(0, p.size, _PIECE):
        piece = slice(start, start + _PIECE)
        of_piece = {name: array[piece] for name, array in slots.items()}
        p[piece], new = rule.update(p[piece], g[piece], of_piece, scalars, np)
        for name in slots:
            slots[name][piece] = new[name]


class NeutralOptimizer(chainer.optimizer.GradientMethod):
    """A Chainer optimizer that follows neutral rules and skips parameters without gradient.

    It works with Chainer's updaters and extensions. A parameter's group is the number ``group`` in
    the hyperparameters of its update rule.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self.hyperparam.groups = groups
        self.hyperparam.group = 0

    def group_numbers(self, slots: Mapping[str, Slot]) -> dict[str, int]:
        """Return the group numbers of parameters, by name."""
        return self.hyperparam.groups.indices(slots)

    @property
    def lr(self) -> float:
        """The learning rate of the next update; setting it keeps the ratios of the groups."""
        return self.hyperparam.groups.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.hyperparam.groups = self.hyperparam.groups.with_lr(value)

    def create_update_rule(self) -> NeutralUpdateRule:
        """Return an update rule for one parameter that reads this optimizer's hyperparameters."""
        return NeutralUpdateRule(self.hyperparam)

    def reallocate_cleared_grads(self) -> None:
        """Leave missing gradients missing; zeros in their place would decay the weights."""
