"""The interface of optimizers, and the one order in which they make an update.

The order is gradients, pre-update hooks, update, post-update hooks.
"""

from __future__ import annotations

import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike import random
from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    OptimizerError,
    SettingError,
    StateError,
    matching,
    whole_number,
)
from deliralike.network.forward_errors import explain
from deliralike.network.state import Slot, owned_slots
from deliralike.optim.accumulation import (
    AccumulationWindow,
    add_to_sums,
    weight_before,
)
from deliralike.optim.groups import Groups
from deliralike.optim.loss import Loss, LossFunction, LossResult, as_loss, nonzero
from deliralike.optim.precision import LossScale, check_mixed, check_precision

if TYPE_CHECKING:
    from deliralike.network.core import NetworkCore

PreUpdateHook = Callable[["AbstractOptimizer", dict[str, Any]], dict[str, Any]]
PostUpdateHook = Callable[["AbstractOptimizer"], None]
StateShapes = Mapping[str, tuple[int, ...]]


class AbstractOptimizer(ABC):
    """The interface of an optimizer on any backend.

    Attributes:
        network: The network whose trainable parameters it updates.
        parallelism: How that network computes in parallel.
        groups: The neutral rules that the optimizer was made with, as they were then; None for an
            optimizer of the framework's own.
        pattern: The parameters that are updated are those whose neutral names match; all when None.
        owns: ``owns(name)``: whether a parameter is one of this optimizer's.
        updated: The parameters that the last update changed.
        steps: The number of finished updates.
        pre_update_hooks: Called in order with the optimizer and the gradients (native arrays by
            neutral name, None for a parameter that took no part); each returns the gradients to go
            on with. On JAX they are compiled into the step of a plain network, and called as they
            are over a replicated one.
        post_update_hooks: Called in order with the optimizer, after the parameters have changed;
            one with an attribute ``runs_last`` that is true comes after the others.
        accumulate: The number of calls of `update` that together make one update of the
            parameters; see `update`.
        precision: The shorter type that the forward pass computes in, ``"bfloat16"`` or
            ``"float16"``; None for the network's own. See `compute_in`.
        loss_scale: The factor of float16 losses for backward; None without one.
        keep_gradients: Whether the gradients of each update are kept in `latest_gradients`, as the
            hooks left them.
        latest_weight: By how much the loss of the last micro-batch counts among others: what it was
            divided by, or its samples. A number, or a native scalar.
        latest_gradients: The gradients of the last update, native arrays by neutral name; empty
            before the first update and unless kept.

    Over a replicated network the first pre-update hook accumulates the replicas' gradients, so that
    hooks added later see the whole gradient, and a post-update hook that runs last copies the
    parameters to the replicas.
    """

    groups: Groups | None = None

    def __init__(self, network: NetworkCore, pattern: str | None = None) -> None:
        """Remember the network; nothing of it changes.

        Raises:
            ArgumentError: It is no network, but a module of a framework, say.
            UnknownName: No parameter matches the pattern.
            ConstructionError: The network was given a layer that would not be trained.
        """
        if not hasattr(network, "parallelism"):
            raise ArgumentError(
                f"a {type(network).__name__} is no network that an optimizer can update: one of a "
                "framework is wrapped, deliralike.wrap(module)"
            )
        self.parallelism: Any = network.parallelism
        self.parallelism.refuse_unregistered()
        self.network: Any = network
        self.pattern = pattern
        # No method: whoever keeps one keeps the optimizer, here in a circle with all its state.
        self.owns: Callable[[str], bool] = partial(_matches, pattern)
        self.updated: tuple[str, ...] = ()
        self.steps = 0
        self.pre_update_hooks: list[PreUpdateHook]
        self.post_update_hooks: list[PostUpdateHook]
        self.pre_update_hooks, self.post_update_hooks = self.parallelism.update_hooks()
        self.precision: str | None = None
        self.loss_scale: LossScale | None = None
        self.keep_gradients = False
        self.latest_gradients: dict[str, Any] = {}
        self._compiler: Callable[[LossFunction], LossFunction] | None = None
        self._accumulate = 1
        self._window = AccumulationWindow()
        self.latest_weight: Any = 0
        self._of_replicas: list[dict[str, Any]] | None = None
        if pattern is not None:
            matching(pattern, self._parameter_names(), "no parameter")

    def __repr__(self) -> str:
        """Return the rule with its settings, and the number of updates."""
        if self.groups is None:
            kind = self.settings().get("class", "native rule")
            rule = f"{kind}(lr={known_lr(self)})"
        else:
            rule = repr(self.groups.rules[0])
        return f"{type(self).__name__}({rule}, steps={self.steps})"

    def holds(self) -> list[str]:
        """Return the names of the parameters that its updates may change.

        The list also has a text for each parameter that the network lacks.
        """
        return [name for name in self._parameter_names() if self.owns(name)]

    def owned_slots(self) -> dict[str, Slot]:
        """Return the slots of its parameters, ties under each of their names."""
        return owned_slots(self.network.neutral_slots(), self.owns)

    def _parameter_names(self) -> list[str]:
        slots = self.network.neutral_slots()
        return [name for name, slot in slots.items() if slot.is_parameter]

    def update(self, loss_function: LossFunction, *batch: Any) -> Any:
        """Take one step on ``loss_function(network, *batch)``.

        The loss, or what else the function returned, is returned.

        With `accumulate` above one this is a micro-batch: the parameters change with every
        `accumulate`-th call, or with `flush`, by the gradient that all samples since the last
        change would have given together. Micro-batches count by their samples, or by the
        denominator of a loss that declares one (see `in_replicas`); sums are added.

        With a loss scale, an update whose gradients overflowed is left out: `updated` is empty,
        `steps` stays.

        Args:
            loss_function: Returns a scalar, or a tuple of the scalar and anything else to be handed
                back.
            batch: NumPy or native arrays in any nest; they go to the network's device, floating
                ones in its type.
        """
        batch = self.prepared(batch)
        with self.parallelism.update_context(self, as_loss(loss_function)) as loss:
            if self.precision is not None:
                loss = replace(loss, precision=self.precision)
            is_part = (
                self._accumulate > 1
                or self._window.micro_batches
                or self.loss_scale is not None
            )
            if is_part or loss.per_replica:
                loss = loss.recorded()
            if is_part:
                loss = loss.with_denominator()
            if self._compiler is not None:
                loss = replace(loss, function=self._compiler(loss.function))
            take = self._add_micro_batch if is_part else self.update_at_once
            try:
                return take(loss, batch)
            except Exception as error:
                explain(error)
                raise

    def prepared(self, batch: tuple) -> tuple:
        """Return a batch as `gradients` takes it; see `Backend.prepare`."""
        return self.network.backend.prepare(batch, self.network)

    def update_at_once(self, loss: Loss, batch: tuple) -> Any:
        """Make the update of a batch that is a window of its own; see `update`.

        Args:
            batch: What `prepared` has just returned: since then the network has not been changed.
        """
        result, gradients = self.gradients(loss, *batch)
        self.update_with(gradients)
        return result

    def flush(self) -> None:
        """Make the update of a window that is not full, as at the end of an epoch.

        Nothing happens when it is empty. A parameter that was frozen meanwhile is left alone.
        """
        if not self.window_is_open:
            return
        window = self._window
        self._window = AccumulationWindow()
        of_root, *self._of_replicas = window.take_gradients(self.network.backend)
        slots = self.owned_slots()
        gradients = {}
        for name, gradient in of_root.items():
            if slots[name].trainable:
                gradients[name] = gradient
        try:
            self.update_with(gradients)
        finally:
            self._of_replicas = None

    @property
    def window_is_open(self) -> bool:
        """Return whether there are micro-batches that wait for an update."""
        return self._window.micro_batches > 0

    @property
    def accumulate(self) -> int:
        """The number of micro-batches that make one update; may be set between two windows."""
        return self._accumulate

    @accumulate.setter
    def accumulate(self, count: int) -> None:
        count = whole_number("accumulate", count, 1)
        if self.window_is_open:
            raise SettingError(
                "accumulate cannot change while micro-batches wait for an update: call flush() "
                "first"
            )
        self._accumulate = count

    def compute_in(self, precision: str | None, loss_scale: Any = None) -> None:
        """Compute the forward pass in a shorter type from now on.

        float16 comes with a dynamic loss scale.

        Parameters, gradients and the optimizer's state keep their own type.

        Args:
            precision: ``"bfloat16"``, ``"float16"``, or None for the network's own.
            loss_scale: Another scale of the loss; see `LossScale.of`.

        Raises:
            SettingError: There is no such type or scale, or the network is not one of float32.
            CapabilityError: The backend cannot, or not with the network's own layers.
        """
        check_precision(precision)
        if precision is not None:
            check_mixed(self.network, precision)
        elif loss_scale is not None:
            raise SettingError(
                f"loss_scale={loss_scale!r} belongs to a shorter type: give precision='float16' "
                "with it"
            )
        has_scale = precision == "float16" or loss_scale is not None
        self.loss_scale = LossScale.of(loss_scale) if has_scale else None
        self.precision = precision

    def compile(self, **settings: Any) -> None:
        """Compute forward pass and loss as one compiled program from now on.

        On PyTorch by ``torch.compile``; the results are equal up to rounding. Nothing changes where
        steps are compiled anyway, as on JAX.

        Args:
            settings: Those of ``torch.compile``, such as ``mode`` and ``dynamic``. A GPU runs CUDA
                graphs unless they choose another mode.

        Raises:
            CapabilityError: The backend does not declare ``"compile"``, as Chainer.
            SettingError: There is no such setting, or the network has replicas.
        """
        self._compiler = self.network.backend.loss_compiler(self.network, settings)

    def replica_gradients(self) -> Iterable[dict[str, Any]]:
        """Return the gradients of all replicas but the root.

        They are those of a window or of the last backward; a plain network has none.
        """
        if self._of_replicas is not None:
            return self._of_replicas
        return self.parallelism.replica_gradients()

    def _add_micro_batch(self, loss: Loss, batch: tuple) -> Any:
        window = self._window
        samples = self.parallelism.count_samples(batch)
        scale = 1.0
        if self.loss_scale is not None:
            loss = loss.with_scale()
            scale = self.loss_scale.value
            batch = (scale, *batch)
        with random.shifted(window.samples), self.parallelism.no_sync():
            parts = self._add_to_window(loss, samples, scale, batch)
        if window.micro_batches >= self._accumulate:
            self.flush()
        if self.loss_scale is not None:
            parts = parts.with_value(parts.value / scale)
        return parts.returned

    def _add_to_window(
        self, loss: Loss, samples: int, scale: float, batch: tuple
    ) -> LossResult:
        """Add a micro-batch and its gradients to the window; return the parts of its loss."""
        window = self._window
        weight = weight_before(loss, samples)
        window.rescale(self.network.backend, weight.factor / scale)
        if loss.reduction != "denominator":
            parts = LossResult.of(self._add_gradients(loss, batch))
        else:
            # The sum is divided by the samples: denominators are read at the end of the window.
            loss = replace(loss, divisor=samples)
            parts = loss.parts(self._add_gradients(loss, batch))
            weight = replace(weight, divisor=parts.denominator)
            parts = parts.with_value(parts.value * samples / nonzero(parts.denominator))
        window.count(weight)
        self.latest_weight = samples if loss.reduction == "sum" else weight.divisor
        return parts

    def _add_gradients(self, loss: Loss, batch: tuple) -> Any:
        """Add the gradients of a batch to those of the window; return the loss's value."""
        result, of_root = self.gradients(loss, *batch)
        of_others = self.parallelism.replica_gradients()
        sums = self._window.of_replicas
        add_to_sums(self.network.backend, sums, [of_root, *of_others])
        return result

    def update_with(self, gradients: dict[str, Any]) -> None:
        """Make the update with these gradients: pre-update hooks, update, post-update hooks.

        Nothing happens when a loss scale finds an overflow in them.
        """
        gradients = self.run_pre_update_hooks(gradients)
        self.latest_gradients = gradients if self.keep_gradients else {}
        updated = [name for name, value in gradients.items() if value is not None]
        if self.loss_scale is not None:
            values = [gradients[name] for name in updated]
            is_finite = self.network.backend.all_finite(values)
            self.loss_scale.observe(is_finite)
            if not is_finite:
                self.updated = ()
                return
        self.apply(gradients)
        self.finish_update(updated)

    def run_pre_update_hooks(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """Return what the pre-update hooks make of gradients, one after the other."""
        for pre_update in self.pre_update_hooks:
            gradients = pre_update(self, gradients)
        return gradients

    def finish_update(self, updated: Iterable[str]) -> None:
        """Count the update that was made of these parameters, and call the post-update hooks."""
        self.steps += 1
        self.updated = tuple(updated)
        hooks = self.post_update_hooks
        for hook in sorted(hooks, key=lambda each: getattr(each, "runs_last", False)):
            hook(self)

    @abstractmethod
    def gradients(
        self, loss_function: LossFunction, *batch: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Return the loss function's value and the gradient of each trainable parameter.

        The gradients are given by neutral name.
        """

    @abstractmethod
    def apply(self, gradients: dict[str, Any]) -> None:
        """Update the parameters; one whose gradient is None is left alone, its state too."""

    def settings(self) -> dict[str, Any]:
        """Return the numbers of an optimizer of the framework's own.

        The learning rate is left out; the result is empty where the optimizer does not show them.
        """
        return {}

    def refuse_wrong_state(
        self, state: Mapping[str, Any], owners: Container[str]
    ) -> None:
        """Refuse a state that does not fit; see `refuse_wrong_state`."""
        slots = self.network.neutral_slots()

        def shapes(name: str) -> StateShapes | None:
            if self.groups is None:
                return self.native_state_shapes(name)
            rule = self.groups.rules[self.groups.index(name)]
            counts: StateShapes = {"step": ()} if rule.counts else {}
            return {**counts, **rule.state_shapes(tuple(slots[name].shape))}

        refuse_wrong_state(state, owners, shapes)

    def native_state_shapes(self, name: str) -> StateShapes | None:
        """Return the shape of each slot that an optimizer of the framework's own has for a name.

        None where it cannot be told before its first update.
        """
        return None

    @property
    @abstractmethod
    def lr(self) -> float:
        """The learning rate of the next update; may be set."""

    @lr.setter
    @abstractmethod
    def lr(self, value: float) -> None: ...

    @abstractmethod
    def neutral_state(self) -> dict[str, np.ndarray]:
        """Return the state as NumPy arrays named ``"parameter/slot"``, with ``"steps"``."""

    @abstractmethod
    def load_neutral_state(self, state: dict[str, np.ndarray]) -> None:
        """Load a state that `neutral_state` returned, on any backend.

        Raises:
            StateError: It is not one of these parameters and this optimizer; nothing has changed.
        """


def no_closure(name: str) -> CapabilityError:
    """Return the error for an optimizer that computes the loss itself, as L-BFGS does."""
    return CapabilityError(
        f"{name} computes the loss several times within a step, by a closure, and a training step "
        "computes it once: take another optimizer, or call this one's step in a loop of your own"
    )


def no_optimizer(native: Any, wanted: str) -> OptimizerError:
    """Return the error for an object that was to be wrapped and is no optimizer."""
    return OptimizerError(
        f"wrap_optimizer got {native!r}, a {type(native).__name__}, wanted {wanted}"
    )


def refuse_other_parameters(optimizer: AbstractOptimizer) -> None:
    """Refuse an optimizer of the framework's own over the parameters of another network.

    Raises:
        ArgumentError: It has parameters, and none is its network's.
    """
    names = optimizer.holds()
    if names and not set(names).intersection(optimizer.network.neutral_slots()):
        raise ArgumentError(
            f"the optimizer holds none of the network's parameters, but others ({names[0]}): make "
            "it of those of the network that is trained"
        )


def known_lr(optimizer: AbstractOptimizer) -> float | None:
    """Return the learning rate; None where a native optimizer hides it, as some of optax do."""
    try:
        return optimizer.lr
    except CapabilityError:
        return None


def _matches(pattern: str | None, name: str) -> bool:
    return pattern is None or fnmatch.fnmatchcase(name, pattern)


def refuse_wrong_state(
    state: Mapping[str, Any],
    owners: Container[str],
    shapes: Callable[[str], StateShapes | None],
) -> None:
    """Refuse a state that is not one of these parameters, before anything of it is taken over.

    The names in a state are ``"parameter/slot"``.

    Args:
        owners: The names of the parameters, and of what else has slots.
        shapes: Returns the shape of each slot of one of them; None where nobody knows.

    Raises:
        StateError: It has a parameter that the network lacks, lacks a slot, or has one of another
            shape or type.
    """
    _refuse_no_count("steps", state.get("steps"))
    slots: dict[str, dict[str, Any]] = {}
    for key, value in state.items():
        owner, _, slot = key.rpartition("/")
        if owner:
            slots.setdefault(owner, {})[slot] = value
    unknown = sorted(owner for owner in slots if owner not in owners)
    if unknown:
        names = ", ".join(unknown)
        raise StateError(
            f"the optimizer's state names parameters that the network lacks: {names}"
        )
    for owner, found in slots.items():
        if "step" in found:
            _refuse_no_count(f"{owner}/step", found["step"])
        wanted = shapes(owner)
        if wanted is not None:
            _refuse_wrong_slots(owner, found, wanted)


def _refuse_no_count(name: str, value: Any) -> None:
    array = np.asarray(value)
    is_number = array.shape == () and array.dtype.kind in "iuf"
    if not (
        is_number and np.isfinite(array) and array >= 0 and array == np.floor(array)
    ):
        raise StateError(
            f"the optimizer's state has {name!r} {value!r:.60}, wanted a number of updates"
        )


def _refuse_wrong_slots(
    owner: str, found: Mapping[str, Any], wanted: StateShapes
) -> None:
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        names = ", ".join(f"{owner}/{slot}" for slot in missing)
        raise StateError(f"the optimizer's state lacks {names}")
    for slot, value in found.items():
        array = np.asarray(value)
        if slot not in wanted:
            if slot == "step":
                continue  # counted by some backends alone
            raise StateError(
                f"the optimizer's state has '{owner}/{slot}', which this optimizer does not have: "
                f"wanted {', '.join(wanted) or 'nothing'}"
            )
        # bfloat16 is no float to NumPy; a number may be a count
        is_fitting = array.dtype.kind in ("fcV" if wanted[slot] else "fciu")
        if array.shape != wanted[slot] or not is_fitting:
            raise StateError(
                f"the optimizer's state has '{owner}/{slot}' of shape {array.shape} and type "
                f"{array.dtype}, wanted floats of shape {wanted[slot]}: it is the state of another "
                "network or optimizer, or damaged"
            )
