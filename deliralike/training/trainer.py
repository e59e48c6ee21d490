"""The trainer of all backends, which takes batches, makes steps, evaluates, and calls callbacks."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
)
from itertools import islice
from typing import Any, NoReturn

from deliralike import backends, data, nest, random
from deliralike.errors import (
    ArgumentError,
    OptimizerError,
    SettingError,
    UnknownName,
    refuse_unknown,
    refuse_unknown_word,
    whole_number,
)
from deliralike.network import steps
from deliralike.network.base import AbstractNetwork
from deliralike.network.closure import MAIN
from deliralike.network.freezing import trained
from deliralike.network.inputs import grouped
from deliralike.network.wrapper import has_own
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm, ClipValue
from deliralike.optim.groups import Settings
from deliralike.optim.layer_decay import groups_by_depth
from deliralike.optim.loss import count_samples
from deliralike.optim.optimizer import AbstractOptimizer, known_lr
from deliralike.parallel import ProcessGroup
from deliralike.parallel.replicas.network import BUFFERS
from deliralike.setting_types import refuse_other_types
from deliralike.terminal import warn
from deliralike.training import checkpoint, evaluation
from deliralike.training.averaging import WeightAverage
from deliralike.training.callbacks.callback import Callback, Writer
from deliralike.training.callbacks.checkpoint import Checkpoint, Checkpoints
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.history import Epoch, History, Step
from deliralike.training.identity.fingerprints import fingerprints
from deliralike.training.identity.processes import refuse_differing
from deliralike.training.interrupt import Interrupt, Interrupted, deferred
from deliralike.training.run import Run
from deliralike.training.schedules import schedule_of
from deliralike.training.state import restore, without_side_effects
from deliralike.training.user_lines import UserLinesFirst
from deliralike.training.validation_losses import ValidationLosses

RANDOM = ("portable", "native")
_END = object()


class Trainer:
    """Training, evaluation and prediction of a network, in the same way on every backend.

    Args:
        network: A network, written once or native (a ``torch.nn.Module``, ``chainer.Chain`` or
            ``flax.nnx.Module``, which is wrapped and trained itself), replicated or not.
        optimizer: An update rule, or an optimizer of the network's, which may be one of its
            framework; or a mapping of several by name, where a rule under ``"default"`` updates all
            parameters, and one under another name those of the block of that name.
        losses: See `AbstractNetwork.train_step`; leave it out for a network whose own `train_step`
            knows its losses.
        metrics: The metrics of validation and `evaluate` beside the losses; see
            `deliralike.training.evaluate`.
        callbacks: The callbacks that watch the run.
        devices: The devices over which to replicate the network.
        processes: The group of processes that train together, from `deliralike.join`. Each makes
            the same calls with the same data, of which it loads its own shares, and with the same
            seed, from which the order is drawn; `fit` refuses differences. Losses and metrics are
            those of all data, and the root's callbacks write. The network may be one of
            `DistributedDataParallel` instead.
        buffers: How replicas and processes combine buffers, see `ReplicaSettings`: with ``"sync"``
            batch norms have the statistics of the whole batch, and a run the figures of a single
            device.
        precision: ``"bfloat16"`` or ``"float16"`` for a shorter type in the forward pass, in
            training, evaluation and prediction; see `compute_in`.
        average: Evaluate and predict with averaged weights: the decay of an exponential average, or
            a `WeightAverage`, which then follows each step.
        accumulate: The number of batches of one update; that of the optimizers when None.
        loss_scale: The factor on float16 losses for backward, ``"dynamic"`` when None; see
            `LossScale.of`.
        clip_norm: The largest joint norm of an update's gradients; or, with another norm,
            ``{"max_norm": 1.0, "norm_type": 1}``. See `ClipNorm`.
        clip_value: The largest magnitude of an element of a gradient; see `ClipValue`.
        schedule: A factor on the learning rate for each update: a schedule of
            `deliralike.training.schedules`, or its name, ``"cosine"``, or a mapping with its name
            and settings, ``{"name": "warmup", "steps": 100, "then": "cosine"}``, whose length is
            that of the run where it is left out; see `schedule_of`. A mapping by optimizer, where
            there are several.
        groups: Other settings for parameters whose names match a pattern, where `optimizer` is one
            rule: ``{"*.bias": {"weight_decay": 0.0}, "body.*": {"lr": 0.001}}``; see `Groups`.
        layer_decay: By how much the learning rate of that rule falls from a layer to the one before
            it: 0.75 is usual for fine-tuning transformers; see `groups_by_depth`.
        seed: The seed of the order of the samples and of the random layers.
        rng: ``"portable"`` draws the masks of random layers equal on every backend; ``"native"``
            leaves them to the framework, which is faster.
        compile: Whether PyTorch computes forward pass and loss by one program of ``torch.compile``;
            or its settings, ``{"mode": "max-autotune"}``. See `AbstractOptimizer.compile`. JAX
            compiles every step anyway.
        inferer: A function of inputs and network that computes the outputs in evaluation and
            prediction, such as an `inference.SlidingWindowInferer`.
        inputs: The number of a batch's parts that are inputs, in training, evaluation and
            prediction, where batches are tuples: the rest is the target, a tuple of several. All
            parts but the last when not given; see also `deliralike.training.predict`. A network's
            own step gets whole batches.

    Example:
        >>> import numpy as np
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = data.Samples(np.ones((6, 3), np.float32), np.zeros(6, np.int64))
        >>> history = Trainer(net, rules.rule("sgd", lr=0.5)).fit(samples, epochs=3, batch_size=4)
        >>> len(history.losses), bool(history.losses[-1] < history.losses[0])
        (6, True)
    """

    def __init__(
        self,
        network: Any,
        optimizer: Any,
        losses: steps.Losses | None = None,
        metrics: evaluation.Metrics | None = None,
        callbacks: Iterable[Callback] = (),
        *,
        devices: Sequence[str] | None = None,
        processes: ProcessGroup | None = None,
        buffers: str = "sync",
        precision: str | None = None,
        average: float | WeightAverage | None = None,
        accumulate: int | None = None,
        loss_scale: str | float | Mapping[str, Any] | None = None,
        clip_norm: float | Mapping[str, Any] | ClipNorm | None = None,
        clip_value: float | None = None,
        schedule: Any = None,
        groups: Settings | None = None,
        layer_decay: float | None = None,
        seed: int = 0,
        rng: str = "portable",
        inferer: evaluation.Inferer | None = None,
        inputs: int | None = None,
        compile: bool | Mapping[str, Any] = False,  # PyTorch's name
    ) -> None:
        """Combine the parts; nothing is trained."""
        checked = {
            "callbacks": callbacks,
            "devices": devices,
            "layer_decay": layer_decay,
            "inferer": inferer,
            "compile": compile,
        }
        refuse_other_types("Trainer", Trainer, checked)
        refuse_unknown_word("buffers", buffers, BUFFERS)
        refuse_unknown_word("rng", rng, RANDOM)
        self.network: AbstractNetwork = _spread(network, devices, processes, buffers)
        self.processes: ProcessGroup = self.network.parallelism.processes
        if layer_decay is not None or groups is not None:
            optimizer = _grouped(self.network, optimizer, groups, layer_decay)
        self.optimizers = _optimizers(self.network, optimizer)
        self.average = WeightAverage.of(self.network, average)
        self.losses = losses
        self.metrics = metrics
        if metrics:
            evaluation.refuse_named_as_losses(metrics, losses)
        self.callbacks = sorted(
            map(_callback, callbacks), key=lambda each: each.runs_last
        )
        self.seed = seed
        self.rng = rng
        self.inferer = inferer
        self.inputs = inputs if inputs is None else whole_number("inputs", inputs, 1)
        for each in self.optimizers.values():
            if accumulate is not None:
                each.accumulate = accumulate
            if precision is not None or loss_scale is not None:
                each.compute_in(precision or each.precision, loss_scale)
            if isinstance(compile, Mapping):
                each.compile(**compile)
            elif compile:
                each.compile()
            if clip_norm is not None:
                each.pre_update_hooks.append(ClipNorm.of(clip_norm))
            if clip_value is not None:
                each.pre_update_hooks.append(ClipValue(clip_value))
        precisions = [each.precision for each in self.optimizers.values()]
        self.precision = next((name for name in precisions if name is not None), None)
        self.given_schedules = _schedules(schedule, self.optimizers)
        self.schedules = _for_run(self.given_schedules, 1)
        self.lr_scale = 1.0  # of `ReduceLROnPlateau`
        self._next_epoch = 0  # that the next fit begins with
        self.base_lr = {name: known_lr(each) for name, each in self.optimizers.items()}
        for name in self.schedules:
            _ = self.optimizers[name].lr  # an error where it is hidden
        self._step_options = {} if losses is None else {"losses": losses}
        self._accumulate = max(each.accumulate for each in self.optimizers.values())
        if self._accumulate > 1:
            _warn_of_batch_norm(self.network, self._accumulate)

    @property
    def is_main(self) -> bool:
        """Whether this process is the main one of its group, which writes and shows results."""
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

        A second call goes on where the first ended: `epochs` more, counted on, with the orders of
        samples, the random numbers and the learning rates that would have come next, and with the
        same records and checkpoints; only `EarlyStopping` begins anew. A new trainer begins anew:
        at epoch 0, with fresh callbacks, schedules and averages even where their objects were in
        another one before.

        Args:
            train: A `data.Loader`, or data for one: arrays of equal length, an indexable dataset,
                an iterator of Chainer's; or what makes its own batches, such as a ``DataLoader`` of
                PyTorch or any iterable of batches. See `data.loader_of`.
            validation: Data to evaluate after every epoch; as `train`, but never shuffled.
            batch_size, drop_last: The options of the loader for data that are no loader yet.
            resume: A checkpoint from which to resume; see `Checkpoint`. The run goes on as that of
                the checkpoint would have: with the same numbers on the same backend, and the same
                up to rounding on another. `epochs` then counts from the first.
            accept: Values that may differ from the run of the checkpoint, by the names in the
                error: ``["loss"]``, ``["optimizer.default.lr", "clip_norm"]``. A name includes all
                names below it. The run goes on with the values here.

        Returns:
            The losses and the time of every step, and the metrics of every epoch.

        Raises:
            SettingError: There is nothing to do, or all parameters of an optimizer are frozen.
            BatchError: The data do not fit together.
            UnknownName: A callback watches an unknown metric.
            ProcessError: The processes that train together have begun with different settings or
                data; see `processes`.
            CheckpointError: There is no such checkpoint, it is damaged, or it is one of another
                run, such as one with other data, transforms, losses, rules or seed; the message
                names the differences. Nothing was changed.
            KeyboardInterrupt: Ctrl-C, after the step in progress; callbacks have been called, and
                have saved. SIGTERM and SIGUSR1, by which a scheduler warns before it kills, raise
                it too; see `Interrupted`. A signal to any process ends all of them after the same
                step.
        """
        refuse_other_types(
            "fit", Trainer.fit, {"drop_last": drop_last, "accept": accept}
        )
        first = self._next_epoch if resume is None else 0
        epochs = first + whole_number("epochs", epochs, 1)
        loader = data.loader_of(
            self._readable(train),
            batch_size=batch_size,
            seed=self.seed,
            drop_last=drop_last,
        )
        loader.check_epochs(epochs - first)
        if isinstance(validation, Iterator):
            data.Batches(validation).check_epochs(epochs - first)
        if self.processes.count > 1:
            loader = loader.shared(self.processes.rank, self.processes.count)
        steps = self._steps_in(loader)
        done = max(o.steps for o in self.optimizers.values()) if resume is None else 0
        updates = None if steps is None else done + (epochs - first) * steps
        self._begin(updates, goes_on=first > 0)
        self._refuse_nothing_trainable()
        run = Run(
            self,
            epochs,
            steps,
            epoch=first,
            step=done,
            goes_on=first > 0,
            loader=loader,
            validation=validation,
        )
        with UserLinesFirst(), self.processes.report_errors(run.place):
            losses = self._losses_of_validation(validation)
        self._refuse_unknown_metrics(losses, has_validation=validation is not None)
        if resume is not None or self.callbacks:
            run.fingerprints = fingerprints(run)
            run.fingerprinted_at = run.step
        if resume is not None:
            # One process alone may know what differs.
            with self.processes.report_errors(run.place):
                restore(run, checkpoint.read(resume), accept)
        with (
            UserLinesFirst(),
            self._errors_reported(run),
            deferred(self.processes, run.place) as interrupt,
        ):
            refuse_differing(run, validation)
            try:
                run.call_callbacks("on_start")
                while run.epoch < epochs and not run.stopped:
                    self._epoch(run, loader, validation, interrupt)
            except KeyboardInterrupt:
                run.interrupted = True
                raise
            finally:
                self._next_epoch = run.epoch + (run.batch > 0)
                run.call_all_callbacks("on_end")
        return run.history

    def _refuse_nothing_trainable(self) -> None:
        """Raise an error if an optimizer has no parameter to update."""
        slots = self.network.neutral_slots().items()
        for name, optimizer in self.optimizers.items():
            owned = [
                slot
                for path, slot in slots
                if slot.is_parameter and optimizer.owns(path)
            ]
            if owned and not any(slot.trainable for slot in owned):
                raise SettingError(
                    f"optimizer {name!r} has nothing to train: all of its {len(owned)} parameters "
                    "are frozen. Thaw some: deliralike.unfreeze(network, 'fc.*'), or "
                    "network.set_trainable('fc.*', True)"
                )

    def _begin(self, updates: int | None, goes_on: bool) -> None:
        """Give a run of so many updates its schedules, and what it has for itself anew."""
        self.schedules = _for_run(self.given_schedules, updates)
        if goes_on:
            return
        for callback in self.callbacks:
            callback.reset()
        if self.average is not None:
            self.average.reset()

    @contextmanager
    def _errors_reported(self, run: Run) -> Iterator[None]:
        """Tell the other processes of an error; after a signal wait until the root has saved."""
        with self.processes.report_errors(run.place):
            try:
                yield
            except Interrupted as error:
                error.advice = self._advice()
                self.processes.all_gather_object(
                    "the end of a run that a signal ended", None
                )
                raise

    def _advice(self) -> str:
        """Return where an interrupted run was saved, and how to go on with it."""
        if not self.is_main:
            return "the main process says what was saved"
        for callback in self.callbacks:
            if isinstance(callback, Checkpoint):
                latest = Checkpoints.latest(callback.folder)
                if latest is not None:
                    return (
                        f"saved in {latest}; to go on: fit(..., resume={str(latest)!r})"
                    )
        return "nothing was saved: the callback Checkpoint(folder) saves"

    def evaluate(
        self,
        samples: Any,
        *,
        batch_size: int = 512,
        intervals: bool | Mapping[str, Any] = False,
    ) -> dict[str, float]:
        """Evaluate the network on labelled samples by its losses and metrics; it does not change.

        Args:
            batch_size, intervals: See `deliralike.training.evaluate`.
        """
        with UserLinesFirst():
            return self._evaluate(samples, batch_size=batch_size, intervals=intervals)

    def _evaluate(
        self,
        samples: Any,
        batch_size: int = 512,
        intervals: bool | Mapping[str, Any] = False,
        between: Callable[[], None] | None = None,
    ) -> dict[str, float]:
        with self._as_evaluated():
            return evaluation.evaluate(
                self.network,
                self._readable(samples),
                metrics={} if self.metrics is None else self.metrics,
                batch_size=batch_size,
                intervals=intervals,
                losses=ValidationLosses(self.losses),
                processes=self.processes,
                between=between,
                inferer=self.inferer,
                inputs=self.inputs,
            )

    def predict(self, samples: Any, *, batch_size: int = 512) -> Iterator[Any]:
        """Yield the outputs in evaluation mode, batch by batch; see `predict`."""
        outputs = evaluation.predict(
            self.network,
            samples,
            batch_size=batch_size,
            inferer=self.inferer,
            inputs=self.inputs,
        )
        while True:
            # For each batch: between two of them the network may be used.
            with self._as_evaluated():
                batch = next(outputs, _END)
            if batch is _END:
                return
            yield batch

    @contextmanager
    def _as_evaluated(self) -> Iterator[None]:
        """Give the network averaged weights and the precision of the forward pass in a block."""
        with ExitStack() as contexts:
            if self.average is not None:
                contexts.enter_context(self.average.swap_in())
            if self.precision is not None:
                network = self.network
                contexts.enter_context(
                    network.backend.computing_in(self.precision, network.device_name)
                )
            yield

    def _readable(self, source: Any) -> Any:
        """Return data as they are read here: those of a framework's own iterators as loaders."""
        backend = backends.of(self.network)
        return backend.loader_of(source, self.seed, self.processes)

    def _steps_in(self, loader: data.Loader) -> int | None:
        try:
            return -(-len(loader) // self._accumulate)
        except TypeError:  # a stream
            return None

    # One epoch ------------------------------------------------------------------------------------

    def _epoch(
        self, run: Run, loader: data.Loader, validation: Any, interrupt: Interrupt
    ) -> None:
        batches: Any = loader.batches(run.epoch, run.batch)
        with trained(self.network), closing(batches):
            begin = time.perf_counter()
            for window in _windows(batches, self._accumulate):
                step = self._step(run, window, time.perf_counter() - begin)
                run.history.steps.append(step)
                run.call_callbacks("on_step", step)
                if run.stopped:
                    break
                interrupt.check()
                begin = time.perf_counter()
        run.pending.read()
        self.network.parallelism.synchronize()
        if run.stopped:
            return
        begin = time.perf_counter()
        figures: dict[str, float] = {}
        if validation is not None:
            figures = self._validate(validation, interrupt)
        seconds = time.perf_counter() - begin
        epoch = Epoch(run.epoch, run.step, figures, seconds)
        run.epoch += 1
        run.batch = 0
        run.history.epochs.append(epoch)
        run.in_on_epoch = True
        run.call_callbacks("on_epoch", epoch)
        run.in_on_epoch = False
        interrupt.check()

    def _validate(self, validation: Any, interrupt: Interrupt) -> dict[str, float]:
        """Return the figures of validation data.

        A signal ends validation after a batch, if this process is alone. The run is then at the end
        of its epoch, which is validated when it is resumed.
        """
        if type(self).evaluate is not Trainer.evaluate:
            return self.evaluate(validation)
        between = interrupt.check if self.processes.count == 1 else None
        return self._evaluate(validation, between=between)

    def _losses_of_validation(self, validation: Any) -> list[str] | None:
        """Return the names of the losses of validation, after a look at its first batch.

        It raises what validation would raise, before anything is trained, and leaves no trace. Not
        looked at are what cannot be read apart, such as an iterator, and an evaluation of a
        subclass's own: None where the names are not known then.
        """
        losses = ValidationLosses(self.losses)
        is_own = type(self).evaluate is not Trainer.evaluate
        if validation is None or isinstance(validation, Iterator) or is_own:
            return losses.names(self.network)
        with ExitStack() as contexts:
            contexts.enter_context(self._as_evaluated())
            contexts.enter_context(without_side_effects(self))
            # its warnings come again
            contexts.enter_context(warnings.catch_warnings(action="ignore"))
            return evaluation.evaluate_first_batch(
                self.network,
                self._readable(validation),
                self.metrics or {},
                losses,
                self.inferer,
                self.inputs,
            )

    def _refuse_unknown_metrics(
        self, losses: list[str] | None, has_validation: bool
    ) -> None:
        """Raise an error if a callback watches a figure that validation will not have.

        Nothing is refused where a callback may add figures of its own, nor where the names of the
        losses are not known.
        """
        if any(map(_may_add_figures, self.callbacks)):
            return
        for callback in self.callbacks:
            monitor = getattr(callback, "monitor", None)
            if not isinstance(monitor, Monitor):
                continue
            if not has_validation:
                monitor.value(Epoch(0, 0))
            elif losses is not None:
                metrics = evaluation.metrics_by_name(self.metrics or {})
                monitor.refuse_unknown(list(dict.fromkeys([*metrics, *losses])))

    def _step(self, run: Run, window: list[Any], waited: float) -> Step:
        begin = time.perf_counter()
        run.in_step = True
        self._follow_schedules()
        lr = {name: known_lr(each) for name, each in self.optimizers.items()}
        updates = 0 if self.average is None else self._updates()
        results, sizes, weights = [], [], []
        with self._random_layers(run):
            for number, batch in enumerate(window, run.batch):
                results.append(self._losses_of(self._train_step(run, number, batch)))
                sizes.append(self._samples(run, number, batch))
                weights.append(self._weight(sizes[-1]))
            for optimizer in self.optimizers.values():
                optimizer.flush()
        if self.average is not None and self._updates() > updates:
            self.average.update()
        run.step += 1
        run.batch += len(window)
        run.latest_batches = window
        run.in_step = False
        step = run.pending.add(
            results,
            sizes,
            weights,
            step=run.step - 1,
            epoch=run.epoch,
            dispatch_seconds=time.perf_counter() - begin,
            lr=lr if len(lr) > 1 else next(iter(lr.values())),
            data_seconds=waited,
        )
        if self.processes.count > 1:
            run.pending.read()  # an array of several processes is read by all of them at once
        return step

    def _train_step(self, run: Run, number: int, batch: Any) -> Any:
        """Make a step on a batch, or on this process's share of it."""
        if self.inputs is not None and not has_own(self.network, "train_step"):
            batch = grouped(batch, self.inputs)
        shares: AbstractContextManager[Any] = nullcontext()
        if self.processes.count > 1:
            sizes = run.loader.share_sizes(run.epoch, number)
            shares = self._shares(run.loader, sizes)
        with shares:
            return self.network.train_step(batch, self.optimizers, **self._step_options)

    def _shares(
        self, loader: data.Loader, sizes: tuple[int, ...]
    ) -> AbstractContextManager[Any]:
        """Return a block in which the processes have shares of these sizes.

        Where a transform of batches, or the network's own step, may give an optimizer batches of
        other sizes, the processes ask each other.
        """
        parallelism = self.network.parallelism
        if loader.knows_sizes and not has_own(self.network, "train_step"):
            return parallelism.share_sizes(sizes)
        if sizes[self.processes.rank] == 0:
            return parallelism.empty_share()
        return nullcontext()

    def _samples(self, run: Run, number: int, batch: Any) -> int:
        """Return the number of samples of a batch, in all processes."""
        if self.processes.count == 1:
            return count_samples(batch)
        return sum(run.loader.share_sizes(run.epoch, number))

    def _weight(self, samples: int) -> Any:
        """Return by how much the losses of a step count among those of the same update."""
        if self._accumulate == 1 or has_own(self.network, "train_step"):
            return samples
        return steps.the_optimizer(self.optimizers).latest_weight

    def _updates(self) -> int:
        return sum(optimizer.steps for optimizer in self.optimizers.values())

    def _follow_schedules(self) -> None:
        for name, schedule in self.schedules.items():
            optimizer = self.optimizers[name]
            base = self.base_lr[name]
            if base is None:
                continue
            lr = base * self.lr_scale * schedule.factor(optimizer.steps)
            if lr != optimizer.lr:
                optimizer.lr = lr

    def _random_layers(self, run: Run) -> AbstractContextManager[Any]:
        """Return a context in which random layers draw by the seed and the step."""
        if self.rng == "portable":
            return random.portable(self.seed, run.step)
        return nullcontext()

    def _losses_of(self, result: Any) -> dict[str, Any]:
        """Return the losses of a step by name, without graphs."""
        if not isinstance(result, steps.MAPPINGS):
            raise ArgumentError(
                f"train_step of {type(self.network).__name__} gave a {type(result).__name__}: "
                f"it returns its losses by name, {{'loss': value}}"
            )
        detached = self.network.backend.detached
        return {name: detached(value) for name, value in result.items()}


def _spread(
    network: Any,
    devices: Sequence[str] | None,
    processes: ProcessGroup | None,
    buffers: str,
) -> AbstractNetwork:
    """Return the network over devices or processes, if any; a native one is wrapped anyway."""
    network = backends.wrap(network)
    is_distributed = network.parallelism.processes is processes
    if processes is not None and processes.count > 1 and not is_distributed:
        if devices is not None and len(devices) > 1:
            raise SettingError(
                "devices and processes: start one process for each device, and leave devices out"
            )
        return backends.DistributedDataParallel(network, processes, buffers=buffers)
    if devices is None:
        return network
    return backends.DataParallel(network, devices, buffers=buffers)


def _warn_of_batch_norm(network: AbstractNetwork, accumulate: int) -> None:
    """Warn that batch normalisation does not see the batches of one update as one."""
    layers = []
    for name in network.neutral_slots():
        layer, _, leaf = name.rpartition(".")
        if leaf.endswith("running_mean"):
            layers.append(layer)
    if layers:
        warn(
            f"accumulate={accumulate} with batch normalisation ({len(layers)} layers, first "
            f"{layers[0]!r}): each batch is normalised by itself, so an update is not that of one "
            f"batch of {accumulate} times the size. Group or layer normalisation has no such "
            "difference",
        )


class Optimizers(dict[str, AbstractOptimizer]):
    """The optimizers of a run by name, as a step gets them."""

    def __missing__(self, name: str) -> NoReturn:
        """Refuse a name.

        Raises:
            UnknownName: Always.
        """
        raise UnknownName(
            f"the step takes optimizers[{name!r}], and this run has {', '.join(self)}: give one "
            f"for each block, Trainer(network, {{{name!r}: rule, ...}}). Runs of the command line "
            f"and of settings have one, {MAIN!r}"
        )


def _optimizers(network: AbstractNetwork, optimizer: Any) -> Optimizers:
    """Return the optimizers by name; rules become optimizers of the network."""
    named = optimizer if isinstance(optimizer, Mapping) else {MAIN: optimizer}
    if not named:
        raise SettingError(
            "there is no optimizer: give an update rule, an optimizer, or a mapping of them by name"
        )
    return Optimizers(
        (name, _optimizer(network, name, each)) for name, each in named.items()
    )


def _grouped(
    network: AbstractNetwork,
    rule: Any,
    groups: Settings | None,
    layer_decay: float | None,
) -> AbstractOptimizer:
    """Return the optimizer of a rule with groups of parameters.

    Raises:
        SettingError: There is no single rule.
    """
    if not isinstance(rule, rules.Rule):
        raise SettingError(
            f"groups and layer_decay are for one update rule, not for {nest.described(rule)}: "
            "give backend.optimizer(rule, network, groups=...) for each optimizer"
        )
    if layer_decay is not None:
        groups = groups_by_depth(network, rule.lr, layer_decay, groups)
    return network.backend.optimizer(rule, network, groups=groups)


def _optimizer(
    network: AbstractNetwork, name: str, optimizer: Any
) -> AbstractOptimizer:
    """Return the optimizer of a rule, or of a framework's own optimizer; others as they are.

    Raises:
        ArgumentError: It is no such optimizer, or it has parameters, and none is the network's.
    """
    if isinstance(optimizer, rules.Rule):
        pattern = None if name == MAIN else f"{name}.*"
        return network.backend.optimizer(optimizer, network, parameters=pattern)
    if not isinstance(optimizer, AbstractOptimizer):
        try:
            return network.backend.wrap_optimizer(optimizer, network)
        except OptimizerError as error:
            raise ArgumentError(
                f"optimizer {name!r} is a {type(optimizer).__name__}, wanted a rule such as "
                "rules.rule('adam', lr=1e-3), an optimizer of the network's own framework (on "
                "torch torch.optim.Adam(module.parameters())), or one from backend.optimizer or "
                "backend.wrap_optimizer"
            ) from error
    if optimizer.network is not network:
        raise ArgumentError(
            f"optimizer {name!r} updates another network than the one that is trained; with "
            "devices= there is a replicated one: give an update rule instead"
        )
    return optimizer


def _schedules(
    schedule: Any, optimizers: Mapping[str, AbstractOptimizer]
) -> dict[str, Any]:
    if schedule is None:
        return {}
    is_by_optimizer = isinstance(schedule, Mapping) and "name" not in schedule
    named = schedule if is_by_optimizer else dict.fromkeys(optimizers, schedule)
    for name in named:
        message = f"there is no optimizer {name!r} for a schedule"
        refuse_unknown(name, optimizers, message, SettingError)
    return dict(named)


def _for_run(given: Mapping[str, Any], updates: int | None) -> dict[str, Any]:
    """Return the schedules by optimizer for a run of so many updates."""
    return {name: schedule_of(each, updates) for name, each in given.items()}


def _callback(given: Any) -> Callback:
    if isinstance(given, type) or not hasattr(given, "runs_last"):
        raise SettingError(
            f"callbacks: {given!r} is no callback: wanted are objects of such classes, as in "
            "callbacks=[EarlyStopping('loss')]"
        )
    return given


def _may_add_figures(callback: Callback) -> bool:
    """Return whether a callback may add its own figures to those of an epoch."""
    if isinstance(callback, Writer) or isinstance(
        getattr(callback, "monitor", None), Monitor
    ):
        return False  # it only reads them
    return getattr(type(callback), "on_epoch", None) is not Callback.on_epoch


def _windows(batches: Iterable[Any], count: int) -> Iterator[list[Any]]:
    """Yield lists of `count` batches; the last one may have fewer."""
    iterator = iter(batches)
    count = min(count, sys.maxsize)
    window = list(islice(iterator, count))
    while window:
        yield window
        window = list(islice(iterator, count))
