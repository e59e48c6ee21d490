"""The comparison of two networks, level by level: from their names to optimizer steps."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.conformance.findings import is_array
from deliralike.conformance.kinds import Batch
from deliralike.conformance.ladder import Ladder, Progress, Settings
from deliralike.conformance.layout_adapter import called
from deliralike.conformance.masks import Masks
from deliralike.conformance.proof import Proof
from deliralike.conformance.proof_data import LEVELS
from deliralike.conformance.subject import Following, Subject
from deliralike.errors import BatchError, SettingError, StateError
from deliralike.network.core import unwrap
from deliralike.optim.loss import LossFunction
from deliralike.optim.rules import Rule, rule
from deliralike.training import classification_loss

__all__ = ["LEVELS", "OPTIMIZERS", "QUICK", "compare"]

QUICK = ("L0", "L1", "L3")
OPTIMIZERS = {
    "sgd": rule("sgd", lr=0.05, momentum=0.9),
    "adamw": rule("adamw", lr=1e-3),
}


def compare(
    reference: Any,
    candidate: Any,
    batch: Batch,
    *,
    loss: LossFunction = classification_loss,
    optimizers: Mapping[str, Rule] | None = None,
    names: Mapping[str, str] | None = None,
    weights: str = "judge",
    levels: Sequence[str] = LEVELS,
    progress: Progress | None = None,
) -> Proof:
    """Prove that two networks compute the same, or name the first place where they differ, and why.

    Both are copied and compared in float64. Neither changes, and the process keeps nothing of it:
    generators and the frameworks' switches are as before.

    Args:
        reference, candidate: Networks written once or native, of any backend; each a `Subject`,
            which brings a loss and optimizers of its own.
        batch: What the loss takes after the network: inputs, then the target; NumPy arrays, as
            either side wants them. Some ten samples of the usual size are plenty.
        loss: ``loss(network, *batch)``, written with `nn`, for sides that have none of their own.
        optimizers: Update rules by name, for sides that have none of their own; SGD with momentum
            and AdamW when None.
        names: Corrections of the map of names, those of the candidate by those of the reference,
            for networks whose names differ.
        weights: With ``"judge"`` both are to hold the same weights; with ``"load"`` the candidate
            takes over those of the reference.
        levels: Which levels; see `LEVELS`.
        progress: Called as each level is begun, with words and about how much of the work is done,
            from 0 to 1: ``("L4 optimizer steps", 0.6)``.

    Returns:
        The proof. ``print(proof)`` is the report, ``proof.check()`` raises unless it holds.

    Raises:
        SettingError: There is no such level, or way of treating weights, or the loss is no
            function; or a network is called otherwise than the default loss
            calls it.
        BatchError: The batch holds no sample.
        UnknownName: The networks cannot be matched, or a correction does not fit.
        ProofFailed: The reference itself raises an error on this batch.

    Example:
        >>> from deliralike import zoo
        >>> nets = [zoo.build("mlp", backend=name, in_features=3, out_features=2) for name in ("torch", "chainer")]
        >>> batch = (np.ones((5, 3)), np.array([0, 1, 1, 0, 1]))
        >>> compare(*nets, batch, levels=("L0", "L1")).proved
        True
    """
    if unknown := [name for name in levels if name not in LEVELS]:
        raise SettingError(
            f"compare: there is no level {unknown[0]!r}; there are {', '.join(LEVELS)}"
        )
    if weights not in ("judge", "load"):
        raise SettingError(f"compare: weights={weights!r}: wanted 'judge' or 'load'")
    if not callable(loss):
        raise SettingError(
            f"compare: loss={loss!r}: wanted a function, such as "
            "lambda network, x, y: network.nn.mse_loss(network(x), y)"
        )
    given = OPTIMIZERS if optimizers is None else optimizers
    sides = [_subject(one, loss, given) for one in (reference, candidate)]
    for side in sides:
        _check_call(side, batch)
    settings = Settings(tuple(levels), weights, dict(names or {}), progress)
    with ExitStack() as stack:
        stack.enter_context(_process_as_before())
        for backend in {side.network.backend for side in sides}:
            stack.enter_context(backend.preserve_global_state())
            stack.enter_context(backend.compiling_quickly())
        sides = [_with_shapes(side, batch) for side in sides]
        batch = _on_host(batch, sides)
        masks = Masks()
        stack.enter_context(
            masks.forced(*(backends.of(side.network) for side in sides))
        )
        return Ladder((sides[0], sides[1]), batch, settings, masks).proof()


def _subject(given: Any, loss: LossFunction, optimizers: Mapping[str, Rule]) -> Subject:
    subject = given if isinstance(given, Subject) else Subject(given, loss)
    subject = subject.replace(network=backends.wrap(subject.network))
    if subject.optimizers:
        return subject
    following = {name: Following(wanted) for name, wanted in optimizers.items()}
    return subject.replace(optimizers=following)


def _check_call(side: Subject, batch: Batch) -> None:
    """Refuse a network that the default loss cannot call with this batch."""
    if side.loss is not classification_loss:
        return
    native = unwrap(side.network)
    forward = getattr(native, "forward", native)
    if isinstance(batch, Mapping) or len(batch) < 2:
        why = f"the batch is {nest.map(_shape_or_value, batch)!r}, and the default loss wants (inputs, labels)"
    else:
        try:
            inspect.signature(forward).bind(*batch[:-1])
        except TypeError as error:
            signature = str(inspect.signature(forward))
            why = (
                f"forward{signature} with {len(batch) - 1} inputs by position: {error}"
            )
        except ValueError:  # of what has no signature in Python
            return
        else:
            return
    raise SettingError(
        f"compare: {side}: {why}. A network that is called in another way takes a loss of its own, "
        "compare(Subject(network, loss), Subject(other, loss), batch), with Subject of "
        "deliralike.conformance.subject: def loss(network, *batch): return "
        "network.nn.cross_entropy(network(x=batch[0]), batch[1]). A batch that is one dict goes in "
        "as (batch,): def loss(network, batch): return network.nn.cross_entropy(network(batch), "
        'batch["labels"])'
    )


def _shape_or_value(leaf: Any) -> Any:
    """An array by its shape."""
    return tuple(leaf.shape) if hasattr(leaf, "shape") else leaf


@contextmanager
def _process_as_before() -> Iterator[None]:
    """Leave the generators of Python and NumPy, and the filters of warnings, as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        with warnings.catch_warnings():  # packages that are imported here add to them
            # Two equal runs are compared, which says it better.
            warnings.filterwarnings(
                "ignore", ".* draws random numbers of NumPy", RuntimeWarning
            )
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _on_host(batch: Batch, sides: Sequence[Subject]) -> Batch:
    """The batch in NumPy arrays, which are to hold something."""
    for side in sides:
        batch = side.network.backend.to_numpy(batch)
    for path, leaf in nest.leaves_with_paths(batch, "batch"):
        if is_array(leaf) and not leaf.size:
            raise BatchError(
                f"compare: {path} has the shape {leaf.shape} and holds nothing: some samples are "
                "wanted"
            )
    return batch


def _with_shapes(side: Subject, batch: Batch) -> Subject:
    """A side whose parameters have their shapes; of a network that finds them when it is called, a copy."""
    try:
        side.network.neutral_state()
    except StateError:
        network = deepcopy(side.network)
        called(side.replace(network=network), side.network.backend.to_numpy(batch))
        return side.replace(network=network)
    return side
