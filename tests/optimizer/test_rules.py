"""The update rules: fifty steps with a schedule, decay and clipping are those of PyTorch's
optimizers, or of the papers' formulas, in float64."""

import copy
import pickle
import warnings
from functools import cache

import numpy as np
import pytest

from deliralike import Network, backends, start
from deliralike.errors import ArgumentError, SettingError, StateError
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.rules import RULES, SGD, rule
from tests.conftest import BACKENDS

RNG = np.random.default_rng(11)
STEPS = 50
STARTS = {"w": RNG.normal(size=(7, 5)), "b": RNG.normal(size=3)}
SCALES = {"w": 10.0 ** RNG.uniform(-3, 1, size=(7, 5)), "b": np.array([1.0, 1e-3, 0.0])}
GRADIENTS = [
    {name: RNG.normal(size=each.shape) * SCALES[name] for name, each in STARTS.items()}
    for _ in range(STEPS)
]
FACTORS = 0.55 + 0.45 * np.cos(
    np.linspace(0, 7, STEPS)
)  # of the learning rate, a new one with every step
CLIP = 12.0
CASES = {
    "adadelta": {"lr": 1.0, "weight_decay": 0.02},
    "amsgrad": {"lr": 0.02, "weight_decay": 0.02},
    "adamw, amsgrad": {
        "lr": 0.02,
        "weight_decay": 0.3,
        "amsgrad": True,
        "betas": (0.9, 0.8),
    },
    "lion, decay": {"lr": 0.01, "weight_decay": 0.3, "betas": (0.8, 0.95)},
    "lamb, decay": {"lr": 0.02, "weight_decay": 0.1, "eps": 1e-3, "betas": (0.8, 0.95)},
    "sgd": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02},
    "nadam, decoupled": {
        "lr": 0.02,
        "weight_decay": 0.3,
        "decoupled_weight_decay": True,
        "betas": (0.8, 0.95),
        "momentum_decay": 0.3,
    },
    "adamax": {"lr": 0.02, "weight_decay": 0.02, "eps": 1e-3},
    "rprop, etas": {
        "lr": 0.02,
        "etas": (0.3, 1.5),
        "step_sizes": (0.01, 0.05),
        "weight_decay": 0.02,
    },
    "asgd": {"lr": 0.1, "weight_decay": 0.02, "lambd": 0.3, "t0": 10},
    "sgd, dampening": {
        "lr": 0.1,
        "momentum": 0.9,
        "dampening": 0.4,
        "weight_decay": 0.02,
    },
    "rmsprop, centered": {
        "lr": 0.01,
        "alpha": 0.9,
        "momentum": 0.8,
        "eps": 0.01,
        "centered": True,
    },
    "adagrad, lr_decay": {"lr": 0.05, "lr_decay": 0.1},
}


def lion(p, g, s, t, lr, weight_decay=0.0, betas=(0.9, 0.99)):
    """Chen et al. 2023, algorithm 2."""
    m = s.get("m", np.zeros_like(g))
    c = betas[0] * m + (1 - betas[0]) * g
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p - lr * (np.sign(c) + weight_decay * p)


def lamb(p, g, s, t, lr, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-6):
    """You et al. 2020, algorithm 2, phi the identity; a norm of zero makes the ratio one."""
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    update = (s["m"] / (1 - betas[0] ** t)) / (
        np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps
    ) + weight_decay * p
    norms = np.linalg.norm(p.ravel()), np.linalg.norm(update.ravel())
    return p - lr * (norms[0] / norms[1] if all(norms) else 1.0) * update


FORMULAS = {"lion": lion, "lamb": lamb}  # which PyTorch does not have


def by_rule(name, p, g, state, t, **settings):
    """A step of the neutral rule itself on NumPy arrays: that of PyTorch's optimizers, as the
    backend of PyTorch and drawn settings show below."""
    each = rule(name, **settings)
    if not state:
        state.update(
            (slot, np.zeros(shape))
            for slot, shape in each.state_shapes(p.shape).items()
        )
    p, new = each.update(p, g, dict(state), each.scalars(t), np)
    state.update(new)
    return p


def step_by_hand(name, p, g, state, t, **settings):
    if name in FORMULAS:
        return FORMULAS[name](p, g, state, t, **settings)
    return by_rule(name, p, g, state, t, **settings)


