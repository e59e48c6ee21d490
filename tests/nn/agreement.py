"""How a layer or function is compared: with an oracle in PyTorch or NumPy, one backend at a time, in float64.

The oracle computes outputs and gradients for random cotangents. The backend does the same in one call of `gradients`:
the cotangents are inputs there, so that its gradients with respect to them *are* its outputs.
"""

import inspect
import os
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deliralike import Network, backends, build, start
from tests.conftest import BACKENDS
from tests.nn.written_once import WRITTEN_ONCE

NAMES = ("written once", *BACKENDS)
COMPILED = ("jax",)
TOLERANCE = 1e-10
THOROUGH = os.environ.get("DELIRALIKE_THOROUGH") == "1"  # more and other examples on every run

numbers = st.integers(0, 2**32 - 1)


def get(name):
    return WRITTEN_ONCE if name == "written once" else backends.get(name)


def property_test(examples, **strategies):
    """A test of every backend with so many examples, the same ones on every run; fewer where each is compiled.

    The first example is always the simplest, which says little: two are the least.
    """

    def decorate(function):
        def run(name, **parameters):
            def body(**drawn):
                function(name=name, **parameters, **drawn)

            count = max(2, examples // 2) if name in COMPILED else examples
            once = settings(max_examples=count * 20 if THOROUGH else count, derandomize=not THOROUGH, deadline=None,
                            database=None, suppress_health_check=list(HealthCheck))  # fmt: skip
            once(given(**strategies)(body))()

        signature = inspect.signature(function)
        left = [parameter for key, parameter in signature.parameters.items() if key not in strategies]
        run.__name__, run.__doc__, run.__signature__ = (
            function.__name__,
            function.__doc__,
            signature.replace(parameters=left),
        )
        return pytest.mark.parametrize("name", NAMES)(run)

    return decorate


def per_axis(elements, n):
    """One number, or one for each of `n` axes."""
    return st.one_of(elements, st.tuples(*[elements] * n))


def spread(value, n):
    return (value,) * n if isinstance(value, int) else tuple(value)


class Holder(Network):
    """A layer under the path "layer", beside a parameter, which decides the type of inputs."""

    def __init__(self, layer, layer_settings):
        super().__init__()
        self.anchor = self.nn.Parameter((1,), start.ONES)
        self.layer = getattr(self.nn, layer)(*layer_settings.get("args", ()), **without_args(layer_settings))

    def forward(self, *inputs):
        return self.layer(*inputs)


def without_args(layer_settings):
    return {name: value for name, value in layer_settings.items() if name != "args"}


def hold(name, layer="Identity", layer_settings=None, dtype="float64", seed=0):
    return build(Holder.on(get(name)), layer, layer_settings or {}, dtype=dtype, seed=seed)


def agree(name, layer, layer_settings, inputs, *, training=True, call=None, oracle=None, seed=0):
    """A layer has PyTorch's outputs, gradients and running statistics; the same weights on both sides.

    Args:
        call: How the layer is called with the inputs, on both sides.
        oracle: PyTorch's layer, if it is not the one of the same name and settings.
    """
    rng = np.random.default_rng(seed)
    call = call or (lambda layer, *inputs: layer(*inputs))
    native = getattr(torch.nn, layer)(*layer_settings.get("args", ()), **without_args(layer_settings))
    oracle = (native if oracle is None else oracle).double().train(training)
    state = random_state(oracle, rng)
    oracle.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
    expected = by_torch(lambda *tensors: call(oracle, *tensors), dict(oracle.named_parameters()), inputs, rng)

    network = hold(name, layer, layer_settings)
    assert [key for key in network.neutral_state() if key != "anchor"] == [f"layer.{key}" for key in state]
    network.load_neutral_state({"anchor": np.ones(1)} | {f"layer.{key}": value for key, value in state.items()})
    network.train(training)
    found = by_backend(network, lambda network, *xs: call(network.layer, *xs), inputs, expected)
    for key in expected["parameters"]:
        same(found.parameters[f"layer.{key}"], expected["parameters"][key], f"gradient of {key}")
    after = network.neutral_state()
    for key, value in oracle.state_dict().items():
        same(after[f"layer.{key}"], value.numpy(), f"{key} afterwards")


def agree_function(name, ours, theirs, inputs, *, seed=0):
    """A function of the vocabulary, called as ``ours(nn, *inputs)``, has the outputs and gradients of ``theirs``."""
    expected = by_torch(theirs, {}, inputs, np.random.default_rng(seed))
    by_backend(hold(name), lambda network, *xs: ours(network.nn, *xs), inputs, expected)


def agree_twice(name, ours, theirs, inputs, *, seed=0, tolerance=1e-12):
    """As `agree_function`, to 1e-12; the gradient in the first input is an output too, so second derivatives agree."""

    def our_gradient(nn, x, *rest):
        return ours(nn, x, *rest), nn.gradient(lambda at: nn.sum(ours(nn, at, *rest)), x)

    def their_gradient(x, *rest):
        value = theirs(x, *rest)
        return value, torch.autograd.grad(value.sum(), x, create_graph=True)[0]

    expected = by_torch(their_gradient, {}, inputs, np.random.default_rng(seed))
    by_backend(hold(name), lambda network, *xs: our_gradient(network.nn, *xs), inputs, expected, tolerance)


def values_agree(name, ours, theirs, inputs):
    """The values alone, called directly rather than by `gradients`."""
    backend, network = get(name), hold(name)
    found = flat(ours(network.nn, *backend.prepare(tuple(inputs), network)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = flat(theirs(*map(tensor, inputs)))
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        same(backend.numpy(mine), other.detach().numpy(), "output")


def by_torch(function, parameters, inputs, rng):
    tensors = [tensor(x) for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own remarks, for example on even kernels with padding "same"
        outputs = flat(function(*tensors))
    cotangents = [rng.normal(size=tuple(y.shape)) for y in outputs]
    loss = sum((y * torch.tensor(c)).sum() for y, c in zip(outputs, cotangents, strict=True))
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    gradients = iter(torch.autograd.grad(loss, [*parameters.values(), *leaves], allow_unused=True))
    return {
        "cotangents": cotangents,
        "outputs": [y.detach().numpy() for y in outputs],
        "parameters": {key: zeros_for_none(next(gradients), p) for key, p in parameters.items()},
        "inputs": [zeros_for_none(next(gradients), t) if t is not None and t.requires_grad else None for t in tensors],
    }


def by_backend(network, function, inputs, expected, tolerance=TOLERANCE):
    shapes = [y.shape for y in expected["outputs"]]

    def loss(network, cotangents, *inputs):
        outputs = flat(function(network, *inputs))
        assert [tuple(y.shape) for y in outputs] == shapes
        return sum(network.nn.sum(y * c) for y, c in zip(outputs, cotangents, strict=True))

    found = network.backend.gradients(loss, network, expected["cotangents"], *inputs)
    for mine, other in zip(found.inputs[0], expected["outputs"], strict=True):
        same(mine, other, "output", tolerance)
    for index, (mine, other) in enumerate(zip(found.inputs[1:], expected["inputs"], strict=True)):
        if other is not None:
            same(mine, other, f"gradient of input {index}", tolerance)
    return found


def same(mine, other, what, tolerance=TOLERANCE):
    """Equal in shape, and to a tolerance of the largest element (or of 1). No gradient counts as one of zero."""
    mine = np.zeros_like(other) if mine is None else mine
    assert mine.shape == other.shape, what
    assert mine.dtype == other.dtype, what
    np.testing.assert_allclose(mine, other, rtol=0, atol=tolerance * max(1.0, largest(other)), err_msg=what)


def largest(array):
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def flat(outputs):
    """Every array of nested tuples and lists, None left out."""
    if isinstance(outputs, tuple | list):
        return [y for part in outputs for y in flat(part)]
    return [] if outputs is None else [outputs]


def tensor(x):
    if x is None:
        return None
    value = torch.tensor(x)
    return value.requires_grad_() if value.is_floating_point() else value


def zeros_for_none(gradient, like):
    return torch.zeros_like(like).numpy() if gradient is None else gradient.numpy()


def random_state(module, rng):
    """Random weights, positive running variances, and a few batches seen."""

    def value(key, old):
        if not old.is_floating_point():
            return np.array(3, np.int64)
        if key.endswith("running_var"):
            return rng.uniform(0.5, 2.0, tuple(old.shape))
        return 0.5 * rng.normal(size=tuple(old.shape))

    return {key: value(key, old) for key, old in module.state_dict().items()}


def normal(seed, *shape, scale=1.0, shift=0.0):
    return shift + scale * np.random.default_rng(seed).normal(size=shape)
