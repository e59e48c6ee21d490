"""The update rules on every backend: the updates of PyTorch's own optimizers, or of timm's, for
parameters of 0 to 4 axes; states, types, settings, replicas."""

import copy
import pickle
import warnings
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from deliralike import Network, backends, start
from deliralike.backends.torch import update_rules
from deliralike.errors import ArgumentError, SettingError, StateError
from deliralike.optim.rules import RULES, SGD, rule
from tests.conftest import BACKENDS
from tests.references import Later

RNG = np.random.default_rng(5)
SHAPES = {
    "scalar": (),
    "vector": (5,),
    "tall": (7, 3),
    "wide": (3, 8),
    "cube": (2, 3, 4),
    "kernel": (4, 3, 2, 5),
}
STARTS = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}
STEPS, RESUMED = 20, 6
GRADIENTS = [
    {
        name: RNG.normal(size=shape) * 10.0 ** RNG.uniform(-3, 1, shape)
        for name, shape in SHAPES.items()
    }
    for _ in range(STEPS)
]
# of the learning rate, a new one with every step
FACTORS = 0.55 + 0.45 * np.cos(np.linspace(0, 7, STEPS))
CASES = {
    "adadelta": {"lr": 1.0, "weight_decay": 0.02},
    "amsgrad": {"lr": 0.02, "weight_decay": 0.02},
    "adamw, amsgrad": {
        "lr": 0.02,
        "weight_decay": 0.3,
        "amsgrad": True,
        "betas": (0.9, 0.8),
    },
    "lion": {"lr": 0.01, "weight_decay": 0.3, "betas": (0.8, 0.95)},
    "lamb": {"lr": 0.02, "weight_decay": 0.1, "eps": 1e-3, "betas": (0.8, 0.95)},
    "sgd": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02},
    "sgd, dampening": {
        "lr": 0.1,
        "momentum": 0.9,
        "dampening": 0.4,
        "weight_decay": 0.02,
    },
    "nadam, decoupled": {
        "lr": 0.02,
        "weight_decay": 0.3,
        "decoupled_weight_decay": True,
        "betas": (0.8, 0.95),
        "momentum_decay": 0.3,
    },
    "nadam": {"lr": 0.02, "weight_decay": 0.1},
    "adamax": {"lr": 0.02, "weight_decay": 0.02, "eps": 1e-3, "betas": (0.8, 0.95)},
    "rprop": {
        "lr": 0.02,
        "etas": (0.3, 1.5),
        "step_sizes": (0.01, 0.05),
        "weight_decay": 0.02,
    },
    "asgd": {"lr": 0.1, "weight_decay": 0.02, "lambd": 0.3, "alpha": 0.6, "t0": 10},
    "rmsprop, centered": {
        "lr": 0.01,
        "alpha": 0.9,
        "momentum": 0.8,
        "eps": 0.01,
        "centered": True,
        "weight_decay": 0.02,
    },
    "adagrad": {"lr": 0.05, "lr_decay": 0.1, "eps": 0.01, "weight_decay": 0.02},
    "radam": {"lr": 0.02, "betas": (0.8, 0.9), "weight_decay": 0.1},
    "radam, decoupled": {
        "lr": 0.02,
        "weight_decay": 0.1,
        "decoupled_weight_decay": True,
        "eps": 1e-3,
    },
    "adafactor": {"lr": 0.02, "weight_decay": 0.1},
    "muon": {"lr": 0.02},
    "muon, all settings": {
        "lr": 0.02,
        "nesterov": False,
        "momentum": 0.8,
        "weight_decay": 0.3,
        "adjust_lr_fn": "match_rms_adamw",
    },
}
# Of PyTorch and timm, by the names of the rules.
OPTIMIZERS = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
}
OPTIMIZERS["amsgrad"] = partial(torch.optim.Adam, amsgrad=True)
OPTIMIZERS["lion"] = Later("timm.optim.Lion")
OPTIMIZERS["lamb"] = partial(Later("timm.optim.Lamb"), max_grad_norm=None)
# All rules but those that PyTorch's side of every backend test covers: the usual ones.
NAMES = [
    *("amsgrad", "lion", "lamb", "adagrad", "adadelta", "nadam", "adamax", "rprop"),
    *("asgd", "radam", "adafactor", "muon"),
]


def name_of(case):
    return case.partition(",")[0]


