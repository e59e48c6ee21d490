"""Evaluation and prediction: batch by batch, in evaluation mode, without changes to the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, is_dataclass
from functools import partial
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from deliralike import backends, data
from deliralike.errors import BatchError, SettingError, whole_number
from deliralike.inference.predictor import outputs_of
from deliralike.network.base import AbstractNetwork
from deliralike.network.batch_names import inputs_and_label, only_inputs
from deliralike.network.closure import INPUT, LABEL
from deliralike.parallel import ProcessGroup, SingleProcess
from deliralike.training.metrics import (
    Accuracy,
    CrossEntropy,
    Evidence,
    Metric,
    MetricFunction,
    accuracy,
    cross_entropy,
    metric,
)
from deliralike.training.metrics.evidence import concatenate
from deliralike.training.validation_losses import ValidationLosses

__all__ = [
    "CLASSIFICATION",
    "Metric",
    "Metrics",
    "accuracy",
    "concatenate",
    "cross_entropy",
    "evaluate",
    "predict",
]

_NOTHING = object()
AnyMetric = Metric | MetricFunction | str
Metrics = Mapping[str, AnyMetric] | Sequence[AnyMetric]
Inferer = Callable[[Any, Any], Any]


def evaluate(
    network: AbstractNetwork,
    data: Any,
    *,
    metrics: Metrics | None = None,
    batch_size: int = 512,
    device_batches: int = 2,
    intervals: bool | Mapping[str, Any] = False,
    losses: ValidationLosses | None = None,
    processes: ProcessGroup | None = None,
    between: Callable[[], None] | None = None,
    inferer: Inferer | None = None,
) -> dict[str, float]:
    """Evaluate a network on labelled samples.

    Metrics see the evidence of all samples at once: an average of batches would depend on where the
    batches end. Each metric's evidence of a batch is kept, not the outputs, unless a plain function
    needs these. Weights, buffers, gradients, random state and the mode of every block do not
    change, also when the network raises, and no graph is built.

    Args:
        data: ``(inputs, targets)`` as a tuple of arrays (such as `data.Samples`) or a dict with
            ``"data"`` and ``"label"``; an indexable dataset of such samples; a `data.Loader`, whose
            first epoch is taken; or any iterable of such batches, such as a ``DataLoader`` of
            PyTorch. Inputs may be a tuple for a network with several of them.
        metrics: A mapping by name, or a list under the metrics' own names: metrics, names for
            `metrics.metric`, or functions of (outputs, targets). Accuracy and cross-entropy
            (``"loss"``) when not given.
        batch_size: The size of batches of arrays and datasets; loaders and iterables have batches.
        device_batches: The number of batches on the device at once: the next is computed while the
            host evaluates the one before, where the framework does not wait for the device.
        intervals: Also return confidence intervals by bootstrap, ``"accuracy/low"`` and
            ``"accuracy/high"``. A mapping holds settings of `Evidence.interval`:
            ``{"groups": patients}``.
        losses: Losses of training to return as well, unless a metric has the name.
        between: A function to call after each batch; its errors end the evaluation.
        processes: The group of processes that take turns at the batches; every process makes the
            call, and gets the figures of all data.
        inferer: A function of inputs and network that computes the outputs, such as an
            `inference.SlidingWindowInferer`; a loss is that of these outputs too. (A step of the
            network's own still sees whole inputs.)

    Returns:
        The figures by name. A metric that has several adds theirs: ``"dice/mean"``.

    Raises:
        BatchError: A batch is not a pair of inputs and targets, they do not fit together, or there
            is none.
        SettingError: A metric is none, or two have the same name.
        UnknownName: There is no metric of that name.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = (np.zeros((5, 3), np.float32), np.zeros(5, np.int64))
        >>> sorted(evaluate(net, samples))
        ['accuracy', 'loss']
    """
    network = backends.wrap(network)
    evidence = {name: Evidence(each) for name, each in _named(metrics).items()}
    if processes is None:
        processes = SingleProcess()
    network.parallelism.synchronize()
    turns = Turns(
        batches_of(data, batch_size), processes, network.parallelism.evaluation_is_collective
    )
    pairs = map(_pair, turns)
    if losses is not None:
        losses = losses.without(evidence)
    evaluated = _evaluated(network, pairs, device_batches, losses, inferer)
    # The mode is held over all batches, as a network that is spread over processes is gathered for
    # it; and a loader's workers end here in any case.
    with network.training_mode(False), closing(evaluated):
        for outputs, targets in evaluated:
            for each in evidence.values():
                each.add(outputs, targets)
            if between is not None:
                between()
    of_all = partial(_of_all, processes, turns)
    for each in evidence.values():
        each.merge(of_all)
    if losses is not None:
        losses.merge(of_all)
    figures = _figures(evidence, intervals)
    if losses is None:
        return figures
    return losses.means() | figures


@dataclass
class Turns:
    """The batches of one of several processes that take turns at them.

    Attributes:
        together: Whether all processes make the same number of turns: those without a batch in the
            last round take its first batch, which does not count.
        total: The number of batches so far, of all processes.
    """

    batches: Iterable[Any]
    processes: ProcessGroup
    together: bool
    total: int = 0

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of this process."""
        rank = self.processes.rank
        count = self.processes.count
        first = None
        for batch in self.batches:
            turn = self.total % count
            self.total += 1
            if turn == 0:
                first = batch
            if turn == rank:
                yield batch
        if self.together and 0 < self.total % count <= rank:
            yield first


def _of_all(processes: ProcessGroup, turns: Turns, batches: list[Any]) -> list[Any]:
    """Return the results of all processes in the order of all batches, each of them once."""
    columns = processes.all_gather_object("what was seen in evaluation", batches)
    rounds = zip_longest(*columns, fillvalue=_NOTHING)
    in_order = [each for each in chain.from_iterable(rounds) if each is not _NOTHING]
    return in_order[: turns.total]


def predict(
    network: AbstractNetwork,
    inputs: Any,
    *,
    batch_size: int = 512,
    inferer: Inferer | None = None,
) -> Iterator[Any]:
    """Yield the outputs in evaluation mode as NumPy arrays, one nest for each batch in order.

    Memory does not grow with the number of batches. The mode is set for each batch and restored
    after it, so the network may be used between two batches, and the iterator may be left early.

    Args:
        inputs: An array of samples, or a tuple of them for a network with several inputs; or a
            loader or dataset as for `evaluate`, whose targets are left out.
        inferer: A function of inputs and network that computes the outputs; see `evaluate`.

    Raises:
        BatchError: The arrays differ in length, or there is no sample.
    """
    network = backends.wrap(network)
    for batch in _input_batches(inputs, batch_size):
        yield network.backend.to_numpy(_outputs(network, batch, inferer))


def _outputs(network: AbstractNetwork, batch: Any, inferer: Inferer | None) -> Any:
    """Return native outputs, those of an inferer if there is one."""
    if inferer is not None:
        return network.backend.prepare(inferer(batch, network), network)
    return outputs_of(network, batch if isinstance(batch, tuple) else (batch,))


def _evaluated(
    network: AbstractNetwork,
    pairs: Iterable[tuple[Any, Any]],
    ahead: int,
    losses: ValidationLosses | None,
    inferer: Inferer | None,
) -> Generator[tuple[Any, Any], None, None]:
    """Yield outputs and targets on the host, at most `ahead` batches behind the device."""
    whole_number("device_batches", ahead, 1)
    to_numpy = network.backend.to_numpy
    waiting: deque[tuple[Any, Any]] = deque()
    for inputs, targets in pairs:
        outputs = _outputs(network, inputs, inferer)
        if losses is not None:
            losses.add(network, outputs, inputs, targets)
        waiting.append((outputs, targets))
        if len(waiting) == ahead:
            yield to_numpy(waiting.popleft())
    while waiting:
        yield to_numpy(waiting.popleft())


# Data ---------------------------------------------------------------------------------------------


def batches_of(source: Any, batch_size: int) -> Iterator[Any]:
    """Return the batches of whatever holds labelled samples, in its own order where it has one."""
    if isinstance(source, tuple | Mapping):
        return data.batches(_pair(source), batch_size, shuffle=False)
    if hasattr(source, "batches"):
        return iter(source.batches(0))
    is_readable = isinstance(source, Iterable) or hasattr(source, "__getitem__")
    if not is_readable or isinstance(source, str | np.ndarray):
        raise BatchError(
            f"samples to judge by are {WANTED}, or batches of these, not a {type(source).__name__}"
        )
    if isinstance(source, list):
        return iter(source)
    return data.loader_of(source, batch_size=batch_size, shuffle=False).batches(0)


def _input_batches(inputs: Any, batch_size: int) -> Iterator[Any]:
    """Return the inputs of each batch, of arrays or of whatever holds samples."""
    is_nest = isinstance(inputs, tuple | Mapping) or is_dataclass(inputs)
    if is_nest or hasattr(inputs, "__array__"):
        return data.batches(inputs, batch_size, shuffle=False)
    loader = data.loader_of(inputs, batch_size=batch_size, shuffle=False)
    return map(_inputs, loader.batches(0))


def _inputs(batch: Any) -> Any:
    """Return the inputs of a batch with targets, or of one without."""
    if isinstance(batch, Mapping):
        return only_inputs(batch)
    if not isinstance(batch, tuple | list):
        return batch
    return batch[0] if len(batch) == 1 else _pair(batch)[0]


def _pair(batch: Any) -> tuple[Any, Any]:
    """Return the inputs and the targets of a batch."""
    if isinstance(batch, Mapping):
        return inputs_and_label(batch)
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        *inputs, targets = batch
        if len(inputs) == 1:
            return inputs[0], targets
        return tuple(inputs), targets
    what = type(batch).__name__
    if isinstance(batch, tuple | list):
        what += f" of length {len(batch)}"
    raise BatchError(f"samples to judge by are {WANTED}, not a {what}")


WANTED = f"a pair (inputs, targets) or a dict with {INPUT!r} and {LABEL!r}"


# Metrics ------------------------------------------------------------------------------------------


def _named(metrics: Metrics | None) -> dict[str, Metric | MetricFunction]:
    if metrics is None:
        return dict(CLASSIFICATION)
    if isinstance(metrics, Mapping):
        return {name: _metric(each) for name, each in metrics.items()}
    if isinstance(metrics, str | Metric) or not isinstance(metrics, Sequence):
        raise SettingError(
            f"metrics are a list, or a dict by name, not {metrics!r}: write metrics=[{metrics!r}]"
        )
    named: dict[str, Metric | MetricFunction] = {}
    for one in metrics:
        each = _metric(one)
        name = Evidence(each).metric.name
        if name in named:
            raise SettingError(
                f"two metrics are called {name!r}: give them names, metrics={{'one': …, 'two': …}}"
            )
        named[name] = each
    return named


def _metric(one: AnyMetric) -> Metric | MetricFunction:
    if isinstance(one, str):
        return metric(one)
    return one


def figure_names(metrics: Metrics | None) -> list[str]:
    """Return the names of figures; a metric with several puts its name before a slash."""
    return list(_named(metrics))


def _figures(
    evidence: Mapping[str, Evidence], intervals: bool | Mapping[str, Any]
) -> dict[str, float]:
    options = intervals if isinstance(intervals, Mapping) else {}
    figures: dict[str, float] = {}
    for name, each in evidence.items():
        figures |= _flat(name, each.value())
        if intervals is not False:
            for key, (low, high) in _flat(name, each.interval(**options)).items():
                figures[f"{key}/low"] = low
                figures[f"{key}/high"] = high
    return figures


def _flat(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    return {f"{name}/{key}": part for key, part in value.items()}


CLASSIFICATION: Mapping[str, Metric] = {"accuracy": Accuracy(), "loss": CrossEntropy()}
