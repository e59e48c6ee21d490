"""One case: an architecture at a size that a test can afford, with the reference implementation of
the same network."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from deliralike import backends, nest, zoo
from deliralike.zoo.inputs import inputs

# Small ones for tests of more than one kind.
NNUNET = {"features_per_stage": (3, 4, 5), "strides": (1, 2, 2), "dims": 2}
DYNUNET = {
    "filters": (3, 4, 5),
    "kernel_size": (3, 3, 3),
    "strides": (1, 2, 2),
    "dims": 2,
}


@dataclass(frozen=True, eq=False)
class Case:
    """An architecture with settings that keep it small: fewer blocks, narrow stages, odd sizes.

    Attributes:
        name: The architecture.
        settings: What to change in it. No dropout: masks differ between libraries.
        shape: One sample's shape (or list of shapes, or of `zoo.Input`) instead of the
            architecture's own.
        batch: Number of samples.
        reference: Makes the same network with the reference implementation; None when nobody has
            one.
        call: ``(reference, *inputs)`` to outputs nested as ours; calls the reference when not
            given.
        covers: The names of the zoo that are this same network at this size; `name` when not given.
        of: A suffix that tells cases of one architecture apart.
        zero: Patterns of parameters whose gradient is zero in exact arithmetic (a bias before a
            normalisation).
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    shape: Any = None
    batch: int = 2
    reference: Callable[[], torch.nn.Module] | None = None
    call: Callable[..., Any] = lambda reference, *inputs: reference(*inputs)
    covers: tuple[str, ...] = ()
    of: str = ""
    zero: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What the test is called."""
        return f"{self.name} {self.of}".strip()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the zoo for which this case stands."""
        return self.covers or (self.name,)

    def as_parameter(self, *more: Any) -> Any:
        """The label (and more) as parameters of a test; tests of one case share results, so one
        process runs them."""
        return pytest.param(
            self.label, *more, marks=pytest.mark.xdist_group(self.label)
        )

    def build(self, backend: str, dtype: str = "float64", seed: int = 0) -> Any:
        """The network on a backend, with its start values."""
        return zoo.build(
            self.name, backend=backend, dtype=dtype, seed=seed, **self.settings
        )

    def entries(self) -> tuple[zoo.Input, ...]:
        """What one sample consists of."""
        return (
            zoo.find(self.name).inputs_for(**self.settings)
            if self.shape is None
            else inputs(self.shape)
        )

    def inputs(self, dtype: str = "float64") -> tuple[np.ndarray, ...]:
        """A batch, always the same."""
        generator = np.random.default_rng(3)
        return tuple(
            entry.draw(generator, self.batch, dtype) for entry in self.entries()
        )


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """A module's state."""
    return {name: value.numpy() for name, value in module.state_dict().items()}


def drawn(*shape: int) -> torch.Tensor:
    """Normal numbers, the same ones each time."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape))


def on_torch(name: str, **settings: Any) -> Any:
    """An architecture on PyTorch, in double precision and evaluation mode."""
    network = zoo.build(name, backend="torch", dtype="float64", **settings)
    return network.eval()


def scrambled(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state with norms, biases and statistics away from their start values; integers and matrices
    as they were."""
    generator = np.random.default_rng(1)
    changed = {}
    for name, value in state.items():
        value = np.asarray(value)
        if value.dtype.kind != "f":
            changed[name] = value
        elif name.endswith(("bias", "running_mean")) and value.ndim == 1:
            changed[name] = 0.1 * generator.standard_normal(value.shape)
        elif value.ndim == 1:  # scales and variances, also those that start at zero
            changed[name] = generator.uniform(0.5, 1.5, value.shape)
        else:
            changed[name] = value
    return changed


def scramble(reference: torch.nn.Module) -> dict[str, np.ndarray]:
    """Move a reference's norms, biases and statistics from their start; its state as arrays."""
    tensors = {
        name: torch.from_numpy(value)
        for name, value in scrambled(arrays_of(reference)).items()
    }
    reference.load_state_dict(tensors)
    state = reference.state_dict()  # tied names have one value now
    return {name: value.clone().numpy() for name, value in state.items()}


@dataclass(frozen=True)
class Results:
    """What a network gives on PyTorch in double precision: arrays by path.

    Attributes:
        evaluated: Outputs in evaluation mode.
        trained: Outputs in training mode.
        loss: Of the training pass.
        parameters: Gradients by name.
        inputs: Gradients with respect to the floating inputs.
        state: The state after the training pass.
    """

    evaluated: dict[str, np.ndarray]
    trained: dict[str, np.ndarray]
    loss: float
    parameters: dict[str, np.ndarray]
    inputs: list[np.ndarray]
    state: dict[str, np.ndarray]


