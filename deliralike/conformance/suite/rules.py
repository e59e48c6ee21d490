"""The update rules as their papers (and PyTorch's pages) state them, over a whole run in NumPy.

Each is ``rule(p, gradient, rates, **settings)``. It yields the parameter after each update;
``gradient(t, p)`` is the gradient at update ``t``, from 0, and ``rates`` are the learning rates.
"""

from functools import partial

import numpy as np


def sgd(
    p,
    gradient,
    rates,
    momentum=0.0,
    nesterov=False,
    weight_decay=0.0,
):
    """The velocity is a sum of gradients; the learning rate stays outside of it."""
    velocity = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p) + weight_decay * p
        velocity = momentum * velocity + g
        p = p - lr * (g + momentum * velocity if nesterov else velocity)
        yield p


def adam(
    p,
    gradient,
    rates,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    decoupled=False,
    amsgrad=False,
):
    """With bias corrections; `decoupled` decay shrinks the parameter by ``lr * decay`` first."""
    m = v = largest = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p)
        if decoupled:
            p = p * (1.0 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1.0 - betas[0]) * g
        v = betas[1] * v + (1.0 - betas[1]) * g**2
        largest = np.maximum(largest, v) if amsgrad else v
        root = np.sqrt(largest / (1.0 - betas[1] ** (t + 1)))
        p = p - lr * (m / (1.0 - betas[0] ** (t + 1))) / (root + eps)
        yield p


def rmsprop(
    p,
    gradient,
    rates,
    alpha=0.99,
    eps=1e-8,
    momentum=0.0,
):
    """Epsilon outside of the root, the learning rate outside of the velocity."""
    square = velocity = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p)
        square = alpha * square + (1.0 - alpha) * g**2
        velocity = momentum * velocity + g / (np.sqrt(square) + eps)
        p = p - lr * velocity
        yield p


def adagrad(p, gradient, rates, eps=1e-10):
    """The sum of squares starts at zero."""
    total = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p)
        total = total + g**2
        p = p - lr * g / (np.sqrt(total) + eps)
        yield p


def adadelta(p, gradient, rates, rho=0.9, eps=1e-6):
    """Epsilon inside both roots."""
    square = moved = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p)
        square = rho * square + (1.0 - rho) * g**2
        delta = g * np.sqrt(moved + eps) / np.sqrt(square + eps)
        moved = rho * moved + (1.0 - rho) * delta**2
        p = p - lr * delta
        yield p


def lion(
    p,
    gradient,
    rates,
    betas=(0.9, 0.99),
    weight_decay=0.0,
):
    """Algorithm 2 of arXiv 2302.06675."""
    mean = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p)
        direction = np.sign(betas[0] * mean + (1.0 - betas[0]) * g)
        mean = betas[1] * mean + (1.0 - betas[1]) * g
        p = p - lr * (direction + weight_decay * p)
        yield p


def lamb(
    p,
    gradient,
    rates,
    betas=(0.9, 0.999),
    eps=1e-6,
    weight_decay=0.0,
):
    """Algorithm 2 of arXiv 1904.00962."""
    m = v = np.zeros(p.shape)
    for t, lr in enumerate(rates):
        g = gradient(t, p)
        m = betas[0] * m + (1.0 - betas[0]) * g
        v = betas[1] * v + (1.0 - betas[1]) * g**2
        root = np.sqrt(v / (1.0 - betas[1] ** (t + 1)))
        update = m / (1.0 - betas[0] ** (t + 1)) / (root + eps) + weight_decay * p
        p = p - lr * np.linalg.norm(p) / np.linalg.norm(update) * update
        yield p


RULES = {
    "sgd": sgd,
    "adam": adam,
    "adamw": partial(adam, decoupled=True),
    "amsgrad": partial(adam, amsgrad=True),
    "rmsprop": rmsprop,
    "adagrad": adagrad,
    "adadelta": adadelta,
    "lion": lion,
    "lamb": lamb,
}
