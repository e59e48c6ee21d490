"""Fingerprints: texts by path of all values that a run's future depends on.

They are kept in a checkpoint, and compared when a run is resumed. They are the same on every
backend and in every process. Devices, replicas, processes, workers, epochs, callbacks and metrics
are not in them: these may change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from deliralike.data import Loader
from deliralike.errors import (
    ArgumentError,
    CheckpointError,
)
from deliralike.network.arguments import recorded_arguments
from deliralike.network.base import AbstractNetwork, Block
from deliralike.network.core import unwrap
from deliralike.optim.clipping import ClipNorm, ClipValue
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.references import is_user_code
from deliralike.training.identity import code_digest
from deliralike.training.identity.values import (
    UNKNOWN,
    Texts,
    described,
    differences,
    parents,
)
from deliralike.training.run import Run

_NATIVE = "native "  # before the name of a framework's layer or optimizer, which differs elsewhere
_OF_BACKEND = ("loss", "hooks")  # may be functions of a framework, too
_MOST_NAMED = 8  # differences that an error names


def fingerprints(run: Run) -> Texts:
    """Return the fingerprints of a run: of ``"loss"``, ``"data"``, ``"optimizer"`` and others."""
    # The data are unknown where another process reads them.
    texts: Texts = dict.fromkeys(("data", "transform", "batch_transform"), UNKNOWN)
    for name, value in _of_trainer(run).items():
        texts |= described(name, value)
    if run.trainer.average is not None:
        texts["average"] = type(run.trainer.average).__name__
        texts["average.decay"] = repr(float(run.trainer.average.decay))
    for name, optimizer in run.optimizers.items():
        texts |= _of_optimizer(name, optimizer, run.trainer.base_lr[name])
        texts |= described(f"schedule.{name}", run.trainer.schedules.get(name))
    return texts | _of_validation(run.validation) | dict(_of_network(run.network))


def fingerprints_at_start(run: Run) -> Texts:
    """Return the fingerprints with which a run began, for a checkpoint.

    Values that steps have changed since, such as a counter, are unknown.
    """
    if not run.fingerprints:
        run.fingerprints = fingerprints(run)
        run.fingerprinted_at = run.step
    if run.fingerprinted_at is not None and run.step > run.fingerprinted_at:
        now = fingerprints(run)
        at_start = run.fingerprints
        run.fingerprints = {}
        for path, text in at_start.items():
            run.fingerprints[path] = text if now.get(path) == text else UNKNOWN
        run.fingerprinted_at = None
    return run.fingerprints


def refuse_differences(
    before: Texts, here: Texts, same_backend: bool, accept: Sequence[str]
) -> set[str]:
    """Raise an error if a run is not the one of a checkpoint.

    Returns:
        The paths of the differences, all of which are accepted.

    Raises:
        CheckpointError: There are other differences; the message names them with both values.
    """
    if same_backend:
        changed = differences(before, here)
    else:
        changed = differences(before, here, _of_another_backend(before, here))
    refused = [path for path in changed if set(accept).isdisjoint(parents(path))]
    if refused:
        listed = [f"{path} {changed[path]}" for path in refused[:_MOST_NAMED]]
        more = len(refused) - _MOST_NAMED
        if more > 0:
            listed.append(f"and {more} more")
        names = sorted({path.partition(".")[0] for path in refused})
        raise CheckpointError(
            f"the checkpoint is one of another run: {'; '.join(listed)}. Give the run what it "
            f"had, take the change on purpose with accept={names}, or begin a new one from the "
            "weights, network.safetensors"
        )
    return set(changed)


def samples_of(loader: Loader) -> int | None:
    """Return the number of samples in an epoch; None for a stream."""
    try:
        return int(loader.samples)
    except ArgumentError:
        return None


# Parts of a run -----------------------------------------------------------------------------------


def _of_trainer(run: Run) -> dict[str, Any]:
    trainer = run.trainer
    loader: Loader = run.loader
    return {
        "dtype": run.network.dtype_name,
        "seed": trainer.seed,
        "rng": trainer.rng,
        "loss": trainer.losses,
        "average": None,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "samples": samples_of(loader),
        "order": loader.sampler,
        "order_seed": loader.seed,
        **loader.contents(),
    }


def _of_validation(validation: Any) -> Texts:
    """Return the texts of the validation data, which may be added or left out."""
    if validation is None:
        return {"validation": UNKNOWN}
    if isinstance(validation, Loader):
        return described("validation", validation.contents())
    return described("validation", {"data": validation})


def _of_optimizer(name: str, optimizer: AbstractOptimizer, lr: float | None) -> Texts:
    texts: Texts = {}
    hooks: list[Any] = [*optimizer.pre_update_hooks, *optimizer.post_update_hooks]
    norms = [hook.max_norm for hook in hooks if isinstance(hook, ClipNorm)]
    values = [hook.max_value for hook in hooks if isinstance(hook, ClipValue)]
    own_hooks = []
    for hook in hooks:
        if is_user_code(getattr(hook, "__module__", None)):
            own_hooks.append(hook)
    settings = {
        "precision": optimizer.precision,
        "accumulate": optimizer.accumulate,
        "clip_norm": norms[0] if len(norms) == 1 else norms or None,
        "clip_value": values[0] if len(values) == 1 else values or None,
        "hooks": own_hooks,
    }
    for kind, value in settings.items():
        texts |= described(f"{kind}.{name}", value)
    where = f"optimizer.{name}"
    groups = optimizer.groups
    texts[f"{where}.parameters"] = repr(optimizer.pattern)
    if groups is None:
        texts[where] = f"{_NATIVE}optimizer"
        texts |= described(f"{where}.lr", lr)
        return texts | described(f"{where}.settings", optimizer.settings())
    if lr is not None:  # that of the rule is the latest one
        texts |= described(where, replace(groups.rules[0], lr=lr))
    for pattern, place in zip(groups.patterns, groups.places, strict=True):
        rule = replace(groups.rules[place], lr=groups.first[place])
        texts |= described(f"{where}.groups.{pattern}", rule)
    return texts


def _of_network(network: AbstractNetwork) -> Iterator[tuple[str, str]]:
    """Yield the class and the arguments of each block; of a framework's blocks their numbers."""
    blocks = dict(network.named_blocks())
    blocks[""] = unwrap(blocks[""])
    for path, block in blocks.items():
        where = f"network.{path}".rstrip(".")
        written = getattr(type(block), "written_once", None)
        if written is None:
            yield where, f"{_NATIVE}{type(block).__name__}"
        else:
            yield where, written.__name__
        code = code_digest.of_class(written or type(block))
        if code is not None:
            yield f"{where}.code", code
        arguments = (
            _attributes(block) if written is None else _arguments(written, block)
        )
        for name, value in arguments.items():
            yield from described(f"{where}.{name}", value).items()


