"""Mutants of weight files and training checkpoints: a state is stored as something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike.conformance.subject import Subject
from deliralike.network.base import AbstractNetwork, Network
from deliralike.optim.optimizer import AbstractOptimizer
from tests.planted import Mistake
from tests.planted.planting import with_methods

State = dict[str, np.ndarray]
Change = Callable[[State], State]


def _writes(change: Change) -> Callable[[Subject], Subject]:
    """The candidate says something else of its weights than they are."""
    return with_methods("", neutral_state=lambda self: change(Network.neutral_state(self)))


def _reads(change: Change) -> Callable[[Subject], Subject]:
    """The candidate takes over something else than it is given."""

    def load(self: Any, state: Any, strict: bool = True) -> Any:
        return Network.load_neutral_state(self, change(dict(state)), strict=False)

    return with_methods("", load_neutral_state=load)


def _optimizer(
    writes: Change | None = None, reads: Change | None = None
) -> Callable[[Subject], Subject]:
    """Every optimizer of the candidate writes or reads another state."""

    def wrong(
        make: Callable[[AbstractNetwork], AbstractOptimizer],
    ) -> Callable[[AbstractNetwork], AbstractOptimizer]:
        def made(network: AbstractNetwork) -> AbstractOptimizer:
            optimizer = make(network)
            own: Any = type(optimizer)
            methods: dict[str, Any] = {}
            if writes is not None:
                methods["neutral_state"] = lambda self: writes(own.neutral_state(self))
            if reads is not None:
                methods["load_neutral_state"] = lambda self, state: own.load_neutral_state(
                    self, reads(dict(state))
                )
            optimizer.__class__ = type(own.__name__, (own,), methods)
            return optimizer

        return made

    return lambda subject: subject.but(
        optimizers={name: wrong(make) for name, make in subject.optimizers.items()}
    )


def _restores_rate(subject: Subject) -> Subject:
    """Whoever sets the learning rate of the candidate's optimizers after loading is not heard."""

    def made(
        make: Callable[[AbstractNetwork], AbstractOptimizer], network: AbstractNetwork
    ) -> AbstractOptimizer:
        optimizer = make(network)
        own: Any = type(optimizer)
        first = optimizer.lr

        def load(self: Any, state: State) -> None:
            own.load_neutral_state(self, state)
            self.loaded = True

        def set_rate(self: Any, value: float) -> None:
            own.lr.fset(self, first if getattr(self, "loaded", False) else value)

        rate = property(lambda self: own.lr.fget(self), set_rate)
        optimizer.__class__ = type(own.__name__, (own,), {"lr": rate, "load_neutral_state": load})
        return optimizer

    makes = {
        name: (lambda network, make=make: made(make, network))
        for name, make in subject.optimizers.items()
    }
    return subject.but(optimizers=makes)


def _without(end: str) -> Change:
    return lambda state: {name: value for name, value in state.items() if not name.endswith(end)}


def _each(end: str | tuple[str, ...], change: Callable[[np.ndarray], Any]) -> Change:
    return lambda state: {
        name: np.asarray(change(value)) if name.endswith(end) else value
        for name, value in state.items()
    }


def _exchanged(one: str, two: str) -> Change:
    return lambda state: {**state, one: state[two], two: state[one]}


def _half(state: State) -> State:
    return {name: _rounded(value, np.float16) for name, value in state.items()}


def _rounded(value: np.ndarray, kind: Any) -> np.ndarray:
    return value.astype(kind).astype(value.dtype) if value.dtype.kind == "f" else value


def _saved_half(state: State) -> State:
    return {
        name: value.astype(np.float16) if value.dtype.kind == "f" else value
        for name, value in state.items()
    }


def _keeping(end: str) -> Callable[[Subject], Subject]:
    """The candidate leaves some tensors as they were when it reads."""

    def load(self: Any, state: Any, strict: bool = True) -> Any:
        return Network.load_neutral_state(self, _without(end)(dict(state)), strict=False)

    return with_methods("", load_neutral_state=load)


_NO_MOMENTUM = _optimizer(reads=_each("momentum_buffer", np.zeros_like))

