"""The settings of a run, each with its default, its check and its documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from deliralike import backends, zoo
from deliralike.errors import DeliralikeError, SettingError, refuse_unknown_settings
from deliralike.optim import rules
from deliralike.optim.groups import Groups
from deliralike.optim.precision import PRECISIONS
from deliralike.training.callbacks.checkpoint import Checkpoint
from deliralike.training.callbacks.patience import EarlyStopping, ReduceLROnPlateau
from deliralike.training.callbacks.trackers import MLflow, WandB
from deliralike.training.experiment import checks
from deliralike.training.experiment.checks import Check, located
from deliralike.training.experiment.parts import (
    make_batch_transform,
    make_freezing,
    make_metrics,
    make_transform,
    with_classes,
)
from deliralike.training.schedules import OF_WHOLE_RUNS, SCHEDULES, schedule_of
from deliralike.training.trainer import RANDOM

# Learning rates that train the small networks of the zoo on small images; a place to start, not a
# recommendation.
OPTIMIZER_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 0.05, "momentum": 0.9},
    "adam": {"lr": 0.003},
    "adamw": {"lr": 0.003},
    "amsgrad": {"lr": 0.003},
    "rmsprop": {"lr": 0.001},
    "adagrad": {"lr": 0.01},
    "adadelta": {"lr": 1.0},
    "lion": {"lr": 0.0003},
    "lamb": {"lr": 0.003},
    "radam": {"lr": 0.003},
    "adafactor": {"lr": 0.01},
    "muon": {"lr": 0.003, "adjust_lr_fn": "match_rms_adamw"},
}


def _is(check: Check, doc: str, default: Any = None) -> Any:
    """Return the field of a setting with its check, its documentation and its default.

    The default is MISSING where the setting must be given.
    """
    metadata = {"check": check, "doc": doc}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def _known_backend(name: str) -> None:
    if name not in backends.known():
        backends.get(name)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All values that decide a run; the same settings with another `backend` give the same run.

    Every value is checked and copied, so that two settings share nothing. `documentation` explains
    each setting.

    Raises:
        SettingError, UnknownName, ArgumentError: A setting makes no sense; the message begins with
            its name.

    Example:
        >>> settings = Settings(network="mlp", network_settings={"hidden": [64, 32]}, clip_norm=1)
        >>> settings.network_settings, settings.clip_norm, settings.backend
        ({'hidden': (64, 32)}, 1.0, 'torch')
        >>> Settings(network="mlp", epochs=0)
        Traceback (most recent call last):
        ...
        deliralike.errors.SettingError: epochs=0 must be a whole number of at least 1
    """

    network: str = _is(
        checks.known_to(zoo.find),
        'A network of the zoo, such as "resnet8", or your own: "package.module:Net", '
        '"file.py:Net".',
        MISSING,
    )
    network_settings: Mapping[str, Any] = _is(
        checks.table,
        "What to change in it. Channels, sizes and classes are taken from the data when left out.",
        {},
    )
    weights: str | None = _is(
        checks.text,
        'Weights to begin with: a file, or published ones by name, "pretrained". A head for other '
        "classes keeps its start values.",
    )
    data: str = _is(
        checks.text,
        'A dataset by name, or your own: "module:function", a folder of pictures, "x.npz", '
        '"x.csv".',
        "digits",
    )
    data_settings: Mapping[str, Any] = _is(
        checks.table,
        "Options of the dataset, such as held_out = 0.2, the fraction that is held out.",
        {},
    )
    transforms: Sequence[Any] | None = _is(
        checks.named,
        'What is done to each training sample, by name: ["flip", {name = "noise", std = 0.1}]; '
        "none: what is usual for the data.",
    )
    held_out_transforms: Sequence[Any] = _is(
        checks.named, "The same for samples to judge by.", ()
    )
    batch_transforms: Sequence[Any] = _is(
        checks.named,
        'How each training batch is mixed: ["mixup"] or [{name = "cutmix", alpha = 0.5}]. The '
        "number of classes is taken from the data when left out.",
        (),
    )
    batch_size: int = _is(checks.whole(1), "Samples in each batch.", 32)
    drop_last: bool = _is(
        checks.flag,
        "Whether to leave out a last batch that is smaller than the others.",
        False,
    )
    workers: int = _is(
        checks.whole(0), "Threads or processes that make batches ahead; 0: none.", 0
    )
    worker_kind: str = _is(
        checks.one_of("thread", "process"), '"thread" or "process".', "thread"
    )
    folds: int | None = _is(
        checks.whole(2),
        "Cross-validation with so many folds; none: one split.",
    )
    fold: int | None = _is(
        checks.whole(1),
        "Which of the folds is held out in this run, from 1; none: all in turn.",
    )

    backend: str = _is(
        checks.known_to(_known_backend), '"torch", "chainer", "jax" …', "torch"
    )
    devices: Sequence[str] = _is(
        checks.texts,
        "Devices of the backend; the network is replicated over several, and of several "
        "processes each takes one. Empty: the first one.",
        (),
    )
    buffers: str = _is(
        checks.one_of("sync", "root", "mean"),
        'What replicas do with buffers: "sync" gives batch norms the statistics of the whole '
        'batch, "root" and "mean" each those of its share.',
        "sync",
    )
    dtype: str = _is(
        checks.text,
        'The type of parameters and results: "float32", "float64" …',
        "float32",
    )
    precision: str | None = _is(
        checks.one_of(*PRECISIONS),
        'A shorter type for the forward pass: "bfloat16" or "float16".',
    )
    compile: bool = _is(
        checks.flag,
        "Whether torch.compile makes one program of forward pass and loss; JAX compiles anyway.",
        False,
    )
    checkpoint_blocks: Sequence[str] = _is(
        checks.texts,
        'Patterns of blocks that compute their activations again for gradients: ["layer*.*"]. It '
        "saves memory, and changes no result.",
        (),
    )
    rng: str = _is(
        checks.one_of(*RANDOM),
        'Random layers: "portable", equal on every backend, or "native", the framework\'s own, '
        "which is faster.",
        "portable",
    )
    seed: int = _is(
        checks.whole(0),
        "Keys the start values, the order of samples, transforms and random layers.",
        0,
    )

    optimizer: str = _is(
        checks.one_of(*rules.RULES), f"An update rule: {', '.join(rules.RULES)}.", "sgd"
    )
    optimizer_settings: Mapping[str, Any] = _is(
        checks.table,
        "Its numbers, such as lr = 0.1. A learning rate that is left out depends on the rule.",
        {},
    )
    groups: Mapping[str, Any] = _is(
        checks.tables,
        'Other numbers for parameters by pattern: {"*.bias" = {weight_decay = 0.0}}.',
        {},
    )
    layer_decay: float | None = _is(
        checks.between(0, 1),
        "By how much the learning rate falls from a layer to the one before it: 0.75 to fine-tune "
        "transformers.",
    )
    freeze: Mapping[str, Any] = _is(
        checks.table,
        'Parts that are frozen in the first epochs, by pattern: {"layer*" = 3}; none: in all.',
        {},
    )
    schedule: str | None = _is(
        checks.one_of(*SCHEDULES),
        f"How the learning rate goes, step by step: {', '.join(SCHEDULES)}.",
    )
    schedule_settings: Mapping[str, Any] = _is(
        checks.table,
        "Its numbers. The length of the whole run, in updates, is filled in when left out.",
        {},
    )
    accumulate: int = _is(
        checks.whole(1), "How many batches make one update together.", 1
    )
    clip_norm: float | None = _is(
        checks.between(0),
        "The most that the gradients' joint norm may be.",
    )
    clip_value: float | None = _is(
        checks.between(0),
        "The most that each element of a gradient may be, up or down.",
    )
    average: float | None = _is(
        checks.between(0, 1),
        "Judge and keep an exponential average of the weights, with this decay: 0.999.",
    )
    epochs: int = _is(checks.whole(1), "Passes over the training data.", 5)

    metrics: Sequence[Any] = _is(
        checks.named,
        'What held-out data are judged by: ["loss", {name = "top-k", k = 3}]. Empty: by the task.',
        (),
    )
    early_stopping: Mapping[str, Any] | None = _is(
        checks.arguments_of(EarlyStopping),
        'Stop when a metric gets no better: {monitor = "loss", mode = "min", patience = 5}.',
    )
    plateau: Mapping[str, Any] | None = _is(
        checks.arguments_of(ReduceLROnPlateau),
        'Lower the learning rate when a metric gets no better: {monitor = "loss", factor = 0.1}.',
    )
    checkpoints: Mapping[str, Any] | None = _is(
        checks.arguments_of(Checkpoint, "folder"),
        "How often the whole state is saved, and how much is kept; none: never. With monitor and "
        "mode the best too.",
        {"every_epochs": 1, "keep": 2},
    )
    tensorboard: bool = _is(
        checks.flag, "Write for TensorBoard as well, into a folder of the run's.", False
    )
    wandb: Mapping[str, Any] | None = _is(
        checks.arguments_of(WandB, "folder", "config"),
        'Log to Weights & Biases as well: {project = "cells", mode = "offline"}.',
    )
    mlflow: Mapping[str, Any] | None = _is(
        checks.arguments_of(MLflow, "params"),
        'Log to MLflow as well: {experiment = "cells", tracking_uri = "sqlite:///runs.db"}.',
    )
    stop_on_nan: int = _is(
        checks.whole(0),
        "Stop at a number that is not finite, and name the first: a loss at each step, others "
        "every so many steps; 0: go on.",
        0,
    )

    def __post_init__(self) -> None:
        """Check and copy every value, and check the values together."""
        for each in fields(self):
            check: Check = each.metadata["check"]
            value = getattr(self, each.name)
            if value is None and str(each.type).endswith("| None"):
                continue
            value = check(each.name, value)
            object.__setattr__(self, each.name, value)
        if self.fold is not None and self.folds is None:
            raise SettingError(f"fold={self.fold!r} needs folds to be set")
        if (self.fold or 0) > (self.folds or 0):
            raise SettingError(
                f"fold={self.fold!r} needs a number from 1 to {self.folds}, the number of folds"
            )
        Groups.of(self.rule(), self.groups)
        self._check_parts()

    @property
    def short_name(self) -> str:
        """The network's name without the module or file of code of one's own."""
        return self.network.rpartition(":")[2]

    def rule(self) -> rules.Rule:
        """Return the update rule with its numbers; missing ones are those of the usual table."""
        numbers = {
            **OPTIMIZER_SETTINGS.get(self.optimizer, {}),
            **self.optimizer_settings,
        }
        with located("optimizer_settings"):
            return rules.rule(self.optimizer, **numbers)

    def with_(self, **changes: Any) -> Settings:
        """Return settings with some values changed; another backend does not keep the devices.

        Example:
            >>> Settings(network="mlp", devices=["cpu"]).with_(backend="jax").devices
            ()
        """
        refuse_unknown_settings("Settings", changes, names())
        if changes.get("backend", self.backend) != self.backend:
            changes = {"devices": (), **changes}
        return replace(self, **changes)

    def _check_parts(self) -> None:
        """Make the parts that settings name, to check that they can be made."""
        if self.schedule is None and self.schedule_settings:
            raise SettingError(
                f"schedule_settings={self.schedule_settings!r} are numbers of no schedule: name it"
            )
        makers: dict[str, Callable[[], Any]] = {
            "schedule_settings": lambda: schedule_of(self.full_schedule, 1),
            "metrics": lambda: make_metrics(self.metrics),
            "transforms": lambda: make_transform(self.transforms or ()),
            "held_out_transforms": lambda: make_transform(self.held_out_transforms),
            "batch_transforms": lambda: make_batch_transform(
                with_classes(self.batch_transforms, 2)
            ),
            "freeze": lambda: make_freezing(self.freeze),
            "early_stopping": lambda: EarlyStopping(**self.early_stopping or {}),
            "plateau": lambda: ReduceLROnPlateau(**self.plateau or {}),
            "checkpoints": lambda: Checkpoint("", **self.checkpoints or {}),
        }
        for name, make in makers.items():
            try:
                with located(name):
                    make()
            except DeliralikeError:
                raise
            except (TypeError, ValueError, OverflowError) as error:
                # The error of a text where a number is wanted.
                raise SettingError(
                    f"{name}={getattr(self, name)!r} cannot be made: {error}. A setting is of "
                    "another type than wanted"
                ) from error

    @property
    def full_schedule(self) -> dict[str, Any]:
        """The schedule with its numbers, as `Trainer` takes it; a constant rate without one."""
        return {"name": self.schedule or "constant", **self.schedule_settings}

    def length(self, steps: int) -> dict[str, int]:
        """Return the schedule's setting for the number of updates of the run, if it has one."""
        return {"steps": steps} if self.schedule in OF_WHOLE_RUNS else {}


def names() -> list[str]:
    """Return the names of all settings in order."""
    return [each.name for each in fields(Settings)]


def documentation() -> dict[str, str]:
    """Return the documentation of each setting.

    Example:
        >>> documentation()["batch_size"]
        'Samples in each batch.'
    """
    return {each.name: each.metadata["doc"] for each in fields(Settings)}
