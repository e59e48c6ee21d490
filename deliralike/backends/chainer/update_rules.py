"""The neutral update rules on Chainer: an update rule of its own that follows them."""

from __future__ import annotations

from typing import Any

from deliralike import rules
from deliralike.backends.chainer.arrays import chainer


class NeutralUpdateRule(chainer.UpdateRule):
    """One parameter's update by a neutral rule; `t` counts the parameter's own updates."""

    is_elementwise = True

    def __init__(self, hyperparam: Any) -> None:
        super().__init__(hyperparam)

    def init_state(self, param: chainer.Parameter) -> None:
        """Zeros for each slot of the rule."""
        for name in _slots(self.hyperparam.rule):
            self.state[name] = param.device.xp.zeros_like(param.array)

    def update(self, param: chainer.Parameter) -> None:
        """Update unless the parameter took no part: then state and count stay too."""
        if param.grad is not None:
            super().update(param)

    def update_core(self, param: chainer.Parameter) -> None:
        """One step of the rule."""
        rule = self.hyperparam.rule
        value, state = rule.update(param.array, param.grad, self.state, rule.scalars(self.t), self.t == 1)
        param.array[...] = value
        self.state.update(state)


def _slots(rule: rules.Rule) -> tuple[str, ...]:
    """The slots that are used: plain descent needs none."""
    return () if isinstance(rule, rules.SGD) and not rule.momentum else rule.slots


class NeutralOptimizer(chainer.optimizer.GradientMethod):
    """A Chainer optimizer, for updaters and all, that follows a neutral rule and skips parameters without gradient."""

    def __init__(self, rule: rules.Rule) -> None:
        super().__init__()
        self.hyperparam.rule = rule

    @property
    def lr(self) -> float:
        """The learning rate of the next update; may be set."""
        return self.hyperparam.rule.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self.hyperparam.rule = self.hyperparam.rule.with_lr(value)

    def create_update_rule(self) -> NeutralUpdateRule:
        """A rule for one parameter that looks up the numbers here."""
        return NeutralUpdateRule(self.hyperparam)

    def reallocate_cleared_grads(self) -> None:
        """Leave missing gradients missing; zeros in their place would decay the weights."""
