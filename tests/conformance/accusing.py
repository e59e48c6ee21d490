"""Failing blocks: the reference is a layer of `nn`, the candidate a NumPy function with gradients
by complex steps."""

import numpy as np

from deliralike import backends, nest, random
from deliralike.conformance.explain import explain
from deliralike.conformance.findings import FailingBlock, Observed
from deliralike.network import Network, build
from tests.conformance.small import argument

STEP = 1e-30  # f(x + i h) = f(x) + i h f'(x) without cancellation


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def floating(tree):
    return {
        p: v
        for p, v in nest.leaves_with_paths(tree, "args")
        if isinstance(v, np.ndarray) and v.dtype.kind == "f"
    }


def gradient(scalar, tree, name):
    """The gradient of a function of a nest with respect to one of its arrays, by complex steps."""
    leaves, structure = nest.flatten(tree)
    position = [path for path, _ in nest.leaves_with_paths(tree, "args")].index(name)
    found = np.zeros(leaves[position].shape)
    for index in np.ndindex(found.shape):
        moved = leaves[position].astype(complex)
        moved[index] += 1j * STEP
        found[index] = scalar(
            nest.unflatten(
                structure, [moved if i == position else v for i, v in enumerate(leaves)]
            )
        ).imag
    return found / STEP


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
    differ=True,
    backend="torch",
):
    """The block with a candidate ``candidate(weights, *args)`` in NumPy; `buffers` gives its own
    after the call.

    `differ` False leaves the reference's gradients (for those that are not differentiable).
    """
    before, cotangent, right = reference(
        kind, settings, state, args, training, kwargs, backend=backend
    )
    y = candidate(before, *args)
    after = {**before, **(buffers(before, *args) if buffers else {})}
    weights = {name: before[name] for name in right.parameters}
    shapes = [np.shape(a) for a in nest.leaves(y) if a is not None]
    same = shapes == [np.shape(a) for a in nest.leaves(right.outputs) if a is not None]
    inputs, parameters = dict(right.inputs), dict(right.parameters)
    if differ and same:
        given = [c for c in nest.leaves(cotangent) if c is not None]

        def scalar(tree):
            outputs = [
                leaf
                for leaf in nest.leaves(candidate({**before, **tree[0]}, *tree[1]))
                if leaf is not None
            ]
            return (
                sum((leaf * c).sum() for leaf, c in zip(outputs, given, strict=True))
                + 0j
            )

        tree = (weights, tuple(args))
        parameters = {
            name: gradient(scalar, tree, f"args[0]['{name}']") for name in weights
        }
        inputs = {
            argument(path): gradient(scalar, tree, path.replace("args", "args[1]", 1))
            for path in floating(tuple(args))
        }
    wrong = Observed(y, inputs, parameters, after)
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


def explained(*given, backend="torch", **how):
    return explain(accused(*given, backend=backend, **how), backends.get(backend))
