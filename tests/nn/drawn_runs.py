"""Drawn calls made on a backend and in PyTorch, and what is wrong with their outcomes."""

import warnings
from functools import cache

import numpy as np
import torch

from deliralike.errors import DeliralikeError, DtypeError
from tests.nn.agreement import flat, get
from tests.nn.drawn_calls import COUNT, SEED, TABLE, Fixed, draw_calls

F = torch.nn.functional
TOGETHER = 50  # calls that share a program, where calls are compiled

# The largest deviation, relative to the largest element; more where PyTorch itself is not exact.
TOLERANCE = 1e-10
INEXACT = {
    "celu": 1e-7,  # its factor of 1/alpha is of float32
    "hardsigmoid": 1e-7,  # its slope of 1/6 is of float32
    "binary_cross_entropy": 1e-7,  # the least divisor of its derivative is of float32
    "cosine_embedding_loss": 1e-7,  # what it adds to norms is of float32
}

# What PyTorch takes and these functions do not, beside arrays that are not of floating numbers.
NARROWER = (
    "wanted 3 axes",
    "wanted 4 axes",
    "wanted 5 axes",
    "wanted (batch, classes, ...)",
)
NARROWER += (
    "pooling with a reach of",
    "norm: p='nuc'",
    "is out of range, wanted whole numbers",
)
# Of what these functions take more than PyTorch does.
FLAGS = (
    "sub",
    "subtract",
    "logaddexp",
    "atan2",
    "arctan2",
    "isclose",
    "pow",
)  # truth values too
PADDED = (
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool3d",
)  # in ceil mode, windows larger than the input
# PyTorch has no derivative where these functions have one.
UNDERIVED = ("group_norm", "instance_norm", "dist", "addcdiv", "bilinear", "scatter")
WIDER = {*FLAGS, *PADDED, *UNDERIVED}


# One call, on each side
# -----------------------------------------------------------------------------


class Outcome:
    """The outputs and gradients of a call, or its error."""

    def __init__(self, outputs=(), gradients=(), error=None):
        self.outputs, self.gradients, self.error = list(outputs), list(gradients), error


def leaves(nest):
    """The arrays of a nest of arguments, in order."""
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, list | tuple):
        return [leaf for part in nest for leaf in leaves(part)]
    return [nest] if isinstance(nest, np.ndarray) else []


def filled(nest, arrays):
    """The nest with its arrays replaced by others, in order."""
    if isinstance(nest, np.ndarray):
        return next(arrays)
    if isinstance(nest, dict):
        return {key: filled(value, arrays) for key, value in nest.items()}
    if isinstance(nest, list | tuple):
        return type(nest)(filled(value, arrays) for value in nest)
    return nest


def is_variable(x):
    return x.dtype.kind == "f" and not isinstance(x, Fixed)


def cotangents(outputs):
    """A factor for each element of the outputs, the same on all backends."""
    rng = np.random.default_rng(1)
    return [rng.normal(size=tuple(y.shape)) for y in outputs]


def by_torch(function, args, kwargs):
    arrays = leaves((args, kwargs))
    tensors = [torch.tensor(np.array(x)).requires_grad_(is_variable(x)) for x in arrays]
    try:
        outputs = flat(function(*filled((args, kwargs), iter(tensors))))
        derived = [y for y in outputs if y.requires_grad]
        inputs = [x for x in tensors if x.requires_grad]
        gradients = [None] * len(inputs)
        if derived:
            factors = [torch.tensor(c) for c in cotangents(derived)]
            gradients = torch.autograd.grad(derived, inputs, factors, allow_unused=True)
    except Exception as error:
        return Outcome(error=error)
    gradients = [None if g is None else g.detach().numpy() for g in gradients]
    return Outcome([y.detach().numpy() for y in outputs], gradients)


