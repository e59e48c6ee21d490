"""Optimizer steps on Chainer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.replicas.network import (
    DataParallelChainerNetwork,
    replicated_networks,
)
from deliralike.backends.chainer.update_rules import NeutralOptimizer, NeutralUpdateRule
from deliralike.errors import ArgumentError
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unreplicated, unwrap
from deliralike.network.state import first_names
from deliralike.optim.backward_optimizer import BackwardOptimizer, OwnedParameters
from deliralike.optim.loss import as_loss
from deliralike.terminal import warn


class Part(chainer.Link):
    """Some parameters of a network as a link, for a Chainer optimizer that must see no others."""

    def __init__(self, parameters: Mapping[str, chainer.Parameter]) -> None:
        super().__init__()
        self._parameters = dict(parameters)

    def params(self, include_uninit: bool = True) -> Iterator[chainer.Parameter]:
        """Return the parameters."""
        return (parameter for _, parameter in self.namedparams(include_uninit))

    def namedparams(
        self, include_uninit: bool = True
    ) -> Iterator[tuple[str, chainer.Parameter]]:
        """Return the parameters with their neutral names, written as Chainer's paths."""
        for name, parameter in self._parameters.items():
            if include_uninit or parameter.is_initialized:
                yield "/" + name.replace(".", "/"), parameter


class ChainerOptimizer(BackwardOptimizer):
    """A Chainer optimizer behind the neutral interface; `native` is Chainer's own.

    Several may update one network, each with update rules of its own, different parts or the same
    parameters.
    """

    _owned: ChainerParameters

    def __init__(
        self,
        network: AbstractNetwork,
        native: chainer.Optimizer,
        pattern: str | None = None,
    ) -> None:
        """Wrap a native optimizer; it is set up for its part of the network if it is not yet."""
        super().__init__(network, pattern)
        self.native = native
        self._owned = ChainerParameters(network, self.owns)
        parameters = self._owned.parameters
        group_numbers: dict[str, int] = {}
        if isinstance(native, NeutralOptimizer):
            group_numbers = native.hyperparam.groups.indices(self.owned_slots())
        _tell_of_ties(network)
        if native.target is None:
            native.setup(network if pattern is None else Part(parameters))
        self._rules = {
            name: parameter.update_rule for name, parameter in parameters.items()
        }
        for name, rule in self._rules.items():
            if name in group_numbers:
                rule.hyperparam.group = group_numbers[name]
        for slot in self._owned.slots.values():
            if not slot.trainable:
                slot.trainable = False  # so that the update rule is disabled too

    def native_parameters(self):
        """Return the parameters of the link for which the native optimizer was set up."""
        return self.native.target.params()

    def gradients(self, loss_function, *batch):
        """Run forward and backward; previous gradients are dropped first, in every replica."""
        result, gradients = super().gradients(loss_function, *batch)
        if not self._owned.replicated:
            return result, gradients
        for replicated in self._owned.replicated:
            replicated.parallelism.accumulate_gradients()
        parameters = self._owned.parameters
        return result, {name: parameters[name].grad for name in gradients}

    def forward_backward(self, loss_function, backward, batch):
        """Return the result of a loss function; previous gradients are dropped first."""
        self._owned.refresh()
        network: Any = self.network
        network.cleargrads()
        return as_loss(loss_function).forward_backward(network, backward, *batch)

    def apply(self, gradients):
        """Make one native step on these gradients."""
        parameters = self._owned.parameters
        for name, gradient in gradients.items():
            if parameters[name].grad is not gradient:
                parameters[name].grad = arrays.raw(gradient)
        unused_rules = []
        for name, parameter in parameters.items():
            _attach(parameter, self._rules[name])
            if gradients.get(name) is None and parameter.update_rule is not None:
                unused_rules.append(parameter.update_rule)
        # The gradients include those of replicas: no native hook must add them again.
        self.parallelism.clear_replica_gradients(parameters)
        if unused_rules:
            with _disabled(unused_rules):  # Chainer's own rules would update by zeros
                self.native.update()
        else:
            self.native.update()
        for replicated in self._owned.replicated:
            replicated.copy_parameters()

    def settings(self):
        """Return the hyperparameters and the class of the native optimizer."""
        native = getattr(self.native, "optimizer", self.native)
        settings = dict(native.hyperparam.get_dict())
        settings.pop(self._lr_name(), None)
        return {"class": type(native).__name__, **settings}

    @property
    def lr(self) -> float:
        """The learning rate; of Chainer's Adam it is called `alpha`."""
        return float(getattr(self.native, self._lr_name()))

    @lr.setter
    def lr(self, value: float) -> None:
        setattr(self.native, self._lr_name(), value)

    def _lr_name(self) -> str:
        if isinstance(
            getattr(self.native, "optimizer", self.native), chainer.optimizers.Adam
        ):
            return "alpha"
        if not hasattr(self.native, "lr"):
            raise ArgumentError(f"{type(self.native).__name__} has no learning rate")
        return "lr"

    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return state arrays as ``"parameter/slot"`` and step counts as ``"parameter/step"``.

        The state of a tied parameter comes under its first name, as its gradient does.
        """
        state = {"steps": np.array(self.steps)}
        self._owned.refresh()
        for name in self._owned.parameters:
            rule = self._rules.get(name)
            if rule is None or not rule.t:
                continue
            if not isinstance(rule, NeutralUpdateRule) or rule.rule.counts:
                state[f"{name}/step"] = np.array(rule.t)
            for slot, value in (rule.state or {}).items():
                state[f"{name}/{slot}"] = arrays.numpy(value)
        return state

    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Load state arrays by name, in each parameter's own type."""
        self._owned.refresh()
        parameters = self._owned.parameters
        self.refuse_wrong_state(state, parameters)
        self.steps = self.native.t = int(state["steps"])
        for rule in self._rules.values():
            if rule is not None:
                rule._state = None
                rule.t = 0
        for key, value in state.items():
            name, _, slot = key.rpartition("/")
            if name:
                _load(parameters[name], self._rules[name], slot, value, self.steps)

    def native_state_shapes(self, name):
        """Return the shapes with which the parameter's update rule begins."""
        trial = copy.copy(self._rules[name])
        state = unstable.new_state(trial, self._owned.parameters[name])
        return {slot: array.shape for slot, array in state.items()}