def rates(case):
    """The learning rate of each step; PyTorch's ASGD takes a new one a step late."""
    return CASES[case]["lr"] * (np.ones(STEPS) if case == "asgd" else FACTORS)


# What is wanted
# -----------------------------------------------------------------------------


@contextmanager
def in_double():
    """PyTorch keeps scalars of NAdam and ASGD in the default type, and casts Muon's iterations to
    bfloat16."""
    torch.set_default_dtype(torch.float64)
    try:
        with mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def natives(case, parameters):
    """PyTorch's own optimizers for a rule."""
    name, settings = name_of(case), dict(CASES[case])
    if name == "rprop":
        del settings["weight_decay"]  # which PyTorch's does not have
    if name != "muon":
        return [OPTIMIZERS[name](parameters.values(), **settings)]
    both = {key: settings.pop(key, 0.1) for key in ("lr", "weight_decay")}
    matrices = [each for each in parameters.values() if each.ndim == 2]
    others = [each for each in parameters.values() if each.ndim != 2]
    return [
        torch.optim.Muon(matrices, **both, **settings),
        torch.optim.AdamW(others, **both),
    ]


def by_pytorch(case):
    """The parameters and their states after each step."""
    parameters = {
        name: torch.nn.Parameter(torch.tensor(each)) for name, each in STARTS.items()
    }
    decay = CASES[case].get("weight_decay") if name_of(case) == "rprop" else 0.0
    optimizers = natives(case, parameters)
    for lr, gradients in zip(rates(case), GRADIENTS, strict=True):
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name]) + decay * parameter.detach()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
        arrays = dict(parameters)
        for optimizer, (name, p) in product(optimizers, parameters.items()):
            state = optimizer.state.get(p, {})
            arrays |= {f"{name}/{slot}": value for slot, value in state.items()}
        yield {name: as_array(value) for name, value in arrays.items()}


def as_array(value):
    """A copy of what PyTorch keeps: a tensor, or a number."""
    return value.detach().numpy().copy() if torch.is_tensor(value) else value


@cache
def wanted(case):
    """The parameters after each step, and their states where there are some."""
    with in_double():
        return list(by_pytorch(case))


# What comes
# -----------------------------------------------------------------------------


class Shapes(Network):
    """Parameters whose gradients are the batch; one takes no part, one is frozen."""

    def __init__(self):
        super().__init__()
        for name, value in STARTS.items():
            setattr(self, name, self.nn.Parameter(value.shape, value))
        self.unused = self.nn.Parameter((2, 2), start.Constant(3.0))
        self.frozen = self.nn.Parameter((3, 2), start.Constant(2.0))

    def forward(self, gradients):
        products = [
            self.nn.sum(getattr(self, name) * gradients[name]) for name in STARTS
        ]
        return sum(products) + self.nn.sum(self.frozen)


def given(network, gradients):
    return network(gradients)


def optimizer_by(backend, name, dtype="float64", groups=None, **settings):
    network = Shapes.on(backend, dtype=dtype)()
    network.set_trainable("frozen", False)
    return network.backend.optimizer(rule(name, **settings), network, groups=groups)


def run(optimizer, case, steps):
    """The parameters after each of the steps."""
    trace = []
    for step in steps:
        optimizer.lr = rates(case)[step]
        optimizer.update(given, GRADIENTS[step])
        trace.append(optimizer.network.neutral_state())
    return trace


@cache
def whole_run(backend, case):
    """The parameters after each step, and the optimizer's state in the midst and in the end."""
    optimizer = optimizer_by(backend, name_of(case), **CASES[case])
    trace = run(optimizer, case, range(RESUMED))
    state = optimizer.neutral_state()
    trace += run(optimizer, case, range(RESUMED, STEPS))
    return trace, state, optimizer.neutral_state()


def close(found, wanted, what=""):
    for name, value in wanted.items():
        assert_allclose(
            found[name], value, rtol=1e-12, atol=1e-12, err_msg=f"{name} {what}"
        )


