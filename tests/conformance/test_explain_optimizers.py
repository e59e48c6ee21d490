"""The causes of other updates: simulated forms are those of the frameworks, and unlisted numbers
are found."""

from dataclasses import replace

import jax
import numpy as np
import optax
import pytest
import torch

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance.explain import optimizers as explaining
from deliralike.conformance.explain.updates import form_of, simulate
from deliralike.conformance.levels import stepping
from deliralike.optim import rules
from deliralike.optim.clipping import ClipNorm
from tests.conformance.accusing import known
from tests.conformance.optimizing import (
    following,
    get,
    of_chainer,
    of_optax,
    of_torch,
    optimizer,
    with_optimizers,
)

SETTINGS = {
    "sgd": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.03},
    "adam": {"lr": 0.01, "betas": (0.8, 0.99), "weight_decay": 0.03},
    "adamw": {"lr": 0.01},
    "amsgrad": {"lr": 0.01},
    "rmsprop": {"lr": 0.01, "momentum": 0.7, "weight_decay": 0.03},
    "adagrad": {"lr": 0.01},
    "adadelta": {"lr": 1.0, "rho": 0.8},
    "lion": {"lr": 0.001, "weight_decay": 0.1},
}
LR = {"sgd": 0.1, "rmsprop": 0.01, "adagrad": 0.01, "adadelta": 1.0}


def trace_of(reference, candidate=None, backend="torch", **changes):
    """What an explanation is made from, of two optimizers."""
    subjects = (
        with_optimizers(get("torch"), x=reference),
        with_optimizers(get(backend), x=candidate or reference),
    )
    forced = stepping.Forced.of(subjects[0].network, 12, 0)
    sides = [
        stepping._Side(subject.network, subject.optimizers["x"]) for subject in subjects
    ]
    return replace(stepping._Run("x", forced, sides, free=False).trace(), **changes)


def explained(reference, candidate, backend="torch", **settings):
    """The explanation of a candidate's updates."""
    subjects = (
        with_optimizers(get("torch"), x=reference),
        with_optimizers(get(backend), x=candidate),
    )
    found = stepping.level(*subjects, **settings).findings
    return next(finding.explanation for finding in found if "update" in finding.what)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_simulated_rule_is_that_of_pytorch(name):
    rule = rules.rule(name, **SETTINGS[name])
    trace = trace_of(following(name, **SETTINGS[name]))
    rounding = 4 * 2.0**-52 * np.abs(trace.parameters)
    difference = np.abs(simulate(form_of(name, vars(rule)), trace) - trace.reference)
    assert (difference <= 1e-12 * np.abs(trace.reference) + rounding).all()
    assert np.abs(trace.reference).max(axis=1).min() > 0


# What frameworks do, which is an answer of its own for each form
# -----------------------------------------------------------------------------

PORTS = {
    "momentum": (
        "chainer",
        "sgd",
        {"momentum": 0.9},
        "MomentumSGD",
        {"lr": 0.1, "momentum": 0.9},
        "the learning rate inside the velocity",
    ),
    "nesterov": (
        "chainer",
        "sgd",
        {"momentum": 0.9, "nesterov": True},
        "NesterovAG",
        {"lr": 0.1, "momentum": 0.9},
        "Nesterov in the form of Chainer's NesterovAG",
    ),
    "adam": ("chainer", "adam", {}, "Adam", {"alpha": 0.01}, "epsilon unscaled"),
    "amsgrad": (
        "chainer",
        "amsgrad",
        {},
        "AMSGrad",
        {"alpha": 0.01},
        "epsilon unscaled",
    ),
    "adagrad": (
        "chainer",
        "adagrad",
        {},
        "AdaGrad",
        {"lr": 0.01},
        "eps=1e-08 instead of 1e-10",
    ),
    "rmsprop": (
        "chainer",
        "rmsprop",
        {},
        "RMSprop",
        {"lr": 0.01, "eps_inside_sqrt": True},
        "epsilon inside the root",
    ),
    "dampening": (
        "torch",
        "sgd",
        {"momentum": 0.9},
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.37},
        "dampening=0.37 instead of 0",
    ),
}