def _attach(parameter: chainer.Parameter, rule: chainer.UpdateRule | None) -> None:
    """Let a parameter follow a rule if another optimizer has set another one.

    Whether it is frozen does not change.
    """
    former = parameter.update_rule
    if rule is None or former is rule:
        return
    if former is not None:
        rule.enabled = former.enabled
    parameter.update_rule = rule


def _tell_of_ties(network: AbstractNetwork) -> None:
    """Warn where Chainer by itself would update a parameter more than once in each step."""
    link = unwrap(network)
    if isinstance(link, AbstractNetwork):
        return
    known = [id(parameter) for parameter in link.params()]
    slots = {
        name: slot
        for name, slot in network.neutral_slots().items()
        if slot.is_parameter
    }
    names = first_names(slots)
    for name, slot in slots.items():
        first = names[id(slot.native)]
        if first != name and known.count(id(slot.native)) > 1:
            warn(
                f"{first!r} and {name!r} of {type(link).__name__} are one parameter, which is "
                "updated once in each step, as on PyTorch and JAX; Chainer's own optimizers, set "
                "up for that link, update it once for each name",
            )
            return


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


def _load(
    parameter: chainer.Parameter, rule: Any, slot: str, value: Any, steps: int
) -> None:
    if slot == "step":
        rule.t = int(value)
        return
    rule.t = rule.t or steps
    if rule.state is None:
        unstable.begin_state(rule, parameter)
    fresh = rule.state.get(slot, parameter)
    array = arrays.array(np.asarray(value), str(fresh.dtype), str(parameter.device))
    rule.state[slot] = array


class ChainerParameters(OwnedParameters):
    """The parameters of an optimizer on Chainer, and what a batch is prepared for.

    Attributes:
        replicated: The replicated networks inside a network that is not replicated itself, and so
            has no hooks for them.
    """

    replicated: list[DataParallelChainerNetwork]

    def find_blocks(self) -> None:
        """Remember which attributes of every link hold parameters and children."""
        network: Any = self.network
        self.replicated = []
        if not network.parallelism.is_replicated:
            self.replicated += replicated_networks(network)
        self.first = next(network.params(include_uninit=False), None)
        root: Any = unreplicated(network)
        # the names of parameters and children of every link
        self._registered: list[Any] = []
        # the attributes of links that hold them, and the names in these
        self._attributes: list[dict[str, Any]] = []
        self._names: list[str] = []
        for link in (*root.links(), *unwrap(root).links()):
            self._registered += (link._params, getattr(link, "_children", ()))
            names = _names(link)
            self._attributes += [vars(link)] * len(names)
            self._names += names

    def contents(self) -> tuple[list[int], list[Any]]:
        """Return the numbers of names, and the objects in the attributes."""
        return [*map(len, self._registered)], [
            *map(dict.get, self._attributes, self._names)
        ]


def _names(link: chainer.Link) -> list[str]:
    # Children are names in a Chain, and links in a ChainList, which only grows.
    children = getattr(link, "_children", ())
    names = [name for name in children if isinstance(name, str)]
    return ["_params", "_children", *link._params, *names]