@pytest.mark.parametrize("case", CASES)
def test_updates_with_a_schedule_are_those_of_pytorchs_own_optimizers(backend, case):
    trace, _, state = whole_run(backend, case)
    for step, (found, arrays) in enumerate(zip(trace, wanted(case), strict=True)):
        close(found, {name: arrays[name] for name in SHAPES}, f"at step {step}")
    slots = wanted(case)[-1].keys() & state.keys()
    close(state, {name: wanted(case)[-1][name] for name in slots})
    assert len(slots) >= len(SHAPES)
    assert_array_equal(trace[-1]["unused"], np.full((2, 2), 3.0))
    assert_array_equal(trace[-1]["frozen"], np.full((3, 2), 2.0))


# Each goes on from another; what they have then is the same on all, so every pair would do.
BEFORE = dict(zip(BACKENDS, (*BACKENDS[1:], BACKENDS[0]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_alike_on_another_backend(backend, case):
    trace, state, last = whole_run(backends.get(BEFORE[backend.name]), case)
    assert {key.partition("/")[0] for key in state} == {"steps", *SHAPES}
    resumed = optimizer_by(backend, name_of(case), **CASES[case])
    resumed.network.load_neutral_state(trace[RESUMED - 1])
    resumed.load_neutral_state(state)
    close(run(resumed, case, range(RESUMED, STEPS))[-1], trace[-1])
    assert resumed.neutral_state().keys() == last.keys()
    close(resumed.neutral_state(), last)


def test_a_state_of_adafactor_has_rows_and_columns():
    _, state, _ = whole_run(backends.get("torch"), "adafactor")
    assert state["kernel/row_var"].shape == (4, 3, 2, 1)
    assert state["wide/col_var"].shape == (1, 8)


def test_a_state_that_is_loaded_replaces_all_of_the_old_one(backend):
    fresh, used = (optimizer_by(backend, "amsgrad", lr=0.1) for _ in range(2))
    used.update(given, GRADIENTS[0])
    used.load_neutral_state(fresh.neutral_state())
    assert list(used.neutral_state()) == ["steps"]
    with pytest.raises(StateError, match="the network lacks: elsewhere"):
        used.load_neutral_state({**fresh.neutral_state(), "elsewhere/sum": np.ones(3)})


@pytest.mark.parametrize("name", ["lamb", "lion"])
def test_nothing_moves_and_nothing_is_nan_where_gradients_and_parameters_are_zero(
    backend, name
):
    optimizer = optimizer_by(backend, name, lr=0.1, weight_decay=0.1)
    zeros = {name: np.zeros_like(value) for name, value in STARTS.items()}
    optimizer.network.load_neutral_state(zeros, strict=False)
    optimizer.update(given, zeros)
    assert_array_equal(optimizer.network.neutral_state()["tall"], 0.0)


def test_lamb_starts_from_zero_with_a_ratio_of_one(backend):
    optimizer = optimizer_by(backend, "lamb", lr=0.1)
    optimizer.network.load_neutral_state({"vector": np.zeros(5)}, strict=False)
    optimizer.update(given, GRADIENTS[0])
    gradient = GRADIENTS[0]["vector"]
    expected = -0.1 * gradient / (np.abs(gradient) + 1e-6)  # by its root mean square
    found = optimizer.network.neutral_state()["vector"]
    assert_allclose(found, expected, rtol=1e-12)
    assert np.abs(expected).max() > 0.09


@pytest.mark.parametrize("name", NAMES[:9])
def test_a_gradient_that_is_nan_shows_in_the_parameter(backend, name):
    optimizer = optimizer_by(backend, name, lr=0.1)
    ones = {name: np.ones(shape) for name, shape in SHAPES.items()}
    broken = np.where(np.arange(21).reshape(7, 3) == 8, np.nan, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        optimizer.update(given, ones | {"tall": broken})
    found = optimizer.network.neutral_state()
    assert np.isnan(found["tall"][2, 2])
    assert np.isfinite(found["vector"]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_network_in_single_precision_keeps_its_type(backend, name):
    settings = {"lr": 0.01, "weight_decay": 0.1}
    optimizer, neutral = (
        optimizer_by(backend, name, "float32", **settings),
        rule(name, **settings),
    )
    p, slots = STARTS["vector"], neutral.state_shapes((5,))
    slots = {slot: np.zeros(shape) for slot, shape in slots.items()}
    for step in range(3):
        optimizer.update(given, GRADIENTS[step])
        g = GRADIENTS[step]["vector"]
        p, slots = neutral.update(p, g, slots, neutral.scalars(step + 1), np)
    state = optimizer.neutral_state() | optimizer.network.neutral_state()
    types = {
        value.dtype.name
        for key, value in state.items()
        if not key.endswith(("steps", "/step"))
    }
    assert types == {"float32"}
    assert_allclose(state["vector"], p, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_changes_nothing_in_place_and_keeps_its_slots(name):
    each, p, g = rule(name, lr=0.1), STARTS["tall"], GRADIENTS[0]["tall"]
    state = {
        slot: np.zeros(shape) for slot, shape in each.state_shapes(p.shape).items()
    }
    before = copy.deepcopy((p, g, state))
    _, new = each.update(p, g, state, each.scalars(1), np)
    assert_equal((p, g, state), before)
    assert {slot: value.shape for slot, value in new.items()} == each.state_shapes(
        p.shape
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


class Plain:
    """An array that has nothing but what the rules' module says that they need."""

    def __init__(self, value):
        self.value = np.asarray(value)

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    dtype = property(lambda self: self.value.dtype)
    T = property(lambda self: Plain(self.value.T))

    def sum(self, **options):
        return Plain(self.value.sum(**options))

    def mean(self, **options):
        return Plain(self.value.mean(**options))


def bare(value):
    return value.value if isinstance(value, Plain) else value


def on_plain(function):
    return lambda *values: Plain(function(*map(bare, values)))


for operation in (
    "add radd sub rsub mul rmul truediv rtruediv pow matmul neg abs lt gt le ge eq and"
).split():
    name = f"__{operation}__"
    setattr(Plain, name, on_plain(getattr(np.ndarray, name)))
FUNCTIONS = SimpleNamespace(
    finfo=np.finfo,
    **{
        name: on_plain(getattr(np, name))
        for name in ("sign", "maximum", "clip", "where")
    },
)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_needs_no_more_of_arrays_than_its_module_says(name):
    made_rule = rule(name, lr=0.1, weight_decay=0.01)
    generator = np.random.default_rng(0)
    p, g = generator.normal(size=(2, 3, 4))
    state = {slot: np.zeros(s) for slot, s in made_rule.state_shapes((3, 4)).items()}
    plain_state = {slot: Plain(value) for slot, value in state.items()}
    scalars = made_rule.scalars(1)
    wanted, wanted_state = made_rule.update(p, g, state, scalars, np)
    found, found_state = made_rule.update(
        Plain(p), Plain(g), plain_state, scalars, FUNCTIONS
    )
    assert_array_equal(found.value, wanted)
    for slot, value in wanted_state.items():
        assert_array_equal(found_state[slot].value, value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", PLAIN)
def test_pytorchs_optimizers_are_those_without_fused_kernels_also_after_late_gradients(
    case, dtype
):

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
    weights = []
    for sparse in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Embedding(5, 3, sparse=sparse)
        optimizer = getattr(update_rules, kind)(layer.parameters(), lr=0.1)
        layer(torch.tensor([1, 1, 3])).square().sum().backward()
        optimizer.step()
        weights.append(layer.weight.detach())
    assert torch.equal(*weights)


# rule, a setting, and what the error says
BAD = [
    ("adam", {"lr": "0.1"}, r"Adam: lr='0.1' must be a number"),
    ("adam", {"lr": float("nan")}, r"Adam: lr=nan must be at least 0 and finite"),
    ("adam", {"lr": float("inf")}, r"Adam: lr=inf must be at least 0 and finite"),
    ("adam", {"lr": True}, r"Adam: lr=True must be a number"),
    ("adam", {"betas": 0.9}, r"Adam: betas=0.9 must be two numbers"),
    (
        "adam",
        {"betas": (0.9, 0.9, 0.9)},
        r"Adam: betas=\(0.9, 0.9, 0.9\) must be two numbers",
    ),
    ("adam", {"betas": (0.9, 1.0)}, r"Adam: betas=\(0.9, 1.0\) must be below 1"),
    ("adam", {"amsgrad": 1}, r"Adam: amsgrad=1 must be true or false"),
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
    (
        "muon",
        {"adjust_lr_fn": "rms"},
        r"adjust_lr_fn='rms' must be 'original' or 'match_",
    ),
]


@pytest.mark.parametrize(("name", "settings", "message"), BAD)
def test_a_setting_that_makes_no_sense_is_refused(name, settings, message):
    with pytest.raises(SettingError, match=message):
        rule(name, **{"lr": 0.1, **settings})


def test_a_rule_that_a_file_of_settings_holds_is_the_same_rule():
    """Whole numbers and lists, as JSON has them."""
    assert rule("adam", lr=1, betas=[0.5, 0]) == rule("adam", lr=1.0, betas=(0.5, 0.0))
    assert hash(rule("adam", lr=1, betas=[0.5, 0])) is not None


@pytest.mark.parametrize("value", [-0.1, float("nan"), "fast"])
def test_a_learning_rate_that_is_none_cannot_be_set(backend, value):
    optimizer = optimizer_by(backend, "lion", lr=0.1)
    with pytest.raises(SettingError, match=f"lr={value!r} must be"):
        optimizer.lr = value
    assert optimizer.lr == 0.1


def test_pytorch_names_a_rule_that_it_has_no_optimizer_for():
    class Own(SGD):
        pass

    backend = backends.get("torch")
    with pytest.raises(ArgumentError, match="backend 'torch' has no optimizer for Own"):
        backend.optimizer(Own(lr=0.1), Shapes.on(backend)())


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
    [
        rule("lamb", lr=0.02),
        DecayOfMatrices(lr=0.1, momentum=0.9, weight_decay=0.1),
        *(rule(name, **CASES[name]) for name in ("sgd", "amsgrad", "lion")),
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
        optimizer.update(given, {"w": g})
        p, state = made_rule.update(p, g, state, made_rule.scalars(step), np)
    found = optimizer.neutral_state()
    assert_array_equal(network.neutral_state()["w"], p)
    for name, array in state.items():
        assert_array_equal(found[f"w/{name}"], array)


def flax_network():
    """Layers of flax, whose kernels have their axes in another order than PyTorch's."""

    class Net(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.conv = nnx.Conv(2, 3, (4, 5), rngs=rngs)
            self.fc = nnx.Linear(7, 3, rngs=rngs)

        def __call__(self, gradients):
            first, second = self.conv.kernel[...], self.fc.kernel[...]
            return (first * gradients["conv"]).sum() + (second * gradients["fc"]).sum()

    return backends.get("jax").wrap(Net())


@pytest.mark.parametrize("case", ["adafactor", "muon"])
def test_layers_of_flax_are_updated_and_saved_in_pytorchs_layout(case):
    network = flax_network()
    weights = network.neutral_state()
    each = rule(case, lr=0.1)
    optimizer = network.backend.optimizer(each, network)
    plain = {name: weights[f"{name}.weight"] for name in ("conv", "fc")}
    states = {}
    for name, value in plain.items():
        shapes = each.state_shapes(value.shape)
        states[name] = {slot: np.zeros(shape) for slot, shape in shapes.items()}
    for step in (1, 2, 3):
        conv, fc = RNG.normal(size=(4, 5, 2, 3)), RNG.normal(size=(7, 3))
        optimizer.update(given, {"conv": conv, "fc": fc})
        if step == 2:  # what is loaded goes on
            optimizer.load_neutral_state(optimizer.neutral_state())
        for name, gradient in {"conv": conv.transpose(3, 2, 0, 1), "fc": fc.T}.items():
            plain[name], states[name] = each.update(
                plain[name], gradient, states[name], each.scalars(step), np
            )
    found, state = network.neutral_state(), optimizer.neutral_state()
    for name, value in plain.items():
        assert_allclose(found[f"{name}.weight"], value, rtol=1e-5, atol=1e-6)
        for slot, array in states[name].items():
            assert_allclose(state[f"{name}.weight/{slot}"], array, rtol=1e-5, atol=1e-6)


def test_muon_leaves_a_group_to_adamw(backend):
    """Such as embeddings and the last layer."""
    optimizer = optimizer_by(
        backend, "muon", lr=0.02, groups={"wide": {"adamw": True, "lr": 0.001}}
    )
    optimizer.update(given, GRADIENTS[0])
    p, g = STARTS["wide"], GRADIENTS[0]["wide"]
    adamw = rule("adamw", lr=0.001, weight_decay=0.1)
    zeros = {slot: np.zeros_like(p) for slot in adamw.slots}
    wanted, _ = adamw.update(p, g, zeros, adamw.scalars(1), np)
    assert_allclose(optimizer.network.neutral_state()["wide"], wanted, rtol=1e-12)
    assert "tall/momentum_buffer" in optimizer.neutral_state()