def _arguments(written: Any, block: Any) -> dict[str, Any]:
    """Return the arguments that a block was made with, defaults included.

    A number that was set by hand since has its new value.
    """
    arguments = {}
    for name, parameter in inspect.signature(written.__init__).parameters.items():
        if parameter.default is not parameter.empty:
            arguments[name] = parameter.default
    arguments |= recorded_arguments(block) or {}
    values = {}
    for name, argument in arguments.items():
        value = vars(block).get(name)
        if isinstance(value, float) and isinstance(argument, int | float):
            argument = value
        if not isinstance(argument, Block) and not callable(argument):
            values[name] = argument
    return values


def _attributes(block: Any) -> dict[str, Any]:
    """Return the numbers and texts of a framework's own block; no flags, since a mode is one."""
    attributes = {}
    for name, value in vars(block).items():
        if not name.startswith("_") and type(value) in (int, float, str, tuple):
            attributes[name] = value
    return attributes


# Comparing ----------------------------------------------------------------------------------------


def _of_another_backend(before: Texts, here: Texts) -> Callable[[str], bool]:
    """Return a function that tells whether another backend has another name, or none, at a path."""

    def skipped(path: str) -> bool:
        kind = path.partition(".")[0]
        if kind in _OF_BACKEND:
            return True
        if kind == "network" and not (path in before and path in here):
            return True
        texts = (before.get(path, ""), here.get(path, ""))
        return any(text.startswith(_NATIVE) for text in texts)

    return skipped