def oracle(case, clip=CLIP, starts=STARTS):
    """The parameters after each step, in NumPy."""
    name, settings = case.partition(",")[0], dict(CASES[case])
    lr, values, states, trace = (
        settings.pop("lr"),
        dict(starts),
        {name: {} for name in starts},
        [],
    )
    for t, (gradients, factor) in enumerate(
        zip(GRADIENTS, FACTORS, strict=True), start=1
    ):
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        scale = min(1.0, clip / norm)
        values = {
            each: step_by_hand(
                name,
                p,
                gradients[each] * scale,
                states[each],
                t,
                lr=lr * factor,
                **settings,
            )
            for each, p in values.items()
        }
        trace.append(values)
    return trace


class Parts(Network):
    """Two used parameters of which the loss is linear, so that the test chooses the gradients, and
    an unused one."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.w, self.b = (
            nn.Parameter((7, 5), STARTS["w"]),
            nn.Parameter((3,), STARTS["b"]),
        )
        self.unused = nn.Parameter((2,), start.Constant(3.0))
        self.frozen = nn.Parameter((4,), start.Constant(2.0))

    def forward(self, gradients):
        nn = self.nn
        return (
            nn.sum(self.w * gradients["w"])
            + nn.sum(self.b * gradients["b"])
            + nn.sum(self.frozen)
        )


def linear_loss(network, gradients):
    return network(gradients)


def parts(backend):
    network = Parts.on(backend, dtype="float64")()
    network.set_trainable("frozen", False)
    return network


def made(network, case, clip=CLIP):
    optimizer = network.backend.optimizer(
        rule(case.partition(",")[0], **CASES[case]), network
    )
    optimizer.pre_update_hooks.append(ClipNorm(clip))
    return optimizer


def run(optimizer, case, steps):
    trace = []
    for step in steps:
        optimizer.lr = CASES[case]["lr"] * FACTORS[step]
        optimizer.update(linear_loss, GRADIENTS[step])
        trace.append(optimizer.network.neutral_state())
    return trace


@cache
def fifty_steps(backend, case):
    """The parameters after each step, and the optimizer's state after three: what several tests
    look at."""
    optimizer = made(parts(backend), case)
    trace = run(optimizer, case, range(3))
    state = optimizer.neutral_state()
    return trace + run(optimizer, case, range(3, STEPS)), state


@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_with_schedule_decay_and_clipping_are_those_of_numpy(backend, case):
    trace, expected = fifty_steps(backend, case)[0], oracle(case)
    for step, (found, wanted) in enumerate(zip(trace, expected, strict=True)):
        for name, value in wanted.items():
            np.testing.assert_allclose(
                found[name],
                value,
                rtol=1e-12,
                atol=1e-12,
                err_msg=f"{name} at step {step}",
            )
    np.testing.assert_array_equal(trace[-1]["unused"], [3.0] * 2)
    np.testing.assert_array_equal(trace[-1]["frozen"], [2.0] * 4)


def test_parameters_that_take_no_part_have_no_state(backend):
    named = {
        case: {key.partition("/")[0] for key in fifty_steps(backend, case)[1]}
        for case in CASES
    }
    assert {
        case: names for case, names in named.items() if names != {"steps", "w", "b"}
    } == {}


# Each goes on from another; what they have after three steps is the same on all, so every pair
# would do.
BEFORE = dict(zip(BACKENDS, (*BACKENDS[1:], BACKENDS[0]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_alike_on_another_backend(backend, case):
    trace, state = fifty_steps(backends.get(BEFORE[backend.name]), case)
    network = parts(backend)
    resumed = made(network, case)
    network.load_neutral_state(trace[2])
    resumed.load_neutral_state(state)
    found = run(resumed, case, range(3, 8))[-1]
    for name, value in oracle(case)[7].items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-12, atol=1e-12, err_msg=name
        )


def test_a_state_that_is_loaded_replaces_all_of_the_old_one(backend):
    fresh, used = (made(parts(backend), "amsgrad") for _ in range(2))
    run(used, "amsgrad", range(2))
    used.load_neutral_state(fresh.neutral_state())
    assert list(used.neutral_state()) == ["steps"]
    with pytest.raises(StateError, match="the network lacks: elsewhere"):
        used.load_neutral_state({**fresh.neutral_state(), "elsewhere/sum": np.ones(3)})


@pytest.mark.parametrize("name", ["lamb", "lion"])
def test_nothing_moves_and_nothing_is_nan_where_gradients_and_parameters_are_zero(
    backend, name
):
    network = parts(backend)
    zeros = {name: np.zeros_like(value) for name, value in STARTS.items()}
    network.load_neutral_state({**network.neutral_state(), **zeros})
    backend.optimizer(rule(name, lr=0.1, weight_decay=0.1), network).update(
        linear_loss, zeros
    )
    np.testing.assert_array_equal(network.neutral_state()["w"], zeros["w"])


def test_lamb_starts_from_zero_with_a_ratio_of_one(backend):
    network = parts(backend)
    network.load_neutral_state({**network.neutral_state(), "b": np.zeros(3)})
    backend.optimizer(rule("lamb", lr=0.1), network).update(linear_loss, GRADIENTS[0])
    expected = lamb(np.zeros(3), GRADIENTS[0]["b"], {}, 1, lr=0.1)
    np.testing.assert_allclose(network.neutral_state()["b"], expected, rtol=1e-12)
    assert np.abs(expected).max() > 0.09


@pytest.mark.parametrize(
    "name",
    [
        "amsgrad",
        "lion",
        "lamb",
        "adagrad",
        "adadelta",
        "nadam",
        "adamax",
        "rprop",
        "asgd",
    ],
)
def test_a_gradient_that_is_nan_shows_in_the_parameter(backend, name):
    network = parts(backend)
    gradients = {
        "w": np.where(np.arange(35).reshape(7, 5) == 8, np.nan, 1.0),
        "b": np.ones(3),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        backend.optimizer(rule(name, lr=0.1), network).update(linear_loss, gradients)
    found = network.neutral_state()
    assert np.isnan(found["w"][1, 3])
    assert np.isfinite(found["b"]).all()


@pytest.mark.parametrize(
    "name",
    [
        "amsgrad",
        "lion",
        "lamb",
        "adagrad",
        "adadelta",
        "nadam",
        "adamax",
        "rprop",
        "asgd",
    ],
)
def test_a_network_in_single_precision_keeps_its_type(backend, name):
    network = Parts.on(backend, dtype="float32")()
    optimizer = backend.optimizer(rule(name, lr=0.01, weight_decay=0.1), network)
    for gradients in GRADIENTS[:3]:
        optimizer.update(linear_loss, gradients)
    state = optimizer.neutral_state() | network.neutral_state()
    assert {
        value.dtype.name
        for key, value in state.items()
        if not key.endswith(("steps", "/step"))
    } == {"float32"}
    values, s = STARTS["b"], {}
    for t, gradients in enumerate(GRADIENTS[:3], start=1):
        values = step_by_hand(
            name, values, gradients["b"], s, t, lr=0.01, weight_decay=0.1
        )
    np.testing.assert_allclose(
        network.neutral_state()["b"], values, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", RULES)
def test_a_rule_changes_nothing_in_place_and_keeps_its_slots(name):
    each, p, g = rule(name, lr=0.1), STARTS["w"], GRADIENTS[0]["w"]
    state = {
        slot: np.zeros(shape) for slot, shape in each.state_shapes(p.shape).items()
    }
    before = copy.deepcopy((p, g, state))
    _, new = each.update(p, g, state, each.scalars(1), np)
    np.testing.assert_equal((p, g, state), before)
    assert {slot: value.shape for slot, value in new.items()} == each.state_shapes(
        p.shape
    )


DRAWN = {
    "SGD": lambda draw: {"momentum": draw(0, 1), "dampening": draw(0, 1)},
    "RMSprop": lambda draw: {
        "alpha": draw(0.5, 1),
        "momentum": draw(0, 1),
        "centered": True,
    },
    "Adagrad": lambda draw: {"lr_decay": draw(0, 1), "eps": draw(0, 0.1)},
    "NAdam": lambda draw: {
        "betas": (draw(0.3, 1), draw(0.3, 1)),
        "momentum_decay": draw(0, 1),
        "decoupled_weight_decay": draw(0, 1) < 0.5,
    },
    "Adamax": lambda draw: {"betas": (draw(0.3, 1), draw(0.3, 1)), "eps": draw(0, 0.1)},
    "Rprop": lambda draw: {
        "etas": (draw(0.1, 1), draw(1, 2)),
        "step_sizes": (draw(1e-3, 0.05), draw(0.05, 0.1)),
    },
    "ASGD": lambda draw: {"lambd": draw(0, 0.5), "alpha": draw(0, 1), "t0": draw(3, 9)},
}


@pytest.fixture
def doubled():
    """PyTorch keeps NAdam's and ASGD's scalars in the default type."""
    torch = pytest.importorskip("torch")
    torch.set_default_dtype(torch.float64)
    yield torch
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", DRAWN)
def test_thirty_steps_and_their_state_are_those_of_pytorchs_own_optimizer(
    doubled, name, seed
):
    draw = np.random.default_rng(seed).uniform
    settings = {"lr": draw(0.001, 0.1), **DRAWN[name](draw)}
    if name != "Rprop":  # PyTorch's has no decay
        settings["weight_decay"] = draw(0, 0.3) * (seed % 2)
    native = doubled.tensor(STARTS["w"])
    native_rule = getattr(doubled.optim, name)([native], **settings)
    ours, p = rule(name.lower(), **settings), STARTS["w"]
    state = {
        slot: np.zeros(shape) for slot, shape in ours.state_shapes(p.shape).items()
    }
    for step in range(30):
        g = GRADIENTS[step]["w"]
        native.grad = doubled.tensor(g)
        native_rule.step()
        p, state = ours.update(p, g, state, ours.scalars(step + 1), np)
        np.testing.assert_allclose(p, native, rtol=1e-11, atol=1e-13)
    kept = native_rule.state[native]
    for slot, value in state.items():
        np.testing.assert_allclose(
            value, kept[slot], rtol=1e-11, atol=1e-13, err_msg=slot
        )


PLAIN = {
    "sgd": ("SGD", {}),
    "sgd, velocity": ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    "sgd, nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "sgd, dampening": ("SGD", {"momentum": 0.9, "dampening": 0.4}),
    "adam": ("Adam", {"amsgrad": True, "eps": 1e-3}),
    "adamw": ("AdamW", {"weight_decay": 0.1, "eps": 1e-3}),
    "adamax": ("Adamax", {"eps": 1e-3}),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", PLAIN)
def test_pytorchs_optimizers_are_those_without_fused_kernels_also_after_late_gradients(
    case, dtype
):
    import torch

    class Late(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(
                torch.linspace(-1, 1, 37).to(getattr(torch, dtype))
            )
            self.late = torch.nn.Parameter(self.w.detach()[:5].clone())

    def loss(network, g):
        rest = (network.late * g[:5]).sum() if network.has_begun else 0.0
        return (network.w * g).sum() + rest

    name, settings = PLAIN[case]
    network, plain = Late(), Late()
    native = getattr(torch.optim, name)(
        plain.parameters(), 0.1, foreach=False, **settings
    )
    backend = backends.get("torch")
    optimizer = backend.optimizer(
        rule(name.lower(), lr=0.1, **settings), backend.wrap(network)
    )
    for step in range(5):
        network.has_begun = plain.has_begun = step > 1
        g = torch.linspace(-0.3, 1, 37).roll(step).to(network.w.dtype)
        optimizer.update(lambda wrapped, g: loss(network, g), g)
        native.zero_grad()
        loss(plain, g).backward()
        native.step()
    tolerance = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.02, "float16": 0.003}[
        dtype
    ]
    for found, wanted in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["Lion", "LAMB"])
def test_pytorchs_side_of_a_neutral_rule_is_an_optimizer_of_its_own(kind):
    """Copies, pickles, state dicts and PyTorch's schedulers go on alike."""
    import torch

    from deliralike.backends.torch import update_rules

    def trained(reloaded):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2).double()
        optimizer = getattr(update_rules, kind)(
            layer.parameters(), lr=0.1, weight_decay=0.1
        )
        for step in range(6):
            optimizer.zero_grad()
            optimizer.step(
                lambda: (
                    layer(torch.arange(6.0).double().reshape(2, 3))
                    .square()
                    .sum()
                    .backward()
                )
            )
            if step == 2:
                optimizer, layer = reloaded(optimizer, layer)
        return layer.weight.detach()

    def by_state_dict(optimizer, layer):
        other = getattr(update_rules, kind)(layer.parameters(), lr=0.5)
        other.load_state_dict(optimizer.state_dict())
        return other, layer

    wanted = trained(lambda optimizer, layer: (optimizer, layer))
    for way in (
        by_state_dict,
        lambda *both: copy.deepcopy(both),
        lambda *both: pickle.loads(pickle.dumps(both)),
    ):
        assert torch.equal(trained(way), wanted)


