"""What a run's future depends on, as texts by path: kept in a checkpoint, and compared when a run is resumed.

They are the same on every backend and in every process. Devices, replicas, processes, workers, epochs, callbacks and
metrics are not in them: these may change.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from deliralike.clipping import ClipNorm, ClipValue
from deliralike.data import Loader
from deliralike.errors import ArgumentError, CheckpointError, SettingError, suggestion
from deliralike.network import AbstractNetwork, Block
from deliralike.optimizer import AbstractOptimizer
from deliralike.rules import Rule
from deliralike.training import code_digest
from deliralike.training.describing import UNKNOWN, Texts, described, differences, parents
from deliralike.training.run import Run

_NATIVE = "native "  # before the name of a framework's own layer or optimizer, which has another one elsewhere
_OF_BACKEND = ("loss", "hooks")  # a function of a framework's own, too
_TOLD = 8  # differences that an error names


def fingerprints(run: Run) -> Texts:
    """Those of a run, by what they are of: ``"loss"``, ``"data"``, ``"optimizer"``, ``"network"`` and others."""
    found: Texts = dict.fromkeys(("data", "transform", "batch_transform"), UNKNOWN)  # where another process reads
    for name, value in (_of_trainer(run) | _of_loader(run.loader)).items():
        found |= described(name, value)
    if run.trainer.average is not None:
        found["average"] = type(run.trainer.average).__name__
    for name, optimizer in run.optimizers.items():
        found |= _of_optimizer(name, optimizer, run.trainer.base_lr[name])
        found |= described(f"schedule.{name}", run.trainer.schedules.get(name))
    return found | _of_validation(run.validation) | dict(_of_network(run.network))


def kept(run: Run) -> Texts:
    """Those that a run began with, for a checkpoint; what steps have changed since, such as a counter, is unknown."""
    if not run.fingerprints:
        run.fingerprints, run.fingerprinted_at = fingerprints(run), run.step
    if run.fingerprinted_at is not None and run.step > run.fingerprinted_at:
        now = fingerprints(run)
        run.fingerprints = {path: text if now.get(path) == text else UNKNOWN for path, text in run.fingerprints.items()}
        run.fingerprinted_at = None
    return run.fingerprints


def refuse_differences(before: Texts, here: Texts, same_backend: bool, accept: Sequence[str]) -> set[str]:
    """An error when a run is not the one of a checkpoint; the paths of the differences that are accepted.

    Raises:
        CheckpointError: Names what differs, with both values.
    """
    skipped = _nothing if same_backend else _of_another_backend(before, here)
    found = differences(before, here, skipped)
    refused = {path: text for path, text in found.items() if not set(parents(path)) & set(accept)}
    if refused:
        told = [f"{path} {text}" for path, text in list(refused.items())[:_TOLD]]
        more = f"; and {len(refused) - _TOLD} more" if len(refused) > _TOLD else ""
        names = sorted(_kinds(refused))
        raise CheckpointError(
            f"the checkpoint is one of another run: {'; '.join(told)}{more}. Give the run what it had, take the change "
            f"on purpose with accept={names}, or begin a new one from the weights, network.safetensors"
        )
    return set(found)


def of_the_same_kinds(here: Texts, before: Texts) -> Texts:
    """The fingerprints of kinds that the others have too."""
    known = _kinds(before)
    return {path: text for path, text in here.items() if _kind(path) in known}


def warn_of_unchecked(before: Iterable[str], here: Iterable[str]) -> None:
    """Say which kinds of fingerprints a checkpoint of an older version lacks."""
    missing = sorted(_kinds(here) - _kinds(before))
    if missing:
        warnings.warn(
            f"the checkpoint was written by an older deliralike. What it does not say was not compared: "
            f"{', '.join(missing)}",
            stacklevel=2,
        )


def refuse_unknown_names(accept: Iterable[str], paths: Iterable[str]) -> None:
    """An error when something is accepted that no fingerprint is called.

    Raises:
        SettingError: Names it, and the nearest.
    """
    known = {above for path in paths for above in parents(path)}
    for name in accept:
        if name not in known:
            raise SettingError(f"accept: a run has no {name!r}. {suggestion(name, sorted(_kinds(known)))}")


def samples_of(loader: Loader) -> int | None:
    """How many there are in an epoch; None for a stream."""
    try:
        return int(loader.samples)
    except ArgumentError:
        return None


# Of what -------------------------------------------------------------------------------------------------------------


def _of_trainer(run: Run) -> dict[str, Any]:
    trainer, average = run.trainer, None
    if trainer.average is not None:
        average = {name: getattr(trainer.average, name) for name in ("decay", "start", "every", "warmup")}
    return {
        "dtype": run.network.dtype_name,
        "seed": trainer.seed,
        "rng": trainer.rng,
        "loss": trainer.losses,
        "average": average,
    }


def _of_loader(loader: Loader) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "samples": samples_of(loader),
        "order": loader.sampler,
        "order_seed": loader.seed,
        **loader.contents(),
    }


def _of_validation(validation: Any) -> Texts:
    """Of the data to judge by; they may be added or left out."""
    if validation is None:
        return {"validation": UNKNOWN}
    return described("validation", validation.contents() if isinstance(validation, Loader) else {"data": validation})


def _of_optimizer(name: str, optimizer: AbstractOptimizer, lr: float) -> Texts:
    found: Texts = {}
    hooks: list[Any] = [*optimizer.pre_update_hooks, *optimizer.post_update_hooks]
    settings = {
        "precision": optimizer.precision,
        "accumulate": optimizer.accumulate,
        "clip_norm": _one([hook.max_norm for hook in hooks if isinstance(hook, ClipNorm)]),
        "clip_value": _one([hook.max_value for hook in hooks if isinstance(hook, ClipValue)]),
        "hooks": [hook for hook in hooks if code_digest.is_own(getattr(hook, "__module__", None))],
    }
    for kind, value in settings.items():
        found |= described(f"{kind}.{name}", value)
    where, groups = f"optimizer.{name}", optimizer.groups
    found[f"{where}.parameters"] = repr(optimizer.pattern)
    found[f"{where}.lr"] = repr(float(lr))
    if groups is None:
        return found | {where: f"{_NATIVE}optimizer"} | described(f"{where}.settings", optimizer.settings())
    found[where] = type(groups.rules[0]).__name__
    for number, value in _numbers(groups.rules[0]).items():
        found |= described(f"{where}.{number}", value)
    for pattern, rule, first in zip(groups.patterns, groups.rules[1:], groups.first[1:], strict=True):
        found |= described(f"{where}.groups.{pattern}", {"lr": first, **_numbers(rule)})
    return found


def _numbers(rule: Rule) -> dict[str, Any]:
    """The numbers of a rule, the learning rate aside."""
    return {field.name: getattr(rule, field.name) for field in fields(rule) if field.name != "lr"}


def _one(values: list[float]) -> Any:
    if len(values) > 1:
        return tuple(values)
    return values[0] if values else None


def _of_network(network: AbstractNetwork) -> Iterator[tuple[str, str]]:
    """The class and the arguments of each block; of a framework's own ones their numbers."""
    blocks = dict(network.named_blocks())
    wrapped = getattr(blocks[""], "native", None)
    if network.backend.is_native(wrapped):
        blocks[""] = wrapped
    for path, block in blocks.items():
        where = f"network.{path}".rstrip(".")
        written = getattr(type(block), "written_once", None)
        yield where, f"{_NATIVE}{type(block).__name__}" if written is None else written.__name__
        code = code_digest.of_class(written or type(block))
        if code is not None:
            yield f"{where}.code", code
        arguments = _attributes(block) if written is None else _arguments(written, block)
        for name, value in arguments.items():
            yield from described(f"{where}.{name}", value).items()