@pytest.mark.parametrize(
    "case",
    PORTS,
)
def test_optimizers_of_frameworks_are_distinguished(case):
    backend, name, settings, kind, native, cause = PORTS[case]
    kind = getattr(chainer.optimizers, kind) if isinstance(kind, str) else kind
    make = {"torch": of_torch, "chainer": of_chainer, "jax": of_optax}[backend]
    reference = following(name, lr=LR.get(name, 0.01), **settings)
    found = explained(reference, make(kind, **native), backend)
    known(found, cause)


def test_the_settings_of_a_native_reference_are_known():
    reference = of_torch(torch.optim.SGD, lr=0.02, momentum=0.73, weight_decay=0.04)
    hook = chainer.optimizer_hooks.WeightDecay(0.04)
    found = explained(
        reference,
        of_chainer(chainer.optimizers.MomentumSGD, hook, lr=0.02, momentum=0.73),
        "chainer",
    )
    assert found.known
    assert found.cause.startswith("the learning rate inside the velocity")
    form = trace_of(reference).form
    assert (form.kind.__name__, form.momentum, form.weight_decay) == ("SGD", 0.73, 0.04)


def of_chain(first, second):
    """Optax's transformations, one after the other, whose learning rate can be set."""

    def chain(learning_rate):
        return optax.chain(first, second(learning_rate))

    return of_optax(chain, learning_rate=0.1)


def of_matrices(parameters):
    return jax.tree.map(lambda value: value.ndim > 1, parameters)


def adamw_of_matrices(learning_rate):
    return optax.adamw(learning_rate, weight_decay=0.01, mask=of_matrices)


SGD, ADAMW = following("sgd", lr=0.1), following("adamw", lr=0.01)
CLIPPED = following("sgd", ClipNorm(0.5), lr=0.1)
TRAPS = {
    "default decay": (
        ADAMW,
        of_optax(optax.adamw, learning_rate=0.01),
        "jax",
        "weight_decay=0.0001 instead of 0.01",
    ),
    "clip by value": (
        CLIPPED,
        of_chain(optax.clip(0.5), optax.sgd),
        "jax",
        "clipping by value instead of norm",
    ),
    "no clip": (CLIPPED, SGD, "torch", "no clipping of gradients"),
    "clip added": (
        SGD,
        following("sgd", ClipNorm(0.25), lr=0.1),
        "torch",
        "clipping by the joint norm; bound 0.25",
    ),
    "decay of matrices alone": (
        ADAMW,
        of_optax(adamw_of_matrices, learning_rate=0.01),
        "jax",
        "no weight decay of biases and other vectors",
    ),
    "Adam for AdamW": (
        ADAMW,
        of_torch(torch.optim.Adam, lr=0.01, weight_decay=0.01),
        "torch",
        "weight decay coupled: as L2",
    ),
    "decay that is new": (
        following("adam", lr=0.01),
        of_torch(torch.optim.AdamW, lr=0.01, weight_decay=0.03),
        "torch",
        "weight_decay=0.03 instead of 0; weight decay decoupled",
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_people_do_with_optimizers(trap):
    reference, candidate, backend, cause = TRAPS[trap]
    found = explained(reference, candidate, backend)
    known(found, cause)


# Numbers that no list has
# -----------------------------------------------------------------------------

UNLISTED = [
    ("adam", {"eps": 4.7e-5}, "eps=4.7e-05 instead of 1e-08"),
    ("adam", {"betas": (0.9, 0.9871)}, "beta2=0.9871"),
    ("sgd", {"momentum": 0.8371}, "momentum=0.8371 instead of 0.9"),
    ("sgd", {"weight_decay": 0.0371}, "weight_decay=0.0371"),
    ("rmsprop", {"centered": True}, "squares centered"),
    ("adadelta", {"rho": 0.77}, "rho=0.77"),
    ("adagrad", {"lr_decay": 0.037}, "lr_decay=0.037"),
]


@pytest.mark.parametrize(("name", "settings", "cause"), UNLISTED)
def test_numbers_that_no_list_has_are_found(name, settings, cause):
    found = explained(optimizer(name), optimizer(name, **settings), "chainer")
    known(found, cause)


# What is not known
# -----------------------------------------------------------------------------


def test_what_nothing_explains_is_called_unknown():
    random = np.random.default_rng(0)

    def drawn(optimizer, gradients):
        return {
            name: g if g is None else g * random.uniform(0.5, 2)
            for name, g in gradients.items()
        }

    found = explained(SGD, following("sgd", drawn, lr=0.1))
    assert not found.known
    assert str(found).startswith("Cause unknown: ")
    assert all(
        word in found.cause for word in ("at step", "gradient", "update", "instead of")
    )


@pytest.mark.parametrize("name", ["beta2", "eps"])
def test_a_setting_that_a_candidate_hides_is_found(name):
    settings = {"beta2": 0.97} if name == "beta2" else {"eps": 3e-6}
    hidden = optax.adam(0.01, **{name.replace("beta", "b"): settings[name]})
    usual = {"beta2": "0.999", "eps": "1e-08"}[name]
    found = explained(
        following("adam", lr=0.01),
        lambda one: one.backend.wrap_optimizer(hidden, one),
        "jax",
    )
    known(found, f"{name}={settings[name]:g} instead of {usual}")


def test_decay_of_native_groups_is_known_and_its_loss_named():
    def grouped(one):
        matrices, vectors = [], []
        for parameter in one.parameters():
            (matrices if parameter.ndim > 1 else vectors).append(parameter)
        groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        native = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.3)
        return one.backend.wrap_optimizer(native, one)

    trace = trace_of(grouped)
    decays = trace.by_parameter(trace.form.weight_decay) / np.array(trace.sizes)
    assert decays == pytest.approx(np.where(np.array(trace.axes) > 1, 0.3, 0.0))
    found = explained(grouped, following("adamw", lr=0.01, weight_decay=0.3))
    known(found, "weight decay of biases and other vectors too")


def test_of_a_reference_that_is_not_known_the_numbers_are_shown():
    hidden = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1))
    subjects = [
        with_optimizers(
            get("jax"), x=lambda one, tx=tx: one.backend.wrap_optimizer(tx, one)
        )
        for tx in (hidden, optax.sgd(0.1))
    ]
    found = stepping.level(*subjects).findings[0].explanation
    assert not found.known
    assert "the rule of the reference is not known" in found.cause
    assert "gradient" in found.cause
    assert "instead of" in found.cause