@pytest.mark.parametrize("kind", ["Lion", "LAMB"])
def test_a_sparse_gradient_counts_as_the_dense_one_on_pytorch(kind):
    import torch

    from deliralike.backends.torch import update_rules

    weights = []
    for sparse in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Embedding(5, 3, sparse=sparse)
        optimizer = getattr(update_rules, kind)(layer.parameters(), lr=0.1)
        layer(torch.tensor([1, 1, 3])).square().sum().backward()
        optimizer.step()
        weights.append(layer.weight.detach())
    assert torch.equal(*weights)


BAD = {
    "a text": ({"lr": "0.1"}, r"Adam: lr='0.1' must be a number"),
    "NaN": ({"lr": float("nan")}, r"Adam: lr=nan must be at least 0 and finite"),
    "infinite": ({"lr": float("inf")}, r"Adam: lr=inf must be at least 0 and finite"),
    "a flag for a number": ({"lr": True}, r"Adam: lr=True must be a number"),
    "one beta": ({"lr": 0.1, "betas": 0.9}, r"Adam: betas=0.9 must be two numbers"),
    "three betas": (
        {"lr": 0.1, "betas": (0.9, 0.9, 0.9)},
        r"Adam: betas=\(0.9, 0.9, 0.9\) must be two numbers",
    ),
    "a beta of one": (
        {"lr": 0.1, "betas": (0.9, 1.0)},
        r"Adam: betas=\(0.9, 1.0\) must be below 1",
    ),
    "a number for a flag": (
        {"lr": 0.1, "amsgrad": 1},
        r"Adam: amsgrad=1 must be true or false",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_setting_that_makes_no_sense_is_refused(bad):
    settings, message = BAD[bad]
    with pytest.raises(SettingError, match=message):
        rule("adam", **settings)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sgd", {"nesterov": True}, "SGD: nesterov=True needs a momentum above 0"),
        (
            "sgd",
            {"nesterov": True, "momentum": 0.9, "dampening": 0.1},
            "and no dampening",
        ),
        (
            "rprop",
            {"etas": (0.5, 0.9)},
            r"Rprop: etas=\(0.5, 0.9\) must be below 1 and above 1",
        ),
        ("rprop", {"step_sizes": 0.1}, "Rprop: step_sizes=0.1 must be two numbers"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(name, settings, message):
    with pytest.raises(SettingError, match=message):
        rule(name, lr=0.1, **settings)


def test_a_rule_that_a_file_of_settings_holds_is_the_same_rule():
    """Whole numbers and lists, as JSON has them."""
    assert rule("adam", lr=1, betas=[0.5, 0]) == rule("adam", lr=1.0, betas=(0.5, 0.0))
    assert hash(rule("adam", lr=1, betas=[0.5, 0])) is not None


@pytest.mark.parametrize("value", [-0.1, float("nan"), "fast"])
def test_a_learning_rate_that_is_none_cannot_be_set(backend, value):
    optimizer = backend.optimizer(rule("lion", lr=0.1), parts(backend))
    with pytest.raises(SettingError, match=f"lr={value!r} must be"):
        optimizer.lr = value
    assert optimizer.lr == 0.1


def test_pytorch_names_a_rule_that_it_has_no_optimizer_for():
    class Own(SGD):
        pass

    with pytest.raises(ArgumentError, match="backend 'torch' has no optimizer for Own"):
        backends.get("torch").optimizer(Own(lr=0.1), parts(backends.get("torch")))


class Large(Network):
    """One parameter of more elements than Chainer updates at once; the loss is linear."""

    def __init__(self):
        super().__init__()
        self.w = self.nn.Parameter((151, 301), start.Normal(0.0, 1.0))

    def forward(self, gradients):
        return self.nn.sum(self.w * gradients["w"])


class DecayOfMatrices(SGD):
    """A rule that asks for the parameter's shape."""

    def _decayed(self, p, g):
        return super()._decayed(p, g) if p.ndim > 1 else g


@pytest.mark.parametrize(
    "made_rule",
    [rule("lamb", lr=0.02), DecayOfMatrices(lr=0.1, momentum=0.9, weight_decay=0.1)]
    + [
        rule(case.partition(",")[0], **CASES[case])
        for case in ("sgd", "amsgrad", "lion, decay")
    ],
    ids=lambda made_rule: type(made_rule).__name__,
)
def test_a_large_parameter_follows_the_rule_over_the_whole_array_on_chainer(made_rule):
    network = Large.on("chainer", dtype="float32")()
    p = network.neutral_state()["w"]
    state = {name: np.zeros_like(p) for name in made_rule.slots}
    optimizer = network.backend.optimizer(made_rule, network)
    for step in (1, 2, 3):
        g = RNG.normal(size=p.shape).astype(np.float32)
        optimizer.update(linear_loss, {"w": g})
        p, state = made_rule.update(p, g, state, made_rule.scalars(step), np)
    found = optimizer.neutral_state()
    np.testing.assert_array_equal(network.neutral_state()["w"], p)
    for name, array in state.items():
        np.testing.assert_array_equal(found[f"w/{name}"], array)
