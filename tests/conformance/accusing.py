"""Failing blocks: the reference is a layer of `nn`, the candidate a function of PyTorch's."""

import numpy as np
import torch

from deliralike import backends, nest, random
from deliralike.conformance.explain.search import explain
from deliralike.conformance.findings import FailingBlock, Observed
from deliralike.network import Network, build
from tests.conformance.small import argument


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def known(explanation, *words):
    """Whether the cause was found and says what is wanted."""
    assert explanation is not None
    assert explanation.known, str(explanation)
    assert explanation.match <= 1e-10
    assert all(word in explanation.cause for word in words), explanation.cause


class _Calling(Network):
    """A function of `nn` as a network, its arguments as they come."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, args, kwargs):
        return getattr(self.nn, self.name)(*args, **kwargs)


def reference(
    kind, settings, state, args, training, kwargs=None, cotangent=None, backend="torch"
):
    """What the layer or function of `nn` gives: outputs, cotangent, and an `Observed`."""
    backend, kwargs = backends.get(backend), kwargs or {}
    is_layer = kind[0].isupper()
    made = (
        build(getattr(backend.nn, kind), **settings, dtype="float64")
        if is_layer
        else (build(_Calling.on(backend), kind, dtype="float64"))
    )
    if state:
        made.load_neutral_state(state)
    made.train(training)
    before = made.neutral_state()

    def outputs(network, args, kwargs):
        return network(*args, **kwargs) if is_layer else network(args, kwargs)

    def loss(network, args, kwargs):
        y = outputs(network, args, kwargs)
        leaves = [leaf for leaf in nest.leaves(y) if leaf is not None]
        given = [c for c in nest.leaves(cotangent) if c is not None]
        total = sum(
            backend.nn.sum(leaf * backend.nn.constant(c, like=leaf))
            for leaf, c in zip(leaves, given, strict=True)
        )
        return total, y

    with random.portable(seed=3, step=1):
        y = backend.to_numpy(
            outputs(made, *backend.prepare((tuple(args), dict(kwargs)), made))
        )
    if cotangent is None:
        cotangent = nest.map(
            lambda leaf: None if leaf is None else numbers(*leaf.shape, seed=9), y
        )
    made.load_neutral_state(before)
    with random.portable(seed=3, step=1):
        found = backend.gradients(loss, made, tuple(args), dict(kwargs))
    inputs = dict(nest.leaves_with_paths(found.inputs[0], "args")) | dict(
        nest.leaves_with_paths(found.inputs[1], "kwargs")
    )
    inputs = {
        argument(path): value for path, value in inputs.items() if value is not None
    }
    return (
        before,
        cotangent,
        Observed(found.beside[0], inputs, found.parameters, made.neutral_state()),
    )


def accused(
    kind,
    settings,
    args,
    candidate,
    training=True,
    state=None,
    kwargs=None,
    buffers=None,
    backend="torch",
):
    """The block with a candidate ``candidate(weights, *args)`` in PyTorch; `buffers` gives its own
    after the call."""
    before, cotangent, right = reference(
        kind, settings, state, args, training, kwargs, backend=backend
    )
    weights = {name: _tensor(array) for name, array in before.items()}
    inputs = nest.map(_tensor, tuple(args))
    y = candidate(weights, *inputs)
    after = {**before, **(buffers(before, *args) if buffers else {})}
    outputs = nest.map(lambda each: each.detach().numpy(), y)
    input_slopes, weight_slopes = right.inputs, right.parameters
    pairs = list(zip(nest.leaves(y), map(_tensor, nest.leaves(cotangent)), strict=True))
    if all(each.shape == factor.shape for each, factor in pairs):
        sum((each * factor).sum() for each, factor in pairs).backward()
        weight_slopes = {name: _gradient(weights[name]) for name in right.parameters}
        input_slopes = {
            argument(path): _gradient(each)
            for path, each in nest.leaves_with_paths(inputs, "args")
            if isinstance(each, torch.Tensor) and each.is_floating_point()
        }
    wrong = Observed(outputs, input_slopes, weight_slopes, after)
    return FailingBlock(
        "block",
        kind,
        settings,
        before,
        tuple(args),
        kwargs or {},
        cotangent,
        training,
        right,
        wrong,
    )


def _tensor(array):
    if not isinstance(array, np.ndarray):
        return array
    return torch.tensor(array, requires_grad=array.dtype.kind == "f")


def _gradient(tensor):
    return np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()


def explained(*given, backend="torch", **how):
    return explain(accused(*given, backend=backend, **how), backends.get(backend))