def by_chainer(function, args, kwargs):
    import chainer

    arrays = leaves((args, kwargs))
    inputs = [
        chainer.Variable(np.array(x), requires_grad=is_variable(x))
        if x.dtype.kind == "f"
        else x
        for x in arrays
    ]
    variables = [
        x for x, array in zip(inputs, arrays, strict=True) if is_variable(array)
    ]
    try:
        outputs = flat(function(*filled((args, kwargs), iter(inputs))))
        derived = [
            y for y in outputs if isinstance(y, chainer.Variable) and y.requires_grad
        ]
        gradients = [None] * len(variables)
        if derived and variables:
            factors = [chainer.Variable(c) for c in cotangents(derived)]
            gradients = chainer.grad(derived, variables, factors)
    except Exception as error:
        return Outcome(error=error)
    gradients = [None if g is None else g.array for g in gradients]
    return Outcome([np.asarray(getattr(y, "array", y)) for y in outputs], gradients)


def by_jax(calls):
    """All calls, in one program; what is refused is found before."""
    import jax

    outcomes, programs = {}, {}
    for key, (function, args, kwargs) in enumerate(calls):
        program = jax_program(function, args, kwargs)
        variables = [np.array(x) for x in leaves((args, kwargs)) if is_variable(x)]
        try:
            jax.eval_shape(program, variables)
        except Exception as error:
            outcomes[key] = Outcome(error=error)
        else:
            programs[key] = (program, variables)

    def run(inputs):
        found = {}
        for key, (program, _) in programs.items():
            (_, outputs), gradients = jax.value_and_grad(program, has_aux=True)(
                inputs[key]
            )
            found[key] = outputs, gradients
        return found

    inputs = {key: variables for key, (_, variables) in programs.items()}
    for key, (outputs, gradients) in jax.device_get(jax.jit(run)(inputs)).items():
        outcomes[key] = Outcome(map(np.asarray, outputs), map(np.asarray, gradients))
    return [outcomes[key] for key in range(len(calls))]


def jax_program(function, args, kwargs):
    """A function from the variables of a call to a sum, whose gradients are wanted, and outputs."""
    from jax import numpy as jnp

    constants = [
        None if is_variable(x) else jnp.asarray(np.array(x))
        for x in leaves((args, kwargs))
    ]

    def program(variables):
        given = iter(variables)
        arrays = [next(given) if x is None else x for x in constants]
        outputs = [
            jnp.asarray(y)
            for y in flat(function(*filled((args, kwargs), iter(arrays))))
        ]
        derived = [y for y in outputs if y.dtype.kind == "f"]
        terms = [
            jnp.sum(y * c) for y, c in zip(derived, cotangents(derived), strict=True)
        ]
        return sum(terms, 0.0), outputs

    return program


# Both sides
# -----------------------------------------------------------------------------


@cache
def drawn():
    """All calls, with PyTorch's outcomes: (name, args, kwargs, outcome)."""
    rows = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name in TABLE:
            function = reference(name)
            for args, kwargs in draw_calls(name, COUNT, SEED):
                rows.append((name, args, kwargs, by_torch(function, args, kwargs)))
    return rows


def outcomes(backend, rows):
    """What a backend makes of calls."""
    nn = get(backend).nn
    calls = [(ours(nn, name), args, kwargs) for name, args, kwargs, _ in rows]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if backend == "jax":
            parts = range(0, len(calls), TOGETHER)
            return [each for at in parts for each in by_jax(calls[at : at + TOGETHER])]
        run = by_chainer if backend == "chainer" else by_torch
        return [run(*call) for call in calls]


def ours(nn, name):
    """A function of arguments, on our side."""

    def function(args, kwargs):
        if name == "ctc_loss":  # PyTorch's own derivative takes it for granted
            args = (nn.log_softmax(args[0], -1), *args[1:])
        return getattr(nn, name)(*args, **kwargs)

    return function


def reference(name):
    """The same function of PyTorch."""
    theirs = getattr(F if hasattr(F, name) else torch, name)

    def function(args, kwargs):
        if "like" in kwargs:
            kwargs = {key: value for key, value in kwargs.items() if key != "like"}
            y = theirs(*args, **kwargs)
            return y.double() if y.is_floating_point() else y
        if name == "ctc_loss":
            args = (F.log_softmax(args[0], -1), *args[1:])
        y = theirs(*args, **kwargs)
        if name in ("cross_entropy", "nll_loss"):  # 0 where all labels are ignored
            return torch.where(torch.isnan(y), 0.0, y)
        return y

    return function