def _arguments(written: Any, block: Any) -> dict[str, Any]:
    """What a block was made with, defaults included; a number that was set by hand since is the one that it has."""
    parameters = inspect.signature(written.__init__).parameters
    found = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    found |= getattr(block, "init_kwargs", {})
    for name in found:
        value = vars(block).get(name)
        if isinstance(value, float) and isinstance(found[name], int | float):
            found[name] = value
    return {name: value for name, value in found.items() if not (isinstance(value, Block) or callable(value))}


def _attributes(block: Any) -> dict[str, Any]:
    """The numbers and texts of a framework's own block; no flags, since a mode is one."""
    return {
        name: value
        for name, value in vars(block).items()
        if not name.startswith("_") and type(value) in (int, float, str, tuple)
    }


# Comparing -----------------------------------------------------------------------------------------------------------


def _kind(path: str) -> str:
    return path.partition(".")[0]


def _kinds(paths: Iterable[str]) -> set[str]:
    return set(map(_kind, paths))


def _nothing(path: str) -> bool:
    return False


def _of_another_backend(before: Texts, here: Texts) -> Callable[[str], bool]:
    """Whether a path is of something that another backend has under another name, or has not."""

    def skipped(path: str) -> bool:
        kind, texts = _kind(path), (before.get(path), here.get(path))
        if kind in _OF_BACKEND:
            return True
        native = any(text is not None and text.startswith(_NATIVE) for text in texts)
        return native or (kind == "network" and None in texts)

    return skipped
