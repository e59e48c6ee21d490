"""Evaluation and prediction: batch by batch, in evaluation mode, without changes to the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from itertools import chain, islice, zip_longest
from typing import Any

from deliralike import backends, data
from deliralike.data.batching import on_host
from deliralike.data.loader import Loader
from deliralike.data.source import is_indexable
from deliralike.errors import BatchError, SettingError
from deliralike.inference.predictor import outputs_of
from deliralike.network.base import AbstractNetwork
from deliralike.network.batch_names import only_inputs
from deliralike.network.closure import INPUT, LABEL
from deliralike.network.inputs import grouped, inputs_of_unlabelled, positional_inputs
from deliralike.network.steps import TOTAL, Losses, inputs_and_target
from deliralike.network.wrapper import has_own
from deliralike.parallel import ProcessGroup, SingleProcess
from deliralike.training.metrics import (
    Accuracy,
    CrossEntropy,
    Evidence,
    Metric,
    MetricFunction,
    as_metric,
    metric,
)
from deliralike.training.validation_losses import ValidationLosses

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
    intervals: bool | Mapping[str, Any] = False,
    losses: ValidationLosses | Losses | None = None,
    processes: ProcessGroup | None = None,
    between: Callable[[], None] | None = None,
    inferer: Inferer | None = None,
    inputs: int | None = None,
) -> dict[str, float]:
    """Evaluate a network on labelled samples.

    Metrics see the evidence of all samples at once: an average of batches would depend on where the
    batches end. Each metric's evidence of a batch is kept, not the outputs, unless a plain function
    needs these. Weights, buffers, gradients, random state and the mode of every block do not
    change, also when the network raises, and no graph is built.

    Args:
        data: ``(inputs, targets)`` as a tuple of arrays (such as `data.Samples`) or a dict with
            ``"data"`` and ``"label"``; an indexable dataset of such samples, or a list of them; a
            `data.Loader`, whose first epoch is taken, unshuffled and whole; or any other iterable
            of such batches, such as a ``DataLoader`` of PyTorch or a generator. Inputs may be a
            tuple for a network with several of them.
        metrics: A mapping by name, or a list under the metrics' own names: metrics, names for
            `metrics.metric`, or functions of (outputs, targets). Accuracy and cross-entropy
            (``"loss"``) when not given.
        batch_size: The size of batches of arrays and datasets; loaders and iterables have batches.
        intervals: Also return confidence intervals by bootstrap, ``"accuracy/low"`` and
            ``"accuracy/high"``. A mapping holds settings of `Evidence.interval`:
            ``{"level": 0.9}``.
        losses: Losses to return as well, unless a metric has the name: functions of (prediction,
            target) by name, or one of ``(network, *inputs, target)``, as a trainer has them.
        between: A function to call after each batch; its errors end the evaluation.
        processes: The group of processes that take turns at the batches; every process makes the
            call, and gets the figures of all data.
        inferer: A function of inputs and network that computes the outputs, such as an
            `inference.SlidingWindowInferer`; a loss is that of these outputs too. (A step of the
            network's own still sees whole inputs.)
        inputs: The number of a batch's parts that are inputs, where it is a tuple: all but the last
            when not given, of which the network gets as many as it takes. With
            ``(image, label, weight)`` and 1 the target is ``(label, weight)``.

    Returns:
        The figures by name. A metric that has several adds theirs: ``"dice/mean"``.

    Raises:
        BatchError: A batch is not a pair of inputs and targets, they do not fit together, or there
            is none.
        SettingError: A metric is none, or two have the same name.
        UnknownName: There is no metric of that name.

    Example:
        >>> import numpy as np
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = (np.zeros((5, 3), np.float32), np.zeros(5, np.int64))
        >>> sorted(evaluate(net, samples))
        ['accuracy', 'loss']
    """
    network = backends.wrap(network)
    evidence = _evidence(metrics)
    if processes is None:
        processes = SingleProcess()
    network.parallelism.synchronize()
    loader = _loader(network, data, batch_size)
    if isinstance(loader, Loader) and loader.reads_all:
        loader = loader.in_order()
    turns = Turns(
        loader.batches(0), processes, network.parallelism.evaluation_is_collective
    )
    if losses is not None:
        if not isinstance(losses, ValidationLosses):
            losses = ValidationLosses(losses)
        losses = losses.without(evidence)
    _collect(network, turns, evidence, losses, inferer, inputs, between)
    of_all = partial(_of_all, processes, turns)
    for each in evidence.values():
        each.merge(of_all)
    if losses is not None:
        losses.merge(of_all)
    figures = _figures(evidence, intervals)
    if losses is None:
        return figures
    return losses.means() | figures


def evaluate_first_batch(
    network: AbstractNetwork,
    source: Any,
    metrics: Metrics,
    losses: ValidationLosses,
    inferer: Inferer | None,
    inputs: int | None,
) -> list[str]:
    """Raise the errors that the first batch has in evaluation; return the names of its losses.

    The figures of metrics are not computed: those of a part of the samples may not exist.
    """
    evidence = _evidence(metrics)
    losses_left = losses.without(evidence)
    with closing(_loader(network, source, batch_size=512).batches(0)) as batches:
        first = islice(batches, 1)
        _collect(network, first, evidence, losses_left, inferer, inputs)
    return [] if losses_left is None else list(losses_left.means())


def _collect(
    network: AbstractNetwork,
    batches: Iterable[Any],
    evidence: Mapping[str, Evidence],
    losses: ValidationLosses | None,
    inferer: Inferer | None,
    inputs: int | None,
    between: Callable[[], None] | None = None,
) -> None:
    """Give metrics and losses what they need of each batch."""
    evaluated = _evaluated(
        network, batches, losses, inferer, inputs, has_metrics=bool(evidence)
    )
    # The mode is held over all batches, as a network that is spread over processes is gathered for
    # it; and a loader's workers end here in any case.
    with network.training_mode(False), closing(evaluated):
        for compared in evaluated:
            for each in evidence.values():
                each.add(*compared)  # type: ignore[misc]  # there is a metric
            if between is not None:
                between()


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
    samples: Any,
    *,
    batch_size: int = 512,
    inferer: Inferer | None = None,
    inputs: int | None = None,
) -> Iterator[Any]:
    """Yield the outputs in evaluation mode as NumPy arrays, one nest for each batch in order.

    Memory does not grow with the number of batches. The mode is set for each batch and restored
    after it, so the network may be used between two batches, and the iterator may be left early.

    Args:
        samples: An array of samples, or a tuple of them for a network with several inputs; or a
            loader or dataset as for `evaluate`, whose targets are left out. A loader that shuffles
            is read in the order of its data, whole.
        inferer: A function of inputs and network that computes the outputs; see `evaluate`.
        inputs: The number of a sample's parts that are inputs, where it is a tuple. When not given,
            it is the number that the network takes; of a network that takes any number
            (``forward(self, *inputs)``), all but the last, the target.

    Raises:
        BatchError: The arrays differ in length, are more than the network has inputs, or there is
            no sample; or the network may take a sample's last part or not, and `inputs` does not
            say it.
        SettingError: A loader has an order of its own: the rows would be those of other samples.
    """
    network = backends.wrap(network)
    for batch in _input_batches(network, samples, batch_size, inputs):
        yield network.backend.to_numpy(_outputs(network, batch, inferer))


def _outputs(
    network: AbstractNetwork, inputs: tuple[Any, ...], inferer: Inferer | None
) -> Any:
    """Return native outputs, those of an inferer if there is one."""
    if inferer is None:
        return outputs_of(network, inputs)
    several = inputs[0] if len(inputs) == 1 else inputs
    return network.backend.prepare(inferer(several, network), network)


def _outputs_of_batch(
    network: AbstractNetwork, batch: Any, inferer: Inferer | None
) -> Any:
    """Return native outputs for as many inputs of a batch with a target as the network takes."""
    inputs, _ = inputs_and_target(batch)
    _, most = positional_inputs(network)
    if 0 < most < len(inputs):
        inputs = inputs[: int(most)]
    return _outputs(network, inputs, inferer)


def _evaluated(
    network: AbstractNetwork,
    batches: Iterable[Any],
    losses: ValidationLosses | None,
    inferer: Inferer | None,
    inputs: int | None,
    *,
    has_metrics: bool,
) -> Generator[tuple[Any, Any] | None, None, None]:
    """Yield outputs and targets on the host, one batch behind the device, which goes on meanwhile.

    The network is called only where its outputs are asked for: a loss or a step of its own may call
    it in another way. Without metrics None takes their place.
    """
    to_numpy = network.backend.to_numpy
    waiting: deque[tuple[Any, Any] | None] = deque()
    for whole in batches:
        batch = grouped(whole, inputs)
        outputs = cache(partial(_outputs_of_batch, network, batch, inferer))
        if losses is not None:
            losses.add(
                network, whole if has_own(network, "val_step") else batch, outputs
            )
        waiting.append(
            (outputs(), inputs_and_target(batch)[1]) if has_metrics else None
        )
        if len(waiting) > 1:
            yield to_numpy(waiting.popleft())
    while waiting:
        yield to_numpy(waiting.popleft())


# Data ---------------------------------------------------------------------------------------------


def _loader(network: AbstractNetwork, source: Any, batch_size: int) -> Any:
    """Return a loader of whatever holds samples or batches, in the order of the data if shuffled.

    Raises:
        BatchError: Nothing of the kind.
    """
    is_readable = isinstance(source, Iterable) or hasattr(source, "__getitem__")
    if not (is_readable or hasattr(source, "batches")) or isinstance(source, str):
        raise BatchError(
            f"samples to evaluate are {WANTED}, a dataset of such samples, or batches of them, not "
            f"a {type(source).__name__}"
        )
    source = backends.of(network).loader_of(source, 0, SingleProcess())
    if hasattr(source, "batches") and not isinstance(source, Loader):
        return source
    return data.loader_of(source, batch_size=batch_size, shuffle=False)


def _input_batches(
    network: AbstractNetwork, source: Any, batch_size: int, inputs: int | None
) -> Iterator[tuple[Any, ...]]:
    """Return the inputs of each batch, of arrays or of whatever holds samples."""
    if isinstance(source, data.Samples):
        source = source.inputs
    is_record = is_dataclass(source) and not is_indexable(source)
    is_nest = isinstance(source, tuple | Mapping) or is_record
    if is_nest or hasattr(source, "__array__"):
        most = positional_inputs(network)[1]
        if type(source) is tuple and len(source) > most > 0:
            raise BatchError(
                f"predict: the samples are a tuple of {len(source)} arrays, and the network takes "
                f"{most:g} inputs: give the inputs alone, without targets"
            )
        arrays = data.Loader(on_host(source), batch_size, shuffle=False)
        for batch in arrays.batches():
            yield batch if type(batch) is tuple else (batch,)
        return
    loader = _loader(network, source, batch_size)
    if isinstance(loader, Loader):
        loader = loader.in_order()
    for batch in loader.batches(0):
        if isinstance(batch, Mapping):
            yield (only_inputs(batch),)
        elif isinstance(batch, tuple | list):
            yield inputs_of_unlabelled(network, batch, inputs)
        else:
            yield (batch,)


WANTED = f"a pair (inputs, targets) or a dict with {INPUT!r} and {LABEL!r}"


# Metrics ------------------------------------------------------------------------------------------


def _evidence(metrics: Metrics | None) -> dict[str, Evidence]:
    return {name: Evidence(each) for name, each in metrics_by_name(metrics).items()}


def metrics_by_name(metrics: Metrics | None) -> dict[str, Metric]:
    """Return metrics by the names that their figures have, or begin with."""
    if metrics is None:
        return dict(CLASSIFICATION)
    if isinstance(metrics, Mapping):
        return {name: _metric(each, name) for name, each in metrics.items()}
    if isinstance(metrics, str | Metric) or not isinstance(metrics, Sequence):
        raise SettingError(
            f"metrics are a list, or a dict by name, not {metrics!r}: write metrics=[{metrics!r}]"
        )
    named: dict[str, Metric] = {}
    for each in map(_metric, metrics):
        if each.name in named:
            raise SettingError(
                f"two metrics are called {each.name!r}: give them names, metrics={{'one': …, "
                "'two': …}"
            )
        named[each.name] = each
    return named


def _metric(one: AnyMetric, name: str = "") -> Metric:
    if isinstance(one, str):
        return metric(one)
    if isinstance(one, Metric):
        return one
    found = as_metric(one)
    found.name = name or found.name
    return found


def refuse_named_as_losses(metrics: Metrics, losses: Losses | None) -> None:
    """Refuse metrics in whose place the results have losses.

    The cross-entropy is called as the sum of all losses is, and may stand for the only one.

    Raises:
        SettingError: A metric has the name of a loss, or that of the sum of all.
    """
    names = list(losses) if isinstance(losses, Mapping) else []
    for name, each in metrics_by_name(metrics).items():
        is_only_loss = isinstance(each, CrossEntropy) and len(names) < 2
        if name == TOTAL and is_only_loss:
            continue
        if name in (TOTAL, *names):
            raise SettingError(
                f"metrics: {name!r} is the name of a loss, whose figures it would replace: give "
                f"the metric another, metrics={{'{name}_metric': ...}}"
            )


def figures_of(outputs: Any, targets: Any, metrics: Metrics) -> dict[str, float]:
    """Return the figures of metrics for outputs that have been computed, by name.

    Raises:
        BatchError: Outputs and targets do not fit together.
    """
    evidence = _evidence(metrics)
    for each in evidence.values():
        each.add(outputs, targets)
    return _figures(evidence, False)


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
