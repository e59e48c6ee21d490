"""How a layer or function is compared: with an oracle in PyTorch or NumPy, one backend at a time,
in float64.

The oracle computes outputs and gradients for random cotangents. The backend does the same in one
call of `gradients`: the cotangents are inputs there, so that its gradients with respect to them
*are* its outputs.

Many comparisons are made at once: their layers are in one network, and their outputs and gradients
come from one program, as XLA takes longer to begin a program than to compile a few more operations
in it. What disagrees is told all at once, by the names of the cases.
"""

import inspect
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deliralike import Network, backends, build, start
from tests.conftest import BACKENDS
from tests.nn.written_once import WRITTEN_ONCE

NAMES = ("written once", *BACKENDS)
COMPILED = ("jax",)
TOLERANCE = 1e-10
THOROUGH = (
    os.environ.get("DELIRALIKE_THOROUGH") == "1"
)  # more and other examples on every run
TOGETHER = 40  # so many comparisons share a program: more of them fill the memory

numbers = st.integers(0, 2**32 - 1)


def get(name):
    return WRITTEN_ONCE if name == "written once" else backends.get(name)


# Networks that hold the layers
# -----------------------------------------------------------------------------


class Shelf(Network):
    """Layers under names of their own, beside a parameter, which decides the type of inputs."""

    def __init__(self, layers):
        super().__init__()
        self.anchor = self.nn.Parameter((1,), start.ONES)
        for path, (layer, layer_settings) in layers.items():
            made = getattr(self.nn, layer)(
                *layer_settings.get("args", ()), **without_args(layer_settings)
            )
            setattr(self, path, made)

    def forward(self, *inputs):
        return self.layer(*inputs)


def without_args(layer_settings):
    return {name: value for name, value in layer_settings.items() if name != "args"}


def hold(name, layer="Identity", layer_settings=None, dtype="float64", seed=0):
    """A network with a layer under the path "layer"; its forward is the layer's."""
    return shelf(name, {"layer": (layer, layer_settings or {})}, dtype, seed)


def shelf(name, layers, dtype="float64", seed=0):
    """A network of layers, given as (name, settings) by their paths."""
    return build(Shelf.on(get(name)), layers, dtype=dtype, seed=seed)


# What is compared
# -----------------------------------------------------------------------------


@dataclass
class FunctionCase:
    """A function of the vocabulary, called as ``ours(nn, *inputs)``, has the outputs and gradients
    of ``theirs``."""

    ours: Any
    theirs: Any
    inputs: list
    seed: int = 0

    layer = None

    @cached_property
    def expected(self):
        return by_torch(self.theirs, {}, self.inputs, np.random.default_rng(self.seed))

    def run(self, network, path, *inputs):
        return self.ours(network.nn, *inputs)


@dataclass
class LayerCase:
    """A layer has PyTorch's outputs, gradients and running statistics; the same weights on both
    sides.

    Args:
        call: How the layer is called with the inputs, on both sides.
        oracle: What makes PyTorch's layer, if it is not the one of the same name and settings.
    """

    layer: str
    settings: dict
    inputs: list
    training: bool = True
    call: Any = lambda layer, *inputs: layer(*inputs)
    oracle: Any = None
    seed: int = 0

    @cached_property
    def expected(self):
        rng = np.random.default_rng(self.seed)
        make = self.oracle or getattr(torch.nn, self.layer)
        given = (
            (self.settings.get("args", ()), without_args(self.settings))
            if self.oracle is None
            else ((), {})
        )
        oracle = make(*given[0], **given[1]).double().train(self.training)
        state = random_state(oracle, rng)
        oracle.load_state_dict(
            {key: torch.tensor(value) for key, value in state.items()}
        )
        expected = by_torch(
            lambda *tensors: self.call(oracle, *tensors),
            dict(oracle.named_parameters()),
            self.inputs,
            rng,
        )
        after = {
            key: value.numpy().copy() for key, value in oracle.state_dict().items()
        }
        return expected | {"before": state, "after": after}

    def run(self, network, path, *inputs):
        return self.call(getattr(network, path), *inputs)


