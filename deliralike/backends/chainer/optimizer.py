"""Optimizer steps on Chainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.members import Members
from deliralike.backends.chainer.update_rules import NeutralOptimizer, NeutralUpdateRule
from deliralike.errors import ArgumentError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import as_loss, no_scalar
from deliralike.optim.optimizer import AbstractOptimizer, refuse_unknown_owners


class Part(chainer.Link):
    """Some parameters of a network as a link, for a Chainer optimizer that must see no others."""

    def __init__(self, parameters: Mapping[str, chainer.Parameter]) -> None:
        super().__init__()
        self._parameters = dict(parameters)

    def params(self, include_uninit: bool = True) -> Iterator[chainer.Parameter]:
        """Return each parameter once."""
        return (parameter for _, parameter in self.namedparams(include_uninit))

    def namedparams(self, include_uninit: bool = True) -> Iterator[tuple[str, chainer.Parameter]]:
        """Return the parameters with their neutral names, written as Chainer's paths."""
        for name, parameter in {
            id(each): (name, each) for name, each in self._parameters.items()
        }.values():
            if include_uninit or parameter.is_initialized:
                yield "/" + name.replace(".", "/"), parameter


class ChainerOptimizer(AbstractOptimizer):
    """A Chainer optimizer behind the neutral interface; `native` is Chainer's own.

    Several may update one network, each with update rules of its own, different parts or the same
    parameters.
    """

    def __init__(
        self, network: AbstractNetwork, native: chainer.Optimizer, pattern: str | None = None
    ) -> None:
        """Wrap a native optimizer; it is set up for its part of the network if it is not yet."""
        super().__init__(network, pattern)
        self.native = native
        self._members = members = Members(network, self.owns)
        places = native.places(members.slots) if isinstance(native, NeutralOptimizer) else {}
        if native.target is None:
            native.setup(network if pattern is None else Part(members.parameters))
        self._rules = {
            name: parameter.update_rule for name, parameter in members.parameters.items()
        }
        for name, place in places.items():
            self._rules[name].hyperparam.place = place
        for slot in members.slots.values():
            if not slot.trainable:
                slot.trainable = False  # which tells the update rule

    def holds(self):
        """Return the parameters of the link for which the native optimizer was set up."""
        names = {
            id(parameter): name for name, parameter in reversed(self._members.parameters.items())
        }
        held = self.native.target.params()
        return [
            names.get(id(parameter), f"a parameter of shape {parameter.shape}")
            for parameter in held
        ]

    def gradients(self, loss_function, *batch):
        """Run forward and backward; previous gradients are dropped first, in every replica."""
        self._members.look()
        self.network.cleargrads()
        with _overflowing() if self.loss_scale else nullcontext():
            result = as_loss(loss_function).forward_backward(self.network, _backward, *batch)
        for inside in self._members.replicated:
            inside.parallelism.accumulate_gradients()
        trainable = (name for name, slot in self._members.slots.items() if slot.trainable)
        return _detached(result), {name: self._members.parameters[name].grad for name in trainable}

    def apply(self, gradients):
        """Make one native step on these gradients."""
        parameters = self._members.parameters
        for name, gradient in gradients.items():
            if parameters[name].grad is not gradient:
                parameters[name].grad = arrays.raw(gradient)
        for name, parameter in parameters.items():
            _attach(parameter, self._rules[name])
        # they are in these gradients: no native hook is to add them again
        self.network.parallelism.clear_replica_gradients()
        unused = [
            parameter.update_rule
            for name, parameter in parameters.items()
            if gradients.get(name) is None
        ]
        with _disabled(
            [rule for rule in unused if rule is not None]
        ):  # Chainer's own rules would go on with zeros
            self.native.update()
        for inside in self._members.replicated:
            inside.copy_parameters()

    def settings(self):
        """Return the hyperparameters and the class of the native optimizer."""
        native = getattr(self.native, "optimizer", self.native)
        held = {
            name: value
            for name, value in native.hyperparam.get_dict().items()
            if name != self._lr_name()
        }
        return {"class": type(native).__name__, **held}

    @property
    def lr(self) -> float:
        """The learning rate; of Chainer's Adam it is called `alpha`."""
        return float(getattr(self.native, self._lr_name()))

    @lr.setter
    def lr(self, value: float) -> None:
        setattr(self.native, self._lr_name(), value)

    def _lr_name(self) -> str:
        if isinstance(getattr(self.native, "optimizer", self.native), chainer.optimizers.Adam):
            return "alpha"
        if not hasattr(self.native, "lr"):
            raise ArgumentError(f"{type(self.native).__name__} has no learning rate")
        return "lr"

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return state arrays as ``"parameter/slot"`` and step counts as ``"parameter/step"``.

        The state of a tied parameter comes under its first name, as its gradient does.
        """
        state = {"steps": np.array(self.steps)}
        self._members.look()
        first = {
            id(parameter): name for name, parameter in reversed(self._members.parameters.items())
        }
        for name in first.values():
            rule = self._rules.get(name)
            if rule is not None and rule.t:
                if not isinstance(rule, NeutralUpdateRule) or rule.rule.counts:
                    state[f"{name}/step"] = np.array(rule.t)
                state |= {
                    f"{name}/{slot}": arrays.numpy(value)
                    for slot, value in (rule.state or {}).items()
                }
        return state

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Load state arrays by name, in each parameter's own type."""
        self._members.look()
        parameters = self._members.parameters
        refuse_unknown_owners(state, parameters)
        self.steps = self.native.t = int(state["steps"])
        for rule in (rule for rule in self._rules.values() if rule is not None):
            rule._state, rule.t = None, 0
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if name:
                _load(parameters[name], self._rules[name], slot, value, self.steps)


def _attach(parameter: chainer.Parameter, rule: chainer.UpdateRule | None) -> None:
    """Let a parameter follow a rule if another optimizer has set another one.

    Whether it is frozen does not change.
    """
    if parameter.update_rule is not rule and rule is not None:
        rule.enabled = (
            rule.enabled if parameter.update_rule is None else parameter.update_rule.enabled
        )
        parameter.update_rule = rule


def _backward(loss: Any) -> None:
    if loss.size != 1:
        raise no_scalar(loss.shape)
    loss.backward()


def _overflowing() -> AbstractContextManager[Any]:
    """Return a context in which NumPy does not warn of infinities: the loss scale finds them."""
    return np.errstate(over="ignore", invalid="ignore")


@contextmanager
def _disabled(update_rules: list[chainer.UpdateRule]) -> Iterator[None]:
    before = [rule.enabled for rule in update_rules]
    for rule in update_rules:
        rule.enabled = False
    try:
        yield
    finally:
        for rule, was_enabled in zip(update_rules, before, strict=True):
            rule.enabled = was_enabled


def _load(parameter: chainer.Parameter, rule: Any, slot: str, value: Any, steps: int) -> None:
    if slot == "step":
        rule.t = int(value)
        return
    rule.t = rule.t or steps
    if rule.state is None:
        rule._init_states(parameter)
    array = arrays.array(np.asarray(value), str(parameter.dtype), str(parameter.device))
    rule.state[slot] = array


def _detached(result: Any) -> Any:
    first = result[0] if isinstance(result, tuple) else result
    first = chainer.as_variable(arrays.raw(first))
    return (first, *result[1:]) if isinstance(result, tuple) else first