MISTAKES = (
    Mistake(
        "weights: a buffer forgotten",
        "checkpoints",
        _writes(_without("running_var")),
        ("norm.running_var",),
        ("missing",),
    ),
    Mistake(
        "weights: a buffer not read",
        "checkpoints",
        _keeping("running_mean"),
        ("norm.running_mean",),
        ("not restored",),
    ),
    Mistake(
        "weights: a bias not read",
        "checkpoints",
        _keeping("fc.bias"),
        ("fc.bias",),
        ("not restored",),
    ),
    Mistake(
        "weights: two tensors exchanged",
        "checkpoints",
        _writes(_exchanged("norm.weight", "norm.bias")),
        ("norm.weight",),
        ("holds norm.bias",),
    ),
    Mistake(
        "weights: two tensors exchanged in reading",
        "checkpoints",
        _reads(_exchanged("norm.running_mean", "conv.bias")),
        ("conv.bias",),
        ("exchanged",),
    ),
    Mistake(
        "weights: a square matrix transposed",
        "checkpoints",
        _writes(_each("square.weight", np.transpose)),
        ("square.weight",),
        ("transposed",),
        fixture="tied",
    ),
    Mistake(
        "weights: a square matrix transposed in reading",
        "checkpoints",
        _reads(_each("square.weight", np.transpose)),
        ("square.weight",),
        ("transposed",),
        fixture="tied",
    ),
    Mistake(
        "weights: kernel flipped",
        "checkpoints",
        _writes(_each("conv.weight", lambda w: w[..., ::-1, ::-1])),
        ("conv.weight",),
        ("kernel flipped",),
    ),
    Mistake(
        "weights: rounded to float16",
        "checkpoints",
        _writes(_half),
        ("conv.weight",),
        ("float16 on the way",),
    ),
    Mistake(
        "weights: float16 on disk",
        "checkpoints",
        _writes(_saved_half),
        ("conv.weight",),
        ("float16",),
    ),
    Mistake(
        "weights: float32 on disk",
        "checkpoints",
        _reads(lambda s: {n: _rounded(v, np.float32) for n, v in s.items()}),
        ("conv.weight",),
        ("float32",),
    ),
    Mistake(
        "weights: standard deviation for variance",
        "checkpoints",
        _writes(_each("running_var", np.sqrt)),
        ("running_var",),
        ("sqrt",),
    ),
    Mistake(
        "weights: a table scaled",
        "checkpoints",
        _writes(_each("fc.weight", lambda w: 0.125 * w)),
        ("fc.weight",),
        ("times 0.125",),
    ),
    Mistake(
        "optimizer: momentum not restored",
        "checkpoints",
        _optimizer(reads=_without("momentum_buffer")),
        ("momentum_buffer", "sgd"),
        ("missing", "not restored"),
    ),
    Mistake(
        "optimizer: momentum zero after reading",
        "checkpoints",
        _NO_MOMENTUM,
        ("momentum_buffer",),
        ("zero",),
    ),
    Mistake(
        "optimizer: momentum not written",
        "checkpoints",
        _optimizer(writes=_without("momentum_buffer")),
        ("momentum_buffer",),
        ("missing",),
    ),
    Mistake(
        "optimizer: momentum times the learning rate",
        "checkpoints",
        _optimizer(writes=_each("momentum_buffer", lambda v: -0.01 * v)),
        ("momentum_buffer",),
        ("times",),
    ),
    Mistake(
        "optimizer: step count lost",
        "checkpoints",
        _optimizer(reads=_each(("/step", "steps"), np.zeros_like)),
        ("step",),
        ("missing", "zeros"),
    ),
    Mistake(
        "optimizer: step count one late",
        "checkpoints",
        _optimizer(writes=_each("/step", lambda v: v - 1)),
        ("step",),
        ("counted by -1",),
    ),
    Mistake(
        "optimizer: moments exchanged",
        "checkpoints",
        _optimizer(writes=lambda s: {_other(n): v for n, v in s.items()}),
        ("exp_avg",),
        ("holds",),
    ),
    Mistake(
        "optimizer: learning rate not restored",
        "checkpoints",
        _restores_rate,
        ("optimizer",),
        ("learning rate not restored",),
    ),
)


def _other(name: str) -> str:
    """First and second moments under each other's name."""
    if name.endswith("/exp_avg"):
        return f"{name}_sq"
    return name.removesuffix("_sq") if name.endswith("/exp_avg_sq") else name
