"""One training, validation or test step on a batch.

Every network takes this step unless it has steps of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deliralike.errors import ArgumentError, BatchError, BatchTypeError, SettingError
from deliralike.network.batch_names import inputs_and_label
from deliralike.network.closure import (
    INPUT,
    LABEL,
    MAIN,
    refuse_loss_named,
    sum_of_losses,
)
from deliralike.network.core import NetworkCore
from deliralike.network.forward_errors import explain
from deliralike.network.inputs import call
from deliralike.network.targets import check_classes, default_loss
from deliralike.optim.loss import as_loss, value_of
from deliralike.optim.optimizer import AbstractOptimizer

Losses = Mapping[str, Callable[..., Any]] | Callable[..., Any]
Optimizers = Any  # one optimizer, or a mapping of them by name
TOTAL = "loss"
# in each step, a dict is told three times as fast by its own class
MAPPINGS = (
    dict,
    Mapping,
)


def inputs_and_target(batch: Any) -> tuple[tuple, Any]:
    """Return the inputs of a network and the target of its losses, from a batch.

    A tuple or list has the target last and the inputs before it; texts after the target, such as
    the names of files, are left out. A dict has them as ``"data"`` and
    ``"label"`` (or by other usual names, see `batch_names`), the data being one input or a tuple of
    several.

    Raises:
        BatchTypeError: The batch is no dict, tuple or list.
        BatchError: The batch is too short, or lacks a key.

    Example:
        >>> inputs_and_target(("image", "mask"))
        (('image',), 'mask')
        >>> inputs_and_target({"data": ("image", "age"), "label": "mask"})
        (('image', 'age'), 'mask')
    """
    if isinstance(batch, (tuple, list)):  # told in less time than a mapping
        while len(batch) > 2 and _is_texts(batch[-1]):
            batch = batch[:-1]
        if len(batch) < 2:
            raise BatchError(
                f"a batch of {len(batch)} elements has no target: give (inputs, target), or let "
                "the network have a train_step and a val_step of its own"
            )
        return tuple(batch[:-1]), batch[-1]
    if not isinstance(batch, MAPPINGS):
        raise BatchTypeError(
            f"a batch is a dict, tuple or list, not {_named(batch)}: give (inputs, target), or "
            f"{{'{INPUT}': inputs, '{LABEL}': target}}"
        )
    data, label = inputs_and_label(batch)
    if type(data) is not tuple:
        data = (data,)
    return data, label


def _is_texts(part: Any) -> bool:
    if isinstance(part, (tuple, list)):
        return bool(part) and all(isinstance(each, str) for each in part)
    return (
        isinstance(part, str)
        or getattr(getattr(part, "dtype", None), "kind", None) == "U"
    )


@dataclass(frozen=True)
class StepLoss:
    """A step loss computes ``(total, each loss by name)`` of a network on inputs and a target.

    Equal ones share a compiled program.
    """

    names: tuple[str, ...] = ()
    functions: tuple[Callable[..., Any], ...] = ()

    def __call__(self, network: Any, *batch: Any) -> Any:
        """Return the sum of the losses, and each of them when there are several.

        The target is the last of the batch.
        """
        *inputs, target = batch
        return self.of(network, call(network, *inputs), target)

    def of(self, network: Any, prediction: Any, target: Any) -> Any:
        """Return the same as a call, from the network's prediction."""
        if not self.functions:
            return default_loss(prediction, target, network=network)
        check_classes(self.names[0], prediction, target, network)
        total, each = sum_of_losses(self.names, self.functions, prediction, target)
        if len(each) == 1:
            return total
        return total, each


_DEFAULT = StepLoss()
# as updates take it: one object for all steps, which is told at once
_OF_DEFAULT = as_loss(_DEFAULT)


def step_loss(losses: Losses | None) -> Callable[..., Any]:
    """Return the loss function of a step.

    Args:
        losses: Functions ``(prediction, target)`` by name, whose sum is minimised; one function
            ``(network, *inputs, target)``, also one from `in_replicas`; None for `default_loss`.

    Raises:
        SettingError: There is no loss in the mapping, or one of several has the name of their sum.
        ArgumentError: `losses` is something else.
    """
    if losses is None:
        return _DEFAULT
    if isinstance(losses, Mapping):
        if not losses:
            raise SettingError(
                "losses is empty: give at least one, "
                "losses={'name': function of (prediction, target)}"
            )
        refuse_loss_named(TOTAL, losses)
        return StepLoss(tuple(losses), tuple(losses.values()))
    if not callable(losses):
        raise ArgumentError(
            f"losses is a dict of functions or one function, not {_named(losses)}"
        )
    return losses