def agree_all(name, cases, tolerance=TOLERANCE):
    """Every case agrees, given by their names; what does not is told of all of them."""
    cases, problems = list(cases.items()), []
    for begin in range(0, len(cases), TOGETHER):
        problems += disagreements(
            name, dict(cases[begin : begin + TOGETHER]), tolerance
        )
    assert not problems, f"{len(problems)} disagreements:\n" + "\n".join(problems)


def disagreements(name, cases, tolerance):
    """What does not agree, of cases by their names."""
    problems = []
    for label, what, mine, other in comparisons(name, cases):
        try:
            same(mine, other, what, tolerance)
        except AssertionError as error:
            problems.append(f"{label}: {error}")
    return problems


def deviations(name, cases):
    """How far each case is from its oracle, relative to the largest element (or to 1)."""
    found = dict.fromkeys(cases, 0.0)
    for label, _, mine, other in comparisons(name, cases):
        if mine is not None:
            finite = np.isfinite(other)
            far = largest((mine - other)[finite]) / max(1.0, largest(other))
            found[label] = max(found[label], far)
    return found


def comparisons(name, cases):
    """What is compared in all cases: (case, name, the backend's, the oracle's)."""
    paths = {
        label: "layer" if len(cases) == 1 else f"layer{index}"
        for index, label in enumerate(cases)
    }
    network = shelf(
        name,
        {
            paths[label]: (case.layer, case.settings)
            for label, case in cases.items()
            if case.layer
        },
    )
    load(network, cases, paths)
    found = compute(network, cases, paths)
    after = network.neutral_state()
    for index, (label, case) in enumerate(cases.items()):
        for what, mine, other in pairs(case, paths[label], found, index, after):
            yield label, what, mine, other


def load(network, cases, paths):
    """The oracles' weights and modes; the names of both sides are the same."""
    state = {"anchor": np.ones(1)}
    for label, case in cases.items():
        if case.layer:
            getattr(network, paths[label]).train(case.training)
            state |= {
                f"{paths[label]}.{key}": value
                for key, value in case.expected["before"].items()
            }
    assert list(network.neutral_state()) == list(state)
    network.load_neutral_state(state)


def compute(network, cases, paths):
    """The gradients of all cases in one program."""

    def loss(network, cotangents, inputs):
        total = 0.0
        for (label, case), factors, arguments in zip(
            cases.items(), cotangents, inputs, strict=True
        ):
            with naming(label):
                outputs = flat(case.run(network, paths[label], *arguments))
                assert [tuple(y.shape) for y in outputs] == [
                    y.shape for y in case.expected["outputs"]
                ]
                total = total + sum(
                    network.nn.sum(y * c) for y, c in zip(outputs, factors, strict=True)
                )
        return total

    cotangents = [case.expected["cotangents"] for case in cases.values()]
    return network.backend.gradients(
        loss, network, cotangents, [list(case.inputs) for case in cases.values()]
    )


class naming:
    """An error says in which case it was."""

    def __init__(self, label):
        self.label = label

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if error is not None:
            error.add_note(f"in the case {self.label}")


def pairs(case, path, found, index, after):
    """What is compared in a case: (name, the backend's, the oracle's)."""
    expected = case.expected
    for mine, other in zip(found.inputs[0][index], expected["outputs"], strict=True):
        yield "output", mine, other
    for at, (mine, other) in enumerate(
        zip(found.inputs[1][index], expected["inputs"], strict=True)
    ):
        if other is not None:
            yield f"gradient of input {at}", mine, other
    if case.layer:
        for key, other in expected["parameters"].items():
            yield f"gradient of {key}", found.parameters[f"{path}.{key}"], other
        for key, other in expected["after"].items():
            yield f"{key} afterwards", after[f"{path}.{key}"], other


