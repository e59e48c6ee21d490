"""One training or evaluation step from dictionaries, by the names that delira's users know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import ArgumentError, BatchError, SettingError, refuse_unknown
from deliralike.nest.arrays import Arrays, plain

INPUT = "data"
LABEL = "label"
MAIN = "default"
PREDICTION = "pred"
TOTAL = "total"


@dataclass(frozen=True)
class TotalLoss:
    """The sum of named losses ``loss(prediction, label)``; equal ones share a compiled program."""

    names: tuple[str, ...]
    functions: tuple[Callable[..., Any], ...]

    def __call__(
        self, network: Any, data: Any, label: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return the total, each loss by its name, and the predictions."""
        outputs = network(data)
        predictions = {PREDICTION: outputs}
        if isinstance(outputs, Mapping):
            predictions = dict(outputs)
        first = next(iter(predictions.values()))
        prediction = predictions.get(PREDICTION, first)
        total, each = sum_of_losses(self.names, self.functions, prediction, label)
        return total, each, predictions


def sum_of_losses(
    names: Sequence[str],
    functions: Sequence[Callable[..., Any]],
    prediction: Any,
    target: Any,
) -> tuple[Any, dict[str, Any]]:
    """Return the sum of losses ``function(prediction, target)``, and each of them by name."""
    values = [function(prediction, target) for function in functions]
    total = sum(values[1:], start=values[0])
    return total, dict(zip(names, values, strict=True))


def closure(
    model: Any,
    data_dict: Mapping[str, Any],
    optimizers: Mapping[str, Any] | None,
    losses: Mapping[str, Callable[..., Any]],
    iter_num: int = 0,  # noqa: ARG001  # for subclasses, as in delira
    fold: int = 0,  # noqa: ARG001
    **kwargs: Any,  # noqa: ARG001
) -> tuple[dict[str, float], dict[str, Any]]:
    """Make one step on a batch: predict, sum the losses, and (with an optimizer) update.

    Args:
        model: The network, replicated or not.
        data_dict: ``"data"`` for the network and ``"label"`` for the losses.
        optimizers: The one called ``"default"`` makes the update. Empty or None to evaluate, which
            builds no graph and changes nothing.
        losses: Functions ``loss(prediction, label)``; their sum is minimised. If the network
            returns a dict, the prediction is its entry ``"pred"``, or else the first one.
        iter_num: The number of this step, for subclasses.
        fold: The number of this fold, for subclasses.
        kwargs: Further arguments, for subclasses.

    Returns:
        The losses as numbers, with their sum as ``"total"``; the predictions by name (``"pred"``
        unless the network gives a dict), as native arrays without a graph.

    Raises:
        BatchError: `data_dict` lacks a key.
        SettingError: There is no loss, one of several has the name of their sum, or optimizers
            without ``"default"``.
    """
    data = entry(data_dict, INPUT)
    label = entry(data_dict, LABEL)
    if not losses:
        raise SettingError(
            "closure needs at least one loss: losses={'name': function of (prediction, label)}"
        )
    refuse_loss_named(TOTAL, losses)
    backend = model.backend
    total_loss = TotalLoss(tuple(losses), tuple(losses.values()))
    if optimizers:
        total, each, predictions = _optimizer(model, optimizers).update(
            total_loss, data, label
        )
    else:
        with model.training_mode(training=False), backend.evaluating():
            total, each, predictions = total_loss(
                model, *backend.prepare((data, label), model)
            )
    values = {
        name: float(backend.numpy(value))
        for name, value in {TOTAL: total, **each}.items()
    }
    return values, nest.map_where(backend.is_array, model.nn.stop_gradient, predictions)


def prepare_batch(
    backend: Arrays,
    batch: Mapping[str, Any],
    input_device: Any,
    output_device: Any,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Return the arrays of a batch as native arrays on their devices.

    ``"data"`` is on the input device, all others on the output device.

    Floating arrays take the type `dtype`; whole numbers (labels) and truth values keep theirs; what
    is no array stays.
    """
    arrays = {}
    for key, value in batch.items():
        device = input_device if key == INPUT else output_device
        to_device = partial(_to_device, backend, device, dtype)
        arrays[key] = nest.map(to_device, value)
    return arrays


def _to_device(backend: Arrays, device: Any, dtype: str, leaf: Any) -> Any:
    """Return a leaf of a batch as a native array, floating ones in a type; others as they are."""
    is_host_array = isinstance(leaf, np.ndarray | np.generic)
    if not is_host_array and not backend.is_array(leaf):
        return leaf
    if is_host_array and leaf.dtype.kind in "OSU":  # objects and texts
        return leaf
    if isinstance(leaf, np.ndarray):
        leaf = plain(leaf)
    is_floating = (
        leaf.dtype.kind == "f" if is_host_array else "float" in str(leaf.dtype)
    )
    wanted = dtype if is_floating else None
    return backend.array(leaf, dtype=wanted, device=backend.check_device(device))


def entry(data_dict: Mapping[str, Any], key: str) -> Any:
    """Return the entry of a batch under a key.

    Raises:
        BatchError: There is no such key; the nearest is given.
    """
    refuse_unknown(key, data_dict, f"the batch has no {key!r}", BatchError)
    return data_dict[key]


def refuse_loss_named(total: str, losses: Mapping[str, Any]) -> None:
    """Refuse several losses of which one has the name under which their sum is returned.

    Raises:
        SettingError: Names the loss.
    """
    if len(losses) > 1 and total in losses:
        names = ", ".join(map(repr, losses))
        raise SettingError(
            f"a loss among {names} is called {total!r}, as their sum is: give it another name"
        )


def _optimizer(model: Any, optimizers: Mapping[str, Any]) -> Any:
    """Return the optimizer that makes the update; one of the framework's own is wrapped.

    Raises:
        SettingError: There is none called ``"default"``.
        ArgumentError: Wrapping it here would lose its state.
    """
    if MAIN not in optimizers:
        names = ", ".join(map(repr, optimizers))
        raise SettingError(f"closure updates by optimizers['{MAIN}']; there is {names}")
    optimizer = optimizers[MAIN]
    backend = model.backend
    if hasattr(optimizer, "pre_update_hooks"):
        return optimizer
    if not backend.optimizers_hold_state:
        raise ArgumentError(
            f"an optimizer of backend {backend.name!r} does not hold its state, which each step "
            "would begin anew: wrap it once, backend.wrap_optimizer(optimizer, network), and pass "
            "that"
        )
    return backend.wrap_optimizer(optimizer, model)