def by_path(output: Any, numpy: Callable[[Any], np.ndarray]) -> dict[str, np.ndarray]:
    """The leaves of a nest of outputs as arrays."""
    return {str(path): numpy(leaf) for path, leaf in nest.leaves_with_paths(output)}


def weighted_mean(outputs: Any, nn: Any) -> Any:
    """The loss: the sum over the leaves of the mean of ``leaf * weight``; weights are fixed random
    numbers."""
    generator = np.random.default_rng(7)
    terms = []
    for leaf in nest.leaves(outputs):
        weights = nn.constant(generator.standard_normal(tuple(leaf.shape)), leaf)
        terms.append(nn.mean(leaf * weights))
    return sum(terms)


@contextmanager
def marked_dropout(module: torch.nn.Module) -> Iterator[None]:
    """Let each layer of dropout multiply by known factors, so that its place shows in the outputs.

    Masks differ between libraries, and cases switch them off.
    """
    rates = {
        layer: layer.p for layer in module.modules() if isinstance(layer, DROPOUTS)
    }

    def marked(x, p=0.5, training=True, inplace=False):
        factors = 1 + p * torch.sin(torch.arange(x.numel(), dtype=x.dtype)).view(
            x.shape
        )
        return x * factors if training else x

    functions = torch.nn.functional
    try:
        for layer in rates:
            layer.p = 0.25
        with mock.patch.multiple(
            functions, dropout=marked, dropout2d=marked, dropout3d=marked
        ):
            yield
    finally:
        for layer, rate in rates.items():
            layer.p = rate


# Attention drops weights within its own kernel; MONAI's V-Net without dropout has no such layers.
UNMARKED = ("bert", "gpt", "t5", "flan", "transformer", "vnet", "whisper")
DROPOUTS = torch.nn.Dropout | torch.nn.Dropout2d | torch.nn.Dropout3d


def run_on_torch(
    module: torch.nn.Module, call: Callable[..., Any], case: Case
) -> Results:
    """A pass in evaluation and one in training, with gradients.

    The module may be one that others step: gradients begin anew, and the results are copies.
    """
    module.zero_grad()
    inputs = [torch.from_numpy(x) for x in case.inputs()]
    floating = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    with torch.no_grad():
        evaluated = by_path(call(module.eval(), *inputs), torch.Tensor.numpy)
    is_marked = "dropout" in case.settings and not case.name.startswith(UNMARKED)
    with marked_dropout(module) if is_marked else nullcontext():
        outputs = call(module.train(), *inputs)
    trained = by_path(outputs, lambda leaf: leaf.detach().numpy())
    loss = weighted_mean(outputs, backends.get("torch").nn)
    loss.backward()
    parameters = {
        name: np.zeros(tuple(parameter.shape))
        if parameter.grad is None
        else parameter.grad.numpy().copy()
        for name, parameter in module.named_parameters()
    }
    state = {name: value.numpy().copy() for name, value in module.state_dict().items()}
    return Results(
        evaluated,
        trained,
        loss.item(),
        parameters,
        [x.grad.numpy() for x in floating],
        state,
    )


@cache
def theirs(label: str) -> tuple[Results, dict[str, np.ndarray]]:
    """What the reference gives, and the state that it was given."""
    from tests.zoo.cases import CASES

    case = CASES[label]
    torch.manual_seed(0)
    module = case.reference().double()
    start = scramble(module)
    return run_on_torch(module, case.call, case), start


@cache
def ours(label: str) -> Results:
    """What our network gives."""
    from tests.zoo.cases import CASES

    return run_on_torch(
        started(label, "torch"), lambda network, *inputs: network(*inputs), CASES[label]
    )


@cache
def built(label: str, backend_name: str) -> Any:
    """Our network on a backend in double precision, for all who load a state into it or change
    nothing."""
    from tests.zoo.cases import CASES

    return CASES[label].build(backend_name)


def started(label: str, backend_name: str) -> Any:
    """Our network on a backend, with the reference's state (or a scrambled one where there is
    none)."""
    network = built(label, backend_name)
    assert network.load_neutral_state(start_state(label)).complete
    return network


@cache
def start_state(label: str) -> dict[str, np.ndarray]:
    """The weights with which a case is computed on every backend."""
    from tests.zoo.cases import CASES

    if CASES[label].reference is not None:
        return theirs(label)[1]
    return scrambled(built(label, "torch").neutral_state())


