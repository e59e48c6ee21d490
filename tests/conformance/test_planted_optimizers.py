"""Mistakes planted in right optimizers are seen, placed and explained; right ones pass."""

import pytest

from deliralike.conformance.findings import FAILED, PASSED
from deliralike.conformance.levels import stepping
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm
from tests.conformance.optimizing import (
    BOUND,
    OPTIMIZERS,
    get,
    optimizer,
    right,
    with_optimizers,
)

# Rules with another formula, as a port would have it
# -----------------------------------------------------------------------------


class OtherAdam(rules.Adam):
    """Adam by its definition; a mistake overrides a part of it."""

    def scalars(self, step):
        first, second = self.betas
        corrections = {"first": 1 - first**step, "second": 1 - second**step}
        return super().scalars(step) | corrections

    def update(self, p, g, state, scalars, xp):
        first, second = self.betas
        g = self._decayed(p, g)
        m = first * state["exp_avg"] + (1 - first) * g
        v = second * state["exp_avg_sq"] + (1 - second) * g * g
        step = self.divided(m / scalars["first"], v / scalars["second"])
        return p - scalars["lr"] * step, {"exp_avg": m, "exp_avg_sq": v}

    def divided(self, m, v):
        return m / (v**0.5 + self.eps)


class EpsilonInside(OtherAdam):
    def divided(self, m, v):
        return m / (v + self.eps) ** 0.5


class NoBiasCorrection(OtherAdam):
    def scalars(self, step):
        return super().scalars(step) | {"first": 1.0, "second": 1.0}


class StepOffByOne(OtherAdam):
    def scalars(self, step):
        return super().scalars(step + 1)


class DecayNotTimesRate(OtherAdam):
    def update(self, p, g, state, scalars, xp):
        new, state = super().update(p, g, state, scalars, xp)
        return new - self.weight_decay * p, state

    def _decayed(self, p, g):
        return g


# Hooks that spoil the gradients
# -----------------------------------------------------------------------------


def changed(change):
    """A hook that changes each gradient there is by a function of it and of its parameter."""

    def hook(optimizer, gradients):
        slots = optimizer.network.neutral_slots()
        return {
            name: None if g is None else change(g, slots[name].value)
            for name, g in gradients.items()
        }

    return hook


def zeros_for_unused(optimizer, gradients):
    slots = optimizer.network.neutral_slots()
    return {
        name: slots[name].value * 0.0 if g is None else g
        for name, g in gradients.items()
    }


def never_cleared(optimizer, gradients):
    """Add the gradients of all steps before."""
    sums = vars(optimizer).setdefault("sums", {})
    present = {name: g for name, g in gradients.items() if g is not None}
    for name, g in present.items():
        sums[name] = g + sums.get(name, 0.0)
    return gradients | {name: sums[name] for name in present}


def clip_each(g, p):
    return g * (BOUND / ((g * g).sum() ** 0.5).clip(BOUND))


BY_TENSOR = {"hooks": [changed(clip_each)]}
DECAY = changed(lambda g, p: g + 0.01 * p)


# The mistakes
# -----------------------------------------------------------------------------

MISTAKES = [  # the backend, the optimizer, what is changed in it, and the cause
    ("torch", "adam", {"betas": (0.999, 0.9)}, "beta1=0.999 instead of 0.9"),
    ("torch", "adam", {"lr": 0.02}, "lr=0.02 instead of 0.01"),
    ("torch", "adamw", {"weight_decay": 0.0}, "no weight decay"),
    ("torch", "amsgrad", {"kind": rules.Adam}, "no amsgrad"),
    ("torch", "rmsprop", {"momentum": 0.0}, "momentum=0 instead of 0.9"),
    ("torch", "sgd", {"nesterov": True}, "nesterov=True instead of False"),
    ("torch", "nesterov", {"nesterov": False}, "nesterov=False instead of True"),
    # PyTorch's backend takes no rule of one's own.
    ("chainer", "adam", {"kind": EpsilonInside}, "epsilon inside the root"),
    ("chainer", "adam", {"kind": NoBiasCorrection}, "no bias correction"),
    ("chainer", "adam", {"kind": StepOffByOne}, "step count off by one"),
    ("chainer", "adamw", {"kind": DecayNotTimesRate}, "not times the learning rate"),
    ("torch", "adam", {"hooks": [never_cleared]}, "never cleared"),
    ("torch", "adam", {"hooks": [zeros_for_unused]}, "unused parameters updated"),
    ("torch", "sgd", {"hooks": [changed(lambda g, p: 4 * g)]}, "gradients times 4"),
    ("torch", "sgd", {"hooks": [changed(lambda g, p: -g)]}, "gradient ascent"),
    (
        "torch",
        "clipped",
        {"hooks": [DECAY, ClipNorm(BOUND)], "weight_decay": 0.0},
        "decay before clipping",
    ),
    ("torch", "clipped", BY_TENSOR, "clipping per tensor"),
    ("jax", "clipped", BY_TENSOR, "clipping per tensor"),
]
PLACES = {
    "unused parameters updated": "unused parameter",
    "lr=0.02 instead of 0.01": "learning rate",
}


def check(found, place, cause):
    assert found.status == FAILED
    assert any(place in f"{each.place}, {each.what}" for each in found.findings)
    causes = [each.explanation.cause for each in found.findings if each.explained]
    assert any(cause in each for each in causes), list(map(str, found.findings))


@pytest.mark.parametrize(("backend", "name", "changes", "cause"), MISTAKES)
def test_a_planted_mistake_is_detected_placed_and_explained(
    backend, name, changes, cause
):
    reference = with_optimizers(get("torch"), **{name: optimizer(name)})
    wrong = with_optimizers(get(backend), **{name: optimizer(name, **changes)})
    found = stepping.level(reference, wrong, never=("fc.bias",))
    check(found, PLACES.get(cause, f"optimizer {name}"), cause)


@pytest.mark.parametrize(
    ("backend", "names", "seed"),
    [
        ("torch", OPTIMIZERS, 0),
        ("chainer", OPTIMIZERS, 1),
        ("jax", ("clipped", "lamb"), 0),
    ],
    ids=["torch", "chainer", "jax"],
)
def test_right_optimizers_are_not_accused(backend, names, seed):
    sides = [right(get(each)) for each in ("torch", backend)]
    sides = [
        each.replace(optimizers={name: each.optimizers[name] for name in names})
        for each in sides
    ]
    found = stepping.level(*sides, seed=seed)
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert found.worst < 1e-13
