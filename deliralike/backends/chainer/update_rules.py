"""The neutral update rules on Chainer, as update rules of Chainer's."""

from __future__ import annotations

from deliralike.backends.chainer.arrays import chainer
from deliralike.optim import rules
from deliralike.optim.groups import Groups


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
        value, state = rule.update(p, param.grad, self.state, scalars, xp)
        p[...] = value
        self.state.update(state)


class NeutralOptimizer(chainer.optimizer.GradientMethod):
    """A Chainer optimizer that follows neutral rules and skips parameters without gradient.

    It works with Chainer's updaters and extensions. A parameter's group is the number ``group`` in
    the hyperparameters of its update rule.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self.hyperparam.groups = groups
        self.hyperparam.group = 0

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
