"""The trainer: one for all backends. It takes batches, makes steps, evaluates, and tells callbacks."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from itertools import islice
from typing import Any

import numpy as np

from deliralike import backends, data, random, rules, steps
from deliralike.accumulation import count_samples
from deliralike.clipping import ClipNorm, ClipValue
from deliralike.closure import MAIN
from deliralike.errors import ArgumentError, SettingError, suggestion
from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer
from deliralike.parallel import Processes
from deliralike.training import alike, checkpoint, evaluation
from deliralike.training.averaging import WeightAverage
from deliralike.training.callbacks.callback import Callback
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.callbacks.writer import Writer
from deliralike.training.fingerprints import fingerprints
from deliralike.training.history import Epoch, History, Step
from deliralike.training.interrupt import Interrupt, Interrupted, deferred
from deliralike.training.run import Run
from deliralike.training.state import restore
from deliralike.training.validation_losses import ValidationLosses

RANDOM = ("portable", "native")
_END = object()


class Trainer:
    """Trains, evaluates and applies a network, the same way on every backend.

    Args:
        network: Written once or native, replicated or not.
        optimizer: An update rule, or an optimizer of the network's; or a mapping of several by name, where a rule
            under ``"default"`` updates all parameters, and one under another name those of the block of that name.
        losses: See `AbstractNetwork.train_step`; leave it out for a network whose own `train_step` knows its losses.
        metrics: What validation and `evaluate` judge by beside the losses; see `deliralike.training.evaluate`.
        callbacks: What watches the run.
        devices: Replicate the network over these.
        processes: Those that train together, as `deliralike.join` gives them: each makes the same calls with the same
            data, of which it loads its own shares; with an equal seed above all, as the order is drawn from it. What
            differs is refused at the start of `fit`. Losses and metrics are those of all data, and the root's callbacks
            write. The network may be one of `DistributedDataParallel` instead.
        precision: ``"bfloat16"`` or ``"float16"`` for a shorter type in the forward pass, in training, evaluation and
            prediction; see `compute_in`.
        average: Evaluate and predict with averaged weights: the decay of an exponential average, or a `WeightAverage`,
            which then follows each step.
        accumulate: How many batches make one update together; what the optimizers have when None.
        loss_scale: What float16 losses are multiplied by for backward, ``"dynamic"`` when None; see `LossScale.of`.
        clip_norm: The most that the joint norm of an update's gradients may be; or, with another norm,
            ``{"max_norm": 1.0, "norm_type": 1}``. See `ClipNorm`.
        clip_value: The most that an element of a gradient may be; see `ClipValue`.
        schedule: A factor on the learning rate for each update; see `deliralike.training.schedules`. A mapping by
            optimizer, where there are several.
        seed: Keys the order of the samples and the random layers.
        rng: ``"portable"`` draws the masks of random layers equal on every backend; ``"native"`` leaves them to the
            framework, which is faster.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))
        >>> history = Trainer(net, rules.rule("sgd", lr=0.5)).fit(samples, epochs=3, batch_size=4)
        >>> len(history.losses), bool(history.losses[-1] < history.losses[0])
        (6, True)
    """

    def __init__(
        self,
        network: AbstractNetwork,
        optimizer: rules.Rule | AbstractOptimizer | Mapping[str, rules.Rule | AbstractOptimizer],
        losses: steps.Losses | None = None,
        metrics: Mapping[str, Any] | None = None,
        callbacks: Iterable[Callback] = (),
        *,
        devices: Sequence[str] | None = None,
        processes: Processes | None = None,
        precision: str | None = None,
        average: float | WeightAverage | None = None,
        accumulate: int | None = None,
        loss_scale: str | float | Mapping[str, Any] | None = None,
        clip_norm: float | Mapping[str, Any] | ClipNorm | None = None,
        clip_value: float | None = None,
        schedule: Any = None,
        seed: int = 0,
        rng: str = "portable",
    ) -> None:
        """Bring the parts together; nothing is trained."""
        if rng not in RANDOM:
            raise SettingError(f"rng={rng!r} is unknown. {suggestion(rng, RANDOM)}")
        self.network = _spread(network, devices, processes)
        self.processes: Processes = self.network.parallelism.processes
        self.optimizers = _optimizers(self.network, optimizer)
        self.average = WeightAverage.of(self.network, average)
        self.losses, self.metrics = losses, metrics
        self.callbacks = sorted(callbacks, key=lambda callback: callback.runs_last)
        self.seed, self.rng = seed, rng
        for each in self.optimizers.values():
            if accumulate is not None:
                each.accumulate = accumulate
            if precision is not None or loss_scale is not None:
                each.compute_in(precision or each.precision, loss_scale)
            each.pre_update_hooks += [] if clip_norm is None else [ClipNorm.of(clip_norm)]
            each.pre_update_hooks += [] if clip_value is None else [ClipValue(clip_value)]
        self.precision = next((each.precision for each in self.optimizers.values() if each.precision is not None), None)
        self.schedules = _schedules(schedule, self.optimizers)
        self.base_lr = {name: optimizer.lr for name, optimizer in self.optimizers.items()}
        self._step_options = {} if losses is None else {"losses": losses}
        self._accumulate = max(each.accumulate for each in self.optimizers.values())
        if self._accumulate > 1:
            _warn_of_batch_norm(self.network, self._accumulate)

    @property
    def is_main(self) -> bool:
        """Of the processes that train together, whether this is the one that writes and shows."""
        return self.processes.is_root

    def fit(
        self,
        train: Any,
        validation: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        drop_last: bool = False,
        resume: str | os.PathLike[str] | None = None,
        accept: Sequence[str] = (),
    ) -> History:
        """Train in place; the same batches in the same order on every backend.

        Args:
            train: A `data.Loader`, or what makes one: arrays of equal length, an indexable dataset, an iterator of
                Chainer's.
            validation: Evaluated after every epoch; as `train`, but never shuffled.
            batch_size, drop_last: For data that are no loader yet.
            resume: A checkpoint to go on from; see `Checkpoint`. What follows is what would have followed there: the
                same numbers on the same backend, and the same to rounding on another. `epochs` counts from the first.
            accept: What may differ from the run of the checkpoint, by the names that the error gives: ``["loss"]``,
                ``["optimizer.default.lr", "clip_norm"]``; all below a name is meant. The run goes on with what is here.

        Returns:
            The losses and the time of every step, and the metrics of every epoch.

        Raises:
            SettingError: There is nothing to do.
            BatchError: The data do not fit together.
            UnknownName: A callback or schedule watches a metric that there will not be.
            ProcessError: The processes that train together have begun with other settings or other data; see
                `processes`.
            CheckpointError: There is no such checkpoint, it is damaged, or it is one of another run, such as one with
                other data, transforms, losses, rules or seed: what differs is named. Nothing was changed.
            KeyboardInterrupt: Ctrl-C, after the step in progress; callbacks have been told, and have saved. So do
                SIGTERM and SIGUSR1, by which a scheduler warns before it kills; see `Interrupted`. A signal to any
                process ends all of them after the same step.
        """
        if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 1:
            raise SettingError(f"epochs={epochs!r} must be a whole number of at least 1")
        train = self.network.backend.loader_of(train, self.seed, self.processes)
        loader = data.Loader.of(train, batch_size=batch_size, seed=self.seed, drop_last=drop_last)
        loader = loader.shared(self.processes.rank, self.processes.count) if self.processes.count > 1 else loader
        self._refuse_unknown_monitors(validation)
        run = Run(
            self,
            epochs,
            self._steps_in(loader),
            step=max(o.steps for o in self.optimizers.values()),
            loader=loader,
            validation=validation,
        )
        if resume is not None or self.callbacks:
            run.fingerprints, run.fingerprinted_at = fingerprints(run), run.step
        if resume is not None:
            with self.processes.telling(run.place):  # one process alone may know what differs
                restore(run, checkpoint.read(resume), accept)
        with self._with_others(run), deferred(self.processes, run.place) as interrupt:
            alike.refuse_unlike(run, validation)
            try:
                run.tell("on_start")
                while run.epoch < epochs and not run.stopped:
                    self._epoch(run, loader, validation, interrupt)
            except KeyboardInterrupt:
                run.interrupted = True
                raise
            finally:
                run.tell_all("on_end")
        return run.history

    @contextmanager
    def _with_others(self, run: Run) -> Iterator[None]:
        """Tell the other processes of an error; after a signal leave together, when the root has saved."""
        with self.processes.telling(run.place):
            try:
                yield
            except Interrupted:
                self.processes.exchange("the end of a run that a signal ended", None)
                raise

    def evaluate(
        self, samples: Any, *, batch_size: int = 512, intervals: bool | Mapping[str, Any] = False
    ) -> dict[str, float]:
        """Judge the network on labelled samples by its losses and metrics; it stays as it is.

        Args:
            batch_size, intervals: See `deliralike.training.evaluate`.
        """
        return self._evaluate(samples, batch_size=batch_size, intervals=intervals)

    def _evaluate(
        self,
        samples: Any,
        batch_size: int = 512,
        intervals: bool | Mapping[str, Any] = False,
        between: Callable[[], None] | None = None,
    ) -> dict[str, float]:
        samples = self.network.backend.loader_of(samples, self.seed, self.processes)
        with self._judged():
            return evaluation.evaluate(
                self.network, samples, metrics={} if self.metrics is None else self.metrics, batch_size=batch_size,
                intervals=intervals, losses=ValidationLosses(self.losses), processes=self.processes,
                between=between,
            )  # fmt: skip

    def predict(self, inputs: Any, *, batch_size: int = 512) -> Iterator[Any]:
        """The outputs in evaluation mode, batch by batch; see `predict`."""
        outputs = evaluation.predict(self.network, inputs, batch_size=batch_size)
        while True:
            with self._judged():  # for each batch: between two of them the network may be used
                batch = next(outputs, _END)
            if batch is _END:
                return
            yield batch

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """The network as it is judged: with averaged weights, in the precision of the forward pass."""
        with ExitStack() as contexts:
            if self.average is not None:
                contexts.enter_context(self.average.applied())
            if self.precision is not None:
                contexts.enter_context(self.network.backend.computing_in(self.precision))
            yield

    def _steps_in(self, loader: data.Loader) -> int | None:
        try:
            return -(-len(loader) // self._accumulate)
        except TypeError:  # a stream
            return None

    # One epoch -------------------------------------------------------------------------------------------------------

    def _epoch(self, run: Run, loader: data.Loader, validation: Any, interrupt: Interrupt) -> None:
        batches: Any = loader.batches(run.epoch, run.batch)
        with self.network.training_mode(True), closing(batches):
            for window, waited in _timed(_windows(batches, self._accumulate)):
                step = self._step(run, window, waited)
                run.history.steps.append(step)
                run.tell("on_step", step)
                if run.stopped:
                    break
                interrupt.check()
        self.network.parallelism.synchronize()
        if run.stopped:
            return
        begin = time.perf_counter()
        judged = {} if validation is None else self._validate(validation, interrupt)
        evaluated = time.perf_counter() - begin
        run.epoch, run.batch = run.epoch + 1, 0
        run.history.epochs.append(Epoch(run.epoch - 1, run.step, judged, evaluated))
        self._tell_schedules(run.history.epochs[-1])
        run.tell("on_epoch", run.history.epochs[-1])
        interrupt.check()

    def _validate(self, validation: Any, interrupt: Interrupt) -> dict[str, float]:
        """Figures of validation data; a signal ends it after a batch, where no other process is to end after the same.

        The run is then at the end of its epoch, which is validated when it is resumed.
        """
        if type(self).evaluate is not Trainer.evaluate:
            return self.evaluate(validation)
        return self._evaluate(validation, between=interrupt.check if self.processes.count == 1 else None)

    def _refuse_unknown_monitors(self, validation: Any) -> None:
        """An error before training where a metric is watched that there will not be, as far as that is known."""
        watched = [each.metric for each in self.schedules.values() if each.metric is not None]
        monitors = [Monitor(metric) for metric in watched]
        found = [getattr(each, "monitor", None) for each in self.callbacks]
        monitors += [each for each in found if isinstance(each, Monitor)]
        losses = ValidationLosses(self.losses).names(self.network)
        if any(map(_may_add_figures, self.callbacks)) or (losses is None and validation is not None):
            return
        names = [] if validation is None else [*evaluation.figure_names(self.metrics or {}), *(losses or ())]
        for monitor in monitors:
            if validation is None:
                monitor.value(Epoch(0, 0))
            monitor.refuse_unknown(list(dict.fromkeys(names)))

    def _step(self, run: Run, window: list[Any], waited: float) -> Step:
        begin, run.in_step = time.perf_counter(), True
        self._follow_schedules()
        lr = {name: optimizer.lr for name, optimizer in self.optimizers.items()}
        updates = 0 if self.average is None else self._updates()
        with self._chance(run):
            results = [self._train_step(run, number, batch) for number, batch in enumerate(window, run.batch)]
            for optimizer in self.optimizers.values():
                optimizer.flush()
        if self.average is not None and self._updates() > updates:
            self.average.update()
        sizes = [self._samples(run, number, batch) for number, batch in enumerate(window, run.batch)]
        losses = self._means(results, sizes)  # waits for the device
        run.step, run.batch, run.latest_batches = run.step + 1, run.batch + len(window), window
        run.in_step = False
        loss = losses.get(steps.TOTAL, sum(losses.values()))
        one_lr = lr if len(lr) > 1 else next(iter(lr.values()))
        seconds = time.perf_counter() - begin
        return Step(run.step - 1, run.epoch, loss, seconds, sum(sizes), losses, one_lr, waited)

    def _train_step(self, run: Run, number: int, batch: Any) -> Any:
        """A step on a batch, or on this process's share of it."""
        with ExitStack() as contexts:
            if self.processes.count > 1 and not run.loader.share_sizes(run.epoch, number)[self.processes.rank]:
                contexts.enter_context(self.network.parallelism.empty_share())
            return self.network.train_step(batch, self.optimizers, **self._step_options)

    def _samples(self, run: Run, number: int, batch: Any) -> int:
        """The samples of a batch, in all processes."""
        return count_samples(batch) if self.processes.count == 1 else sum(run.loader.share_sizes(run.epoch, number))

    def _updates(self) -> int:
        return sum(optimizer.steps for optimizer in self.optimizers.values())

    def _tell_schedules(self, epoch: Epoch) -> None:
        """Give each schedule the metric that it watches; one that several optimizers share sees it once."""
        for schedule in {id(each): each for each in self.schedules.values()}.values():
            if schedule.metric is not None:
                schedule.observe(Monitor(schedule.metric).value(epoch))

    def _follow_schedules(self) -> None:
        for name, schedule in self.schedules.items():
            optimizer = self.optimizers[name]
            lr = self.base_lr[name] * schedule.factor(optimizer.steps)
            if lr != optimizer.lr:
                optimizer.lr = lr

    def _chance(self, run: Run) -> AbstractContextManager[Any]:
        return random.portable(self.seed, run.step) if self.rng == "portable" else nullcontext()

    def _means(self, results: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> dict[str, float]:
        """Each loss of a window as a number: its mean over the samples."""
        if not isinstance(results[0], Mapping):
            raise ArgumentError(f"train_step of {type(self.network).__name__} gave a {type(results[0]).__name__}: it "
                                f"returns its losses by name, {{'loss': value}}")  # fmt: skip
        number = self.network.backend.number
        on_host = [{name: number(value) for name, value in result.items()} for result in results]
        if len(on_host) == 1:
            return on_host[0]
        return {name: float(np.average([each[name] for each in on_host], weights=sizes)) for name in on_host[0]}


def _spread(
    network: AbstractNetwork, devices: Sequence[str] | None, processes: Processes | None
) -> AbstractNetwork:  # fmt: skip
    """The network over devices or processes, if there are any; a native one is wrapped in any case."""
    network = backends.wrap(network)
    if processes is not None and processes.count > 1 and network.parallelism.processes is not processes:
        if devices is not None and len(devices) > 1:
            raise SettingError("devices and processes: start one process for each device, and leave devices out")
        return backends.DistributedDataParallel(network, processes)
    return network if devices is None else backends.DataParallel(network, devices)


def _warn_of_batch_norm(network: AbstractNetwork, accumulate: int) -> None:
    """Say that batch normalisation does not see the batches that make one update as one."""
    owners = [name.rpartition(".")[0] for name in network.neutral_slots() if name.endswith("running_mean")]
    if owners:
        warnings.warn(
            f"accumulate={accumulate} with batch normalisation ({len(owners)} layers, first {owners[0]!r}): each batch "
            f"is normalised by itself, so an update is not that of one batch of {accumulate} times the size. Group or "
            f"layer normalisation has no such difference",
            stacklevel=3,
        )


def _optimizers(network: AbstractNetwork, given: Any) -> dict[str, AbstractOptimizer]:
    """The optimizers by name; rules become optimizers of the network."""
    named = given if isinstance(given, Mapping) else {MAIN: given}
    if not named:
        raise SettingError("there is no optimizer: give an update rule, an optimizer, or a mapping of them by name")
    return {name: _optimizer(network, name, each) for name, each in named.items()}


def _optimizer(network: AbstractNetwork, name: str, given: Any) -> AbstractOptimizer:
    if isinstance(given, rules.Rule):
        return network.backend.optimizer(given, network, parameters=None if name == MAIN else f"{name}.*")
    if not isinstance(given, AbstractOptimizer):
        raise ArgumentError(
            f"optimizer {name!r} is a {type(given).__name__}, wanted a rule such as rules.rule('adam', lr=1e-3), "
            f"or an optimizer from backend.optimizer or backend.wrap_optimizer"
        )
    if given.network is not network:
        raise ArgumentError(
            f"optimizer {name!r} updates another network than the one that is trained; with devices= there is a "
            f"replicated one: give an update rule instead"
        )
    return given


def _schedules(schedule: Any, optimizers: Mapping[str, AbstractOptimizer]) -> dict[str, Any]:
    named = (
        {} if schedule is None else schedule if isinstance(schedule, Mapping) else dict.fromkeys(optimizers, schedule)
    )
    for name in named:
        if name not in optimizers:
            raise SettingError(f"there is no optimizer {name!r} for a schedule. {suggestion(name, optimizers)}")
    return dict(named)


def _timed(items: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Each item with the seconds that it took to come."""
    begin = time.perf_counter()
    for item in items:
        yield item, time.perf_counter() - begin
        begin = time.perf_counter()  # whoever took the item is done with it


def _may_add_figures(callback: Callback) -> bool:
    """Whether a callback may put figures of its own among an epoch's: it sees them, and does not only record."""
    only_records = isinstance(callback, Writer) or isinstance(getattr(callback, "monitor", None), Monitor)
    return getattr(type(callback), "on_epoch", None) is not Callback.on_epoch and not only_records


def _windows(batches: Iterable[Any], count: int) -> Iterator[list[Any]]:
    """Lists of `count` batches; the last one may have fewer."""
    iterator = iter(batches)
    while window := list(islice(iterator, min(count, sys.maxsize))):
        yield window