def train_step(
    network: NetworkCore,
    batch: Any,
    optimizers: Optimizers,
    losses: Losses | None = None,
) -> dict[str, Any]:
    """Make one update on a batch.

    Override it for a network with several optimizers or losses of its own.

    An override that is to run on replicas as well states each update as a loss in replicas (see
    `in_replicas`), and takes `losses` only if it can use them.

    Args:
        batch: ``(inputs, target)``, ``(input, input, …, target)`` or ``{"data": inputs,
            "label": target}``.
        optimizers: One optimizer, or a mapping by name of which ``"default"``, or the only one,
            makes the update.
        losses: Functions ``(prediction, target)`` by name, whose sum is minimised; or one
            function ``(network, *inputs, target)``. Cross-entropy for targets of whole numbers
            and mean squared error for floating ones when None.

    Returns:
        The loss of the batch as ``"loss"``, before the update, and each loss by name where
        there are several: native scalars without a graph, for logging.

    Raises:
        BatchTypeError: The batch is no dict, tuple or list.
        BatchError: It has no target.

    Example:
        >>> import numpy as np
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> optimizer = net.backend.optimizer(rules.rule("sgd", lr=0.1), net)
        >>> batch = (np.ones((4, 3), np.float32), np.zeros(4, np.int64))
        >>> list(net.train_step(batch, optimizer))
        ['loss']
    """
    loss = _OF_DEFAULT if losses is None else step_loss(losses)
    optimizer = the_optimizer(optimizers)
    inputs, target = inputs_and_target(batch)
    try:
        result = optimizer.update(loss, *inputs, target)
    except (TypeError, ValueError) as error:
        _refuse_two_arguments(loss)
        _note_exchange(error, inputs, target)
        raise
    return named_losses(network, result)


def _note_exchange(error: Exception, inputs: tuple, target: Any) -> None:
    """Add a note to an error where inputs look like labels, and the target like inputs."""
    kind = getattr(getattr(target, "dtype", None), "kind", "")
    is_list = len(inputs) == 1 and getattr(inputs[0], "ndim", 0) == 1
    if is_list and kind == "f" and target.ndim > 1:
        error.add_note(
            f"the inputs have one axis, and the target has the shape {tuple(target.shape)}: are "
            "they exchanged? A batch is (inputs, target)"
        )


def _refuse_two_arguments(loss: Callable[..., Any]) -> None:
    """Refuse a loss of (prediction, target) in the place of one of (network, *inputs, target).

    Raises:
        ArgumentError: The loss takes at most two arguments.
    """
    called = getattr(loss, "forward", loss)  # a module's own call takes anything
    try:
        inspect.signature(called).bind("network", "input", "target")
    except ValueError:  # a function that tells nothing of its arguments
        return
    except TypeError as error:
        name = getattr(loss, "__name__", type(loss).__name__)
        raise ArgumentError(
            f"losses={name} is called as (network, *inputs, target), and does not take these "
            f"({error}): a function of (prediction, target) has a name, losses={{'loss': {name}}}"
        ) from error


def val_step(
    network: NetworkCore, batch: Any, losses: Losses | None = None
) -> dict[str, Any]:
    """Return the losses of a batch in evaluation mode, without a graph.

    It works as `train_step`, but nothing changes.
    """
    values, _ = evaluate_loss(network, batch, step_loss(losses))
    return values


def evaluate_loss(
    network: NetworkCore, batch: Any, loss: Callable[..., Any]
) -> tuple[dict[str, Any], Any]:
    """Return the losses of a batch in evaluation mode by name, and what the function returned."""
    backend = network.backend
    inputs, target = inputs_and_target(batch)
    with network.training_mode(training=False), backend.evaluating():
        arrays = backend.prepare((*inputs, target), network)
        try:
            result = loss(network, *arrays)
            return named_losses(network, result), result
        except Exception as error:
            explain(error)
            raise


def the_optimizer(optimizers: Optimizers) -> AbstractOptimizer:
    """Return the one optimizer of a default step.

    It is the optimizer itself, the only one of a mapping, or the one called ``"default"``.

    Raises:
        SettingError: There are several, and none of them is called ``"default"``.
    """
    if not isinstance(optimizers, MAPPINGS):
        return optimizers
    if MAIN in optimizers:
        return optimizers[MAIN]
    if len(optimizers) != 1:
        names = ", ".join(map(repr, optimizers))
        raise SettingError(
            f"the default train_step has one optimizer, and there are {len(optimizers)}: {names}; "
            f"call one of them '{MAIN}', or write a train_step of the network's own"
        )
    return next(iter(optimizers.values()))


def named_losses(network: NetworkCore, result: Any) -> dict[str, Any]:
    """Return the total as ``"loss"``, then each loss by name where the function returned them.

    They are without a graph.

    Args:
        result: What the loss function returned: the total, or a tuple of it and anything else, of
            which the first mapping has the losses by name.
    """
    losses = {TOTAL: value_of(result)}
    if not isinstance(result, tuple):
        return losses
    mappings = (extra for extra in result[1:] if isinstance(extra, Mapping))
    for name, value in next(mappings, {}).items():
        if name == TOTAL:
            continue
        if network.backend.is_array(value):
            value = network.nn.stop_gradient(value)
        losses[name] = value
    return losses


def _named(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace(
        "builtins.", ""
    )