def test_a_schedule_in_float32_is_said_to_be_like_one():
    exact = optax.sgd(lambda count: 0.1 * (count + 1.0) / 7.0)
    rounded = optax.sgd(lambda count: np.float32(0.1) * (count + 1.0) / 7.0)
    subjects = [
        with_optimizers(
            get("jax"), x=lambda one, tx=tx: one.backend.wrap_optimizer(tx, one)
        )
        for tx in (exact, rounded)
    ]
    finding = stepping.level(*subjects).findings[0]
    assert 1e-9 < finding.difference < 2e-7
    assert "float32 rounds to 6e-8" in str(finding)


def test_equal_updates_need_no_explanation():
    assert explaining.explain(trace_of(following("adam", lr=0.1))) is None


def test_causes_that_match_as_well_stand_beside_each_other():
    """Without momentum a gradient times two is a learning rate times two."""

    def doubled(optimizer, gradients):
        return {name: None if g is None else 2 * g for name, g in gradients.items()}

    found = explained(SGD, following("sgd", doubled, lr=0.1))
    assert found.cause == (
        "learning rate times 2, or a sum for a mean, or the other way round: gradients times 2"
    )
    assert found.next_best > 1e-3


# References of PyTorch's own, as training scripts have them
# -----------------------------------------------------------------------------


def test_a_mean_in_the_place_of_a_velocity_is_named_beside_the_rate_that_it_comes_to():
    reference = of_torch(torch.optim.SGD, lr=0.1, momentum=0.9)
    chain = of_optax(
        lambda learning_rate: optax.chain(
            optax.ema(0.9, debias=False), optax.sgd(learning_rate)
        ),
        learning_rate=0.1,
    )
    found = explained(reference, chain, "jax")
    known(found, "dampening", "times 0.1")