def agree_function(name, ours, theirs, inputs, *, seed=0):
    """One function agrees: `FunctionCase`."""
    agree_all(name, {"the function": FunctionCase(ours, theirs, inputs, seed)})


def twice(ours, theirs, inputs):
    """A case in which the gradient in the first input is an output too, so second derivatives are
    compared."""

    def our_gradient(nn, x, *rest):
        return ours(nn, x, *rest), nn.gradient(
            lambda at: nn.sum(ours(nn, at, *rest)), x
        )

    def their_gradient(x, *rest):
        value = theirs(x, *rest)
        return value, torch.autograd.grad(value.sum(), x, create_graph=True)[0]

    return FunctionCase(our_gradient, their_gradient, inputs)


def agree_twice(name, cases):
    """Functions agree to 1e-12, with their second derivatives; given by names as (ours, theirs,
    inputs)."""
    agree_all(
        name, {label: twice(*case) for label, case in cases.items()}, tolerance=1e-12
    )


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


# Cases of any settings
# -----------------------------------------------------------------------------


def property_test(examples, **strategies):
    """A test of every backend by so many cases of any settings: the function makes a case of what
    is drawn.

    The same ones are drawn on every run. Where each is compiled there are a quarter as many; the
    first is always the simplest, which says little.
    """

    def decorate(function):
        def run(name, **parameters):
            cases = drawn(examples * (20 if THOROUGH else 1), strategies)
            cases = cases[: max(3, len(cases) // 4)] if name in COMPILED else cases
            agree_all(
                name, {str(case): function(**parameters, **case) for case in cases}
            )

        signature = inspect.signature(function)
        left = [
            parameter
            for key, parameter in signature.parameters.items()
            if key not in strategies
        ]
        of_name = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__name__, run.__doc__, run.__signature__ = (
            function.__name__,
            function.__doc__,
            signature.replace(parameters=[of_name, *left]),
        )
        return run

    return decorate


def drawn(count, strategies):
    """So many examples of the strategies."""
    found = []

    def collect(**example):
        found.append(example)

    once = settings(
        max_examples=count,
        derandomize=not THOROUGH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    once(given(**strategies)(collect))()
    return found


# The oracle's side
# -----------------------------------------------------------------------------


def by_torch(function, parameters, inputs, rng):
    tensors = [tensor(x) for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # PyTorch's own remarks, for example on even kernels with padding "same"
        outputs = flat(function(*tensors))
    cotangents = [rng.normal(size=tuple(y.shape)) for y in outputs]
    loss = sum(
        (y * torch.tensor(c)).sum() for y, c in zip(outputs, cotangents, strict=True)
    )
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    leaves_of_all = [*parameters.values(), *leaves]
    gradients = repeat(None)  # where nothing has a derivative
    if torch.is_tensor(loss) and loss.requires_grad:
        gradients = iter(torch.autograd.grad(loss, leaves_of_all, allow_unused=True))
    return {
        "cotangents": cotangents,
        "outputs": [y.detach().numpy() for y in outputs],
        "parameters": {
            key: zeros_for_none(next(gradients), p) for key, p in parameters.items()
        },
        "inputs": [
            zeros_for_none(next(gradients), t)
            if t is not None and t.requires_grad
            else None
            for t in tensors
        ],
    }


def same(mine, other, what, tolerance=TOLERANCE):
    """Equal in shape, and to a tolerance of the largest element (or of 1). No gradient counts as
    one of zero."""
    mine = np.zeros_like(other) if mine is None else mine
    assert mine.shape == other.shape, what
    assert mine.dtype == other.dtype, what
    np.testing.assert_allclose(
        mine, other, rtol=0, atol=tolerance * max(1.0, largest(other)), err_msg=what
    )


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


def reduced(loss, reduction):
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()