def problem(name, args, kwargs, found, wanted):
    """What is wrong with an outcome, or None."""
    if found.error is not None:
        if not isinstance(found.error, DeliralikeError):
            return f"bare {type(found.error).__name__}: {found.error}"
        if wanted.error is None and not is_declared(args, kwargs, found.error):
            return f"refused: {type(found.error).__name__}: {found.error}"
        return None
    if wanted.error is not None:
        return None if name in WIDER else f"taken, where PyTorch says: {wanted.error}"
    if len(found.outputs) != len(wanted.outputs):
        return f"{len(found.outputs)} outputs, not {len(wanted.outputs)}"
    tolerance = INEXACT.get(name, TOLERANCE)
    for mine, other in zip(found.outputs, wanted.outputs, strict=True):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return f"{mine.dtype} {mine.shape}, not {other.dtype} {other.shape}"
        if far := deviation(mine, other, tolerance):
            return f"output {far}"
    for index, (mine, other) in enumerate(
        zip(found.gradients, wanted.gradients, strict=True)
    ):
        if far := deviation(*comparable(mine, other, wanted.outputs), tolerance):
            return f"gradient {index} {far}"
    return None


def is_declared(args, kwargs, error):
    """Whether a refusal is one that the docs tell of."""
    kinds = {x.dtype.kind for x in leaves((args, kwargs))}
    if isinstance(error, DtypeError) and kinds - {"f"}:
        return True
    return any(text in str(error) for text in NARROWER)


def comparable(mine, other, outputs):
    """Gradients, where PyTorch's mean something: no gradient is one of zeros; there is none where
    an output is not a number, and where PyTorch's own is NaN ours may be a number."""
    shape = next((g.shape for g in (mine, other) if g is not None), ())
    mine, other = (np.zeros(shape) if g is None else g for g in (mine, other))
    if mine.shape != other.shape:
        return mine, other
    means = np.isfinite(other) | np.isinf(other)
    for y in outputs:
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            means = means & (~np.isnan(y) if y.shape == other.shape else False)
    return np.where(means, mine, 0.0), np.where(means, other, 0.0)


def deviation(mine, other, tolerance):
    """The first elements that differ, or nothing."""
    if mine.shape != other.shape:
        return f"has shape {mine.shape}, not {other.shape}"
    mine, other = mine.astype(float), other.astype(float)
    finite = np.abs(other[np.isfinite(other)])
    allowed = tolerance * max([1.0, *finite.flat])
    with np.errstate(invalid="ignore"):
        wrong = ~np.isclose(mine, other, rtol=0, atol=allowed, equal_nan=True)
    return f"{mine[wrong][:3]}, not {other[wrong][:3]}" if wrong.any() else ""


def deviation_of(found, wanted):
    """How far outputs and gradients are from PyTorch's, relative to the largest element (or 1)."""
    if found.error is not None or wanted.error is not None:
        return 0.0
    pairs = list(zip(found.outputs, wanted.outputs, strict=True))
    for mine, other in zip(found.gradients, wanted.gradients, strict=True):
        pairs.append(comparable(mine, other, wanted.outputs))
    farthest = 0.0
    for mine, other in pairs:
        finite = np.isfinite(other)
        mine, other = mine[finite].astype(float), other[finite].astype(float)
        if other.size:
            far = np.abs(mine - other).max() / max(1.0, np.abs(other).max())
            farthest = max(farthest, float(far))
    return farthest


def described(nest):
    """A call's arguments as text: arrays by type and shape, small ones by their elements."""
    if isinstance(nest, np.ndarray):
        return (
            f"{nest.dtype}{nest.tolist()}"
            if nest.size < 5
            else f"{nest.dtype} {nest.shape}"
        )
    if isinstance(nest, list | tuple):
        return f"({', '.join(map(described, nest))})"
    if isinstance(nest, dict):
        return ", ".join(f"{key}={described(value)}" for key, value in nest.items())
    return repr(nest)
