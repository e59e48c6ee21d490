"""Rules that depend on a parameter's axes, and RAdam: the updates of PyTorch's own optimizers for 0
to 4 axes, in any layout, in replicas, and over part of a network."""

import numpy as np
import pytest
import torch
from flax import nnx

from deliralike import DataParallel, Network, backends, rules, start
from deliralike.errors import SettingError
from tests.parallel.networks import devices

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
GRADIENTS = [
    {name: RNG.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(20)
]
RATES = [0.02] * 8 + [0.004] * 12
CASES = {
    "radam": {"betas": (0.8, 0.9), "weight_decay": 0.1},
    "radam, decoupled": {
        "weight_decay": 0.1,
        "decoupled_weight_decay": True,
        "eps": 1e-3,
    },
    "adafactor": {"weight_decay": 0.1},
    "adafactor, all settings": {"eps": (1e-2, 0.1), "d": 1.5, "beta2_decay": -0.5},
    "muon": {},
    "muon, all settings": {
        "nesterov": False,
        "momentum": 0.8,
        "weight_decay": 0.3,
        "ns_steps": 3,
        "ns_coefficients": (3.0, -3.2, 1.2),
        "adjust_lr_fn": "match_rms_adamw",
        "adamw_betas": (0.8, 0.95),
        "adamw_eps": 1e-3,
    },
}


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


def made(backend, case, **options):
    network = Shapes.on(backend, dtype="float64")()
    network.set_trainable("frozen", False)
    rule = rules.rule(case.partition(",")[0], lr=RATES[0], **CASES[case])
    return network.backend.optimizer(rule, network, **options)


def run(optimizer, steps=range(20)):
    for step in steps:
        optimizer.lr = RATES[step]
        optimizer.update(given, GRADIENTS[step])
    return optimizer.network.neutral_state()


def natives(case, parameters):
    """PyTorch's own optimizers for a rule."""
    name, settings = case.partition(",")[0], dict(CASES[case])
    if name != "muon":
        kind = {"radam": torch.optim.RAdam, "adafactor": torch.optim.Adafactor}[name]
        return [kind(parameters.values(), lr=RATES[0], **settings)]
    own = {
        key.removeprefix("adamw_"): settings.pop(key)
        for key in [*settings]
        if "adamw_" in key
    }
    decay = settings.pop("weight_decay", 0.1)
    matrices = [each for each in parameters.values() if each.ndim == 2]
    others = [each for each in parameters.values() if each.ndim != 2]
    return [
        torch.optim.Muon(matrices, lr=RATES[0], weight_decay=decay, **settings),
        torch.optim.AdamW(others, lr=RATES[0], weight_decay=decay, **own),
    ]


@pytest.fixture
def iterations_in_double(monkeypatch):
    """PyTorch's Muon without its cast to bfloat16."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)


@pytest.mark.parametrize("case", CASES)
def test_twenty_updates_are_those_of_pytorchs_own_optimizers(
    backend, case, iterations_in_double
):
    parameters = {
        name: torch.nn.Parameter(torch.tensor(each)) for name, each in STARTS.items()
    }
    optimizers = natives(case, parameters)
    for rate, gradients in zip(RATES, GRADIENTS, strict=True):
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name])
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
    found = run(made(backend, case))
    for name, parameter in parameters.items():
        wanted = parameter.detach().numpy()
        np.testing.assert_allclose(
            found[name], wanted, rtol=1e-12, atol=1e-13, err_msg=name
        )
    np.testing.assert_array_equal(found["unused"], np.full((2, 2), 3.0))
    np.testing.assert_array_equal(found["frozen"], np.full((3, 2), 2.0))


@pytest.mark.parametrize("case", ["radam", "adafactor", "muon"])
def test_a_state_goes_on_alike_on_every_backend(case):
    """After six updates with PyTorch, the seventh to tenth with each."""
    half = made("torch", case)
    weights, state = run(half, range(6)), half.neutral_state()
    shapes = {
        key: value.shape
        for key, value in state.items()
        if key.startswith(("wide/", "kernel/"))
    }
    if case == "adafactor":
        assert shapes["kernel/row_var"] == (4, 3, 2, 1)
        assert shapes["wide/col_var"] == (1, 8)
    ends = []
    for name in ("torch", "chainer", "jax"):
        optimizer = made(name, case)
        optimizer.network.load_neutral_state(weights)
        optimizer.load_neutral_state(state)
        ends.append(run(optimizer, range(6, 10)) | optimizer.neutral_state())
    for end in ends[1:]:
        assert end.keys() == ends[0].keys()
        for key, value in ends[0].items():
            np.testing.assert_allclose(
                end[key], value, rtol=1e-12, atol=1e-13, err_msg=key
            )


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
    rule = rules.rule(case, lr=0.1)
    optimizer = network.backend.optimizer(rule, network)
    plain = {name: weights[f"{name}.weight"] for name in ("conv", "fc")}
    states = {}
    for name, value in plain.items():
        shapes = rule.state_shapes(value.shape)
        states[name] = {slot: np.zeros(shape) for slot, shape in shapes.items()}
    for step in (1, 2, 3):
        conv, fc = RNG.normal(size=(4, 5, 2, 3)), RNG.normal(size=(7, 3))
        optimizer.update(given, {"conv": conv, "fc": fc})
        if step == 2:  # what is loaded goes on
            optimizer.load_neutral_state(optimizer.neutral_state())
        for name, gradient in {"conv": conv.transpose(3, 2, 0, 1), "fc": fc.T}.items():
            plain[name], states[name] = rule.update(
                plain[name], gradient, states[name], rule.scalars(step), np
            )
    found, state = network.neutral_state(), optimizer.neutral_state()
    for name, value in plain.items():
        np.testing.assert_allclose(found[f"{name}.weight"], value, rtol=1e-5, atol=1e-6)
        for slot, array in states[name].items():
            np.testing.assert_allclose(
                state[f"{name}.weight/{slot}"], array, rtol=1e-5, atol=1e-6
            )


class Regression(Network):
    """A matrix, a vector and a kernel."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv1d(2, 4, 3)
        self.fc = self.nn.Linear(12, 3)

    def forward(self, x):
        return self.fc(self.nn.flatten(self.nn.relu(self.conv(x)), 1))


def squares(network, x, y):
    return network.nn.mse_loss(network(x), y)


def test_replicas_make_the_updates_of_one(backend):
    alone = Regression.on(backend, dtype="float64", seed=2)()
    other = Regression.on(backend, dtype="float64", seed=2)()
    replicated = DataParallel(other, devices(backend, 2))
    optimizers = [
        net.backend.optimizer(rules.rule("muon", lr=0.01), net)
        for net in (alone, replicated)
    ]
    for _ in range(3):
        x, y = RNG.normal(size=(5, 2, 5)), RNG.normal(size=(5, 3))
        for optimizer in optimizers:
            optimizer.update(squares, x, y)
    wanted = alone.neutral_state()
    for key, value in replicated.neutral_state().items():
        np.testing.assert_allclose(
            value, wanted[key], rtol=1e-12, atol=1e-13, err_msg=key
        )


def test_muon_leaves_a_group_to_adamw(backend):
    """Such as embeddings and the last layer."""
    optimizer = made(backend, "muon", groups={"wide": {"adamw": True, "lr": 0.001}})
    optimizer.update(given, GRADIENTS[0])
    p, g = STARTS["wide"], GRADIENTS[0]["wide"]
    adamw = rules.rule("adamw", lr=0.001, weight_decay=0.1)
    zeros = {slot: np.zeros_like(p) for slot in adamw.slots}
    wanted, _ = adamw.update(p, g, zeros, adamw.scalars(1), np)
    np.testing.assert_allclose(
        optimizer.network.neutral_state()["wide"], wanted, rtol=1e-12
    )
    assert "tall/momentum_buffer" in optimizer.neutral_state()


def test_muon_makes_singular_values_nearly_one():
    """The authors' statement: with their coefficients they lie between about 0.7 and 1.2."""
    rule = rules.rule("muon", lr=1.0, weight_decay=0.0)
    g = np.random.default_rng(0).normal(size=(9, 31))
    zeros = {"momentum_buffer": np.zeros_like(g)}
    p, _ = rule.update(np.zeros_like(g), g, zeros, rule.scalars(1), np)
    values = np.linalg.svd(p, compute_uv=False)
    assert 0.65 < values.min() < values.max() < 1.25


@pytest.mark.parametrize("name", ["radam", "adafactor", "muon"])
def test_a_network_in_single_precision_keeps_its_type(backend, name):
    network = Regression.on(backend, dtype="float32", seed=2)()
    optimizer = backend.optimizer(rules.rule(name, lr=0.01, weight_decay=0.1), network)
    for _ in range(3):
        optimizer.update(squares, RNG.normal(size=(5, 2, 5)), RNG.normal(size=(5, 3)))
    state = optimizer.neutral_state() | network.neutral_state()
    types = {
        value.dtype.name
        for key, value in state.items()
        if not key.endswith(("steps", "/step"))
    }
    assert types == {"float32"}


BAD = {
    "adafactor, decay": (
        {"beta2_decay": 0.5},
        r"Adafactor: beta2_decay=0.5 must be at most 0",
    ),
    "adafactor, one eps": (
        {"eps": 1e-3},
        r"Adafactor: eps=0.001 must be two numbers, of which",
    ),
    "adafactor, d": ({"d": 0.5}, r"Adafactor: d=0.5 must be at least 1"),
    "muon, name": (
        {"adjust_lr_fn": "rms"},
        r"adjust_lr_fn='rms' must be 'original' or 'match_",
    ),
    "muon, steps": (
        {"ns_steps": 2.5},
        r"Muon: ns_steps=2.5 must be a whole number from 1 to 99",
    ),
    "muon, two": (
        {"ns_coefficients": (1, 2)},
        r"ns_coefficients=\(1, 2\) must be three numbers",
    ),
    "muon, NaN": (
        {"ns_coefficients": (1, 2, float("nan"))},
        r"Muon: ns_coefficients=nan must be a finite number",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_setting_that_makes_no_sense_is_refused(bad):
    settings, message = BAD[bad]
    with pytest.raises(SettingError, match=message):
        rules.rule(bad.partition(",")[0], lr=0.1, **settings)
