"""Operations of a user's own, the check of them, and names that `nn` does not have."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from deliralike import Network, nn
from deliralike.conformance import check_operation
from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    ProofFailed,
    SettingError,
    UnknownName,
    UnknownOperation,
)
from deliralike.nn import operations


@pytest.fixture(autouse=True)
def no_trace(monkeypatch):
    monkeypatch.setattr(operations, "_registered", {})


class Caller(Network):
    """A network that calls one function of `nn`."""

    def __init__(self, name):
        super().__init__()
        self.function = name

    def forward(self, *inputs):
        return getattr(self.nn, self.function)(*inputs)


class Outer(Network):
    def __init__(self, name):
        super().__init__()
        self.inner = Caller(name)

    def forward(self, *inputs):
        return self.inner(*inputs)


def scaled(nn, x, factor=3.0):
    return nn.relu(x) * factor


def run(backend, name, x):
    network = Outer.on(backend)(name)
    return backend.to_numpy(network(*backend.prepare((x,), network)))


X = np.array([[-1.0, 2.0, 0.5]])


def test_a_composed_operation_is_in_nn_on_every_backend(backend):
    nn.register("scaled", scaled)
    assert_allclose(run(backend, "scaled", X), [[0.0, 6.0, 1.5]])
    assert "scaled" in dir(backend.nn)


def test_a_native_function_takes_the_place_of_the_composed_one(backend):
    nn.register("scaled", scaled, **{backend.name: lambda x: x + 1.0})
    assert_allclose(run(backend, "scaled", X), X + 1.0)


def test_a_backend_without_the_operation_says_which_have_it(backend):
    other = {"torch": "jax", "jax": "chainer", "chainer": "torch"}[backend.name]
    nn.register("scaled", **{other: abs})
    with pytest.raises(
        CapabilityError, match=f"no function for backend '{backend.name}', only"
    ):
        run(backend, "scaled", X)


def test_an_unknown_name_says_the_nearest_names_and_how_to_add_one(backend):
    with pytest.raises(UnknownOperation) as caught:
        run(backend, "reluu", X)
    said = str(caught.value)
    assert said.startswith("self.nn has no 'reluu'. Did you mean 'relu' or")
    assert "deliralike.nn.register('reluu'" in said
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(backend.nn, "reluu")


REFUSED = {
    "taken": (
        {"name": "relu", "composed": scaled},
        SettingError,
        "nn has 'relu' already",
    ),
    "a layer": (
        {"name": "Conv2d", "composed": scaled},
        SettingError,
        "nn has 'Conv2d' already",
    ),
    "no name": (
        {"name": "my-op", "composed": scaled},
        SettingError,
        "cannot be called 'my-op'",
    ),
    "backend": (
        {"name": "op", "pytorch": abs},
        UnknownName,
        "'pytorch'. Did you mean 'torch'?",
    ),
    "nothing": ({"name": "op"}, ArgumentError, "came without a function"),
    "no function": (
        {"name": "op", "torch": 3},
        ArgumentError,
        "torch=3 is not a function",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_registered_is_refused(case):
    arguments, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        nn.register(**arguments)


def swish(x, beta=1.0):
    return x / (1.0 + np.exp(-beta * x))


def test_check_operation_compares_all_backends_with_a_reference_and_finite_differences():
    nn.register("swish", lambda nn, x, beta=1.0: x * nn.sigmoid(beta * x))
    found = check_operation("swish", reference=swish, beta=0.7)
    assert set(found) == {"torch", "chainer", "jax"}


def test_check_operation_takes_nests_whole_numbers_and_results_without_a_gradient():
    nn.register("picked", lambda nn, pair, index: nn.select(pair["a"], index, 0))
    check_operation("picked", {"a": X.T}, np.array([2, 0]), on=("torch", "jax"))
    check_operation("argmax", X, 1)


def test_check_operation_takes_a_gradient_that_is_meant_to_be_no_derivative():
    nn.register("through", lambda nn, x: x + nn.stop_gradient(nn.round(x) - x))
    with pytest.raises(
        ProofFailed, match="such as straight-through, say which: gradient="
    ):
        check_operation("through", X)
    check = check_operation(
        "through", X, reference=np.round, gradient=lambda slope, x: slope
    )
    assert set(check) == {"torch", "chainer", "jax"}
    with pytest.raises(ProofFailed, match="through on torch: .*gradient of input 0"):
        check_operation("through", X, gradient=lambda slope, x: 2.0 * slope)


WRONG = {
    "values": (
        {"torch": lambda x: x * 1.001, "jax": lambda x: x * 1.0},
        "on jax: .*output",
    ),
    "shape": (
        {"torch": lambda x: x, "jax": lambda x: x[:1]},
        "on jax: .*output: got shape",
    ),
    "gradient": (
        {"torch": lambda x: x.detach() * x},
        "on torch: .*gradient of input 0",
    ),
    "argument": (
        {"torch": lambda x: x.mul_(2.0)},
        "on torch: .*in-place",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_check_operation_names_what_is_wrong(case):
    functions, message = WRONG[case]
    nn.register("wrong", **functions)
    with pytest.raises(ProofFailed, match=f"wrong {message}"):
        check_operation("wrong")


def test_check_operation_refuses_an_unknown_name():
    with pytest.raises(UnknownOperation, match="no 'wrong'"):
        check_operation("wrong")


def test_an_operation_may_be_compiled_and_differentiated_by_the_framework():
    nn.register("scaled", scaled)
    network = Outer.on("torch")("scaled")
    x = torch.tensor(X, requires_grad=True)
    network(x).sum().backward()
    assert_allclose(x.grad, [[0.0, 3.0, 3.0]])


@pytest.mark.parametrize("name", ["Sigmoid", "Tanh", "Softplus"])
def test_a_layer_without_settings_names_itself_in_an_error(backend, name):
    layer = getattr(backend.nn, name)
    with pytest.raises(
        ArgumentError, match=f"^{name}: got an unexpected keyword argument 'slope'"
    ):
        layer(slope=3)