@cache
def computed(label: str, backend_name: str) -> Results:
    """What our network gives on a backend, without dropout: both modes and all gradients in one
    program."""
    from tests.zoo.cases import CASES

    backend, network = backends.get(backend_name), started(label, backend_name)

    def passes(network, *inputs):
        with network.training_mode(False):
            evaluated = network(*inputs)
        with network.training_mode(True):
            trained = network(*inputs)
        return weighted_mean(trained, network.nn), evaluated, trained

    found = backend.gradients(passes, network, *CASES[label].inputs())
    state, parameters = network.neutral_state(), {}
    for name, gradient in found.parameters.items():
        parameters[name] = np.zeros(state[name].shape) if gradient is None else gradient
    inputs = [gradient for gradient in found.inputs if gradient is not None]
    evaluated, trained = (by_path(outputs, np.asarray) for outputs in found.beside)
    return Results(evaluated, trained, found.loss, parameters, inputs, state)


def assert_same(came: Results, wanted: Results, tolerance: float) -> None:
    """Names, outputs in both modes, loss, gradients of parameters and inputs, and statistics."""
    for mine, outputs in (
        (came.evaluated, wanted.evaluated),
        (came.trained, wanted.trained),
    ):
        assert list(mine) == list(outputs)
        for path, leaf in outputs.items():
            close(mine[path], leaf, tolerance, name=path)
    assert came.loss == pytest.approx(wanted.loss, rel=tolerance, abs=1e-12)
    assert set(wanted.parameters) <= set(came.parameters)
    scale = max(
        np.abs(gradient).max(initial=0.0) for gradient in wanted.parameters.values()
    )
    for name, gradient in wanted.parameters.items():
        close(
            came.parameters[name], gradient, tolerance, scale, f"the gradient of {name}"
        )
    assert len(came.inputs) == len(wanted.inputs)
    for mine, gradient in zip(came.inputs, wanted.inputs, strict=True):
        close(mine, gradient, tolerance, name="the gradient of an input")
    for name, value in wanted.state.items():
        close(came.state[name], value, tolerance, name=f"{name} after the pass")


def evaluate(
    backend: Any, network: Any, inputs: tuple[np.ndarray, ...], training: bool = False
) -> dict[str, Any]:
    """The outputs by path, without a graph; on JAX through ``nnx.jit``."""
    call = network
    if backend.name == "jax":
        from flax import nnx

        def call(*arrays):
            return nnx.jit(lambda net, *arrays: net(*arrays))(network, *arrays)

    arrays = [backend.prepare(x, network) for x in inputs]
    with network.training_mode(training), backend.evaluating():
        return by_path(call(*arrays), backend.numpy)


def close(
    came: Any, wanted: Any, tolerance: float, scale: float | None = None, name: str = ""
) -> None:
    """Equal up to a tolerance relative to each number and to the largest: arrays, or tensors."""
    came, wanted = (
        each.detach().numpy() if torch.is_tensor(each) else each
        for each in (came, wanted)
    )
    scale = np.abs(wanted).max(initial=1e-30) if scale is None else scale
    np.testing.assert_allclose(
        came, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=name
    )


def assert_same_distributions(state, reference, others=frozenset()):
    """Start values: constants are equal; of what is drawn, the sizes and the fourth moments of all
    layers of a kind, as far as so few numbers tell. Leaves out `others`."""
    kinds = defaultdict(list)
    for name, parameter in reference.named_parameters():
        wanted = parameter.detach().double().numpy().ravel()
        came = state[name].ravel().astype(float)
        if name in others or (wanted.size == 1 and name != "logit_scale"):
            continue  # one number tells nothing where it is drawn
        if wanted.size and np.ptp(wanted) == 0:
            np.testing.assert_allclose(came, wanted, rtol=1e-6, err_msg=name)
        elif wanted.size:
            kinds[re.sub(r"\d+", "", name)].append((came, wanted))
    for kind, pairs in kinds.items():
        count = sum(came.size for came, _ in pairs)
        ratios = [
            came.size * np.log((came @ came) / (wanted @ wanted))
            for came, wanted in pairs
        ]
        assert abs(sum(ratios) / 2) < 5 * np.sqrt(count), kind
        moments = [
            np.mean(np.concatenate([x / np.sqrt(np.mean(x**2)) for x in side]) ** 4)
            for side in zip(*pairs, strict=True)
        ]
        assert count < 300 or abs(moments[0] - moments[1]) < 40 / np.sqrt(count), kind
