"""Every function that has PyTorch's name agrees with PyTorch's own in drawn calls, on every
backend: values, shapes, types and gradients in float64. What is refused is refused by an error of
ours."""

import warnings
from functools import cache

import numpy as np
import pytest
import torch

from deliralike import start
from deliralike.errors import DeliralikeError
from tests.nn.agreement import NAMES, flat, get, hold
from tests.nn.drawn_calls import TABLE, draw_calls

F = torch.nn.functional
SEED, COUNT = 0, 12
TOLERANCE = 1e-10


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


class Outcome:
    """Outputs and gradients of a call, or the error."""

    def __init__(self, outputs=(), gradients=(), error=None):
        self.outputs, self.gradients, self.error = list(outputs), list(gradients), error


def cotangents(outputs):
    """A factor for each element of the outputs, the same on all backends."""
    rng = np.random.default_rng(1)
    return [rng.normal(size=tuple(y.shape)) for y in outputs]


def by_torch(function, args, kwargs):
    arrays = [torch.tensor(x) for x in leaves((args, kwargs))]
    tensors = [x.requires_grad_() if x.is_floating_point() else x for x in arrays]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = function(*filled((args, kwargs), iter(tensors)))
            outputs = flat(outputs)
            derived = [y for y in outputs if y.requires_grad]
            factors = [torch.tensor(c) for c in cotangents(derived)]
            inputs = [x for x in tensors if x.requires_grad]
            gradients = [None] * len(inputs)
            if derived and inputs:
                gradients = torch.autograd.grad(derived, inputs, factors, allow_unused=True)
    except Exception as error:
        return Outcome(error=error)
    gradients = [None if g is None else g.numpy() for g in gradients]
    return Outcome([y.detach().numpy() for y in outputs], gradients)


def by_chainer(function, args, kwargs):
    import chainer

    arrays = leaves((args, kwargs))
    variables = [chainer.Variable(x) if x.dtype.kind == "f" else x for x in arrays]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = flat(function(*filled((args, kwargs), iter(variables))))
            derived = [y for y in outputs if isinstance(y, chainer.Variable) and y.requires_grad]
            factors = [chainer.Variable(c.astype(y.dtype)) for y, c in zip(derived, cotangents(derived))]
            inputs = [x for x in variables if isinstance(x, chainer.Variable)]
            gradients = [None] * len(inputs)
            if derived and inputs:
                gradients = chainer.grad(derived, inputs, factors)
    except Exception as error:
        return Outcome(error=error)
    found = [np.asarray(getattr(y, "array", y)) for y in outputs]
    return Outcome(found, [None if g is None else g.array for g in gradients])


def by_jax(calls):
    """All calls in one program: outcomes in their order."""
    import jax

    programs, outcomes = [], {}
    for key, (function, args, kwargs) in enumerate(calls):
        arrays = leaves((args, kwargs))
        floats = [x for x in arrays if x.dtype.kind == "f"]

        def program(floats, function=function, args=args, kwargs=kwargs, arrays=arrays):
            given = iter(floats)
            both = [next(given) if x.dtype.kind == "f" else jax.numpy.asarray(x) for x in arrays]
            outputs = flat(function(*filled((args, kwargs), iter(both))))
            outputs = [jax.numpy.asarray(y) for y in outputs]
            derived = [y for y in outputs if y.dtype.kind == "f"]
            factors = cotangents(derived)
            total = sum((jax.numpy.sum(y * c) for y, c in zip(derived, factors)), 0.0)
            return total, outputs

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                jax.eval_shape(program, floats)
            except Exception as error:
                outcomes[key] = Outcome(error=error)
                continue
        programs.append((key, program, floats))

    def run(all_floats):
        found = []
        for (_, program, _), floats in zip(programs, all_floats):
            (_, outputs), gradients = jax.value_and_grad(program, has_aux=True)(floats)
            found.append((outputs, gradients))
        return found

    for key, (outputs, gradients) in zip(
        [key for key, *_ in programs], jax.device_get(jax.jit(run)([f for *_, f in programs]))
    ):
        outcomes[key] = Outcome([np.asarray(y) for y in outputs], [np.asarray(g) for g in gradients])
    return [outcomes[key] for key in range(len(calls))]


def reference(name):
    if name in ("zeros", "ones", "full", "eye", "linspace", "arange"):
        return lambda args, kwargs: getattr(torch, name)(*args, dtype=torch.float64)
    function = getattr(F if hasattr(F, name) else torch, name)
    return lambda args, kwargs: function(*args, **kwargs)
