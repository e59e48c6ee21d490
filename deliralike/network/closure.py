"""One training or evaluation step from dictionaries, by the names that delira's users know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import ArgumentError, BatchError, SettingError, suggestion
from deliralike.nest.arrays import Arrays
from deliralike.nest.host_arrays import plain

INPUT, LABEL, MAIN = "data", "label", "default"
PREDICTION, TOTAL = "pred", "total"


@dataclass(frozen=True)
class TotalLoss:
    """The sum of named losses ``loss(prediction, label)``; equal ones share a compiled program."""

    names: tuple[str, ...]
    functions: tuple[Callable[..., Any], ...]

    def __call__(
        self, network: Any, data: Any, label: Any
    ) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """The total, each loss by its name, and the predictions."""
        predictions = named_predictions(network(data))
        prediction = predictions.get(PREDICTION, next(iter(predictions.values())))
        total, each = sum_of_losses(self.names, self.functions, prediction, label)
        return total, each, predictions


def sum_of_losses(
    names: Sequence[str], functions: Sequence[Callable[..., Any]], prediction: Any, target: Any
) -> tuple[Any, dict[str, Any]]:
    """The sum of losses ``function(prediction, target)``, and each of them by name."""
    first, *others = [function(prediction, target) for function in functions]
    return sum(others, start=first), dict(zip(names, [first, *others], strict=True))


def closure(
    model: Any,
    data_dict: Mapping[str, Any],
    optimizers: Mapping[str, Any] | None,
    losses: Mapping[str, Callable[..., Any]],
    iter_num: int = 0,
    fold: int = 0,
    **kwargs: Any,
) -> tuple[dict[str, float], dict[str, Any]]:
    """One step on a batch: predict, sum the losses, and (with an optimizer) update.

    Args:
        model: The network, replicated or not.
        data_dict: ``"data"`` for the network and ``"label"`` for the losses.
        optimizers: ``"default"`` makes the update. Empty or None to evaluate, which builds no
            graph, leaves no trace.
        losses: Functions ``loss(prediction, label)``; their sum is minimised. Of a network that
            gives a dict, the prediction is what it calls ``"pred"``, or else its first entry.
        iter_num: The number of this step, for subclasses.
        fold: The number of this fold, for subclasses.

    Returns:
        The losses as numbers, with their sum as ``"total"``; the predictions by name (``"pred"``
        unless the network gives a dict), as native arrays without a graph.

    Raises:
        BatchError: `data_dict` lacks a key.
        SettingError: There is no loss, one of several has the name of their sum, or optimizers
            without ``"default"``.
    """
    data, label = (taken(data_dict, key) for key in (INPUT, LABEL))
    if not losses:
        raise SettingError(
            "closure needs at least one loss: losses={'name': function of (prediction, label)}"
        )
    refuse_loss_named(TOTAL, losses)
    total_loss, backend = TotalLoss(tuple(losses), tuple(losses.values())), model.backend
    if optimizers:
        total, each, predictions = _optimizer(model, optimizers).update(total_loss, data, label)
    else:
        with model.training_mode(False), backend.evaluating():
            total, each, predictions = total_loss(model, *backend.prepare((data, label), model))
    values = {name: float(backend.numpy(value)) for name, value in {TOTAL: total, **each}.items()}
    return values, nest.map(
        lambda leaf: model.nn.stop_gradient(leaf) if backend.is_array(leaf) else leaf, predictions
    )


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

    def moved(key: str, leaf: Any) -> Any:
        if (
            not (isinstance(leaf, np.ndarray | np.generic) or backend.is_array(leaf))
            or _kind(leaf) in "OSU"
        ):
            return leaf
        leaf = plain(leaf) if isinstance(leaf, np.ndarray) else leaf
        device = backend.check_device(input_device if key == INPUT else output_device)
        return backend.array(leaf, dtype=dtype if _kind(leaf) == "f" else None, device=device)

    return {
        key: nest.map(lambda leaf, key=key: moved(key, leaf), value) for key, value in batch.items()
    }


def named_predictions(outputs: Any) -> dict[str, Any]:
    """A network's outputs by name."""
    return dict(outputs) if isinstance(outputs, Mapping) else {PREDICTION: outputs}


def _kind(leaf: Any) -> str:
    return (
        leaf.dtype.kind
        if isinstance(leaf, np.ndarray | np.generic)
        else "f"
        if "float" in str(leaf.dtype)
        else "i"
    )


def taken(data_dict: Mapping[str, Any], key: str) -> Any:
    """What a batch has under a key.

    Raises:
        BatchError: There is no such key; the nearest is given.
    """
    if key not in data_dict:
        raise BatchError(f"the batch has no {key!r}. {suggestion(key, data_dict)}")
    return data_dict[key]


def refuse_loss_named(total: str, losses: Mapping[str, Any]) -> None:
    """An error when one of several losses has the name under which their sum comes back.

    Raises:
        SettingError: Names the loss.
    """
    if len(losses) > 1 and total in losses:
        names = ", ".join(map(repr, losses))
        raise SettingError(
            f"a loss among {names} is called {total!r}, as their sum is: give it another name"
        )


def _optimizer(model: Any, optimizers: Mapping[str, Any]) -> Any:
    if MAIN not in optimizers:
        raise SettingError(
            f"closure updates by optimizers['{MAIN}']; there is {', '.join(map(repr, optimizers))}"
        )
    given, backend = optimizers[MAIN], model.backend
    if hasattr(given, "pre_update_hooks"):
        return given
    if not backend.optimizers_hold_state:
        raise ArgumentError(
            f"an optimizer of backend {backend.name!r} does not hold its state, which each step "
            "would begin anew: wrap it once, backend.wrap_optimizer(optimizer, network), and pass "
            "that"
        )
    return backend.wrap_optimizer(given, model)
