"""The update rules as their papers (and PyTorch's pages) state them, over a whole run in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

# A rule in a run: the parameter, the gradient, the learning rate, the number of this update (from
# 1) -> the parameter.
Step = Callable[[np.ndarray, np.ndarray, float, int], np.ndarray]


def sgd(momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0) -> Step:
    """The velocity is a sum of gradients; the learning rate stays outside of it."""
    velocity: list[np.ndarray] = []

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        g = g + decay * p
        velocity[:] = [momentum * velocity[0] + g if velocity else g]
        return p - lr * (g + momentum * velocity[0] if nesterov else velocity[0])

    return step


def adam(
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.0,
    decoupled: bool = False,
    amsgrad: bool = False,
) -> Step:
    """With bias corrections; `decoupled` decay shrinks the parameter by ``lr * decay`` first."""
    m, v, largest = [0.0 * np.ones(())], [0.0 * np.ones(())], [0.0 * np.ones(())]

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        p, g = (p * (1.0 - lr * decay), g) if decoupled else (p, g + decay * p)
        m[0] = betas[0] * m[0] + (1.0 - betas[0]) * g
        v[0] = betas[1] * v[0] + (1.0 - betas[1]) * g**2
        largest[0] = np.maximum(largest[0], v[0])
        root = np.sqrt((largest[0] if amsgrad else v[0]) / (1.0 - betas[1] ** t))
        return p - lr * (m[0] / (1.0 - betas[0] ** t)) / (root + eps)

    return step


def rmsprop(
    alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0, decay: float = 0.0
) -> Step:
    """Epsilon outside of the root, the learning rate outside of the velocity."""
    square, velocity = [0.0 * np.ones(())], [0.0 * np.ones(())]

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        g = g + decay * p
        square[0] = alpha * square[0] + (1.0 - alpha) * g**2
        velocity[0] = momentum * velocity[0] + g / (np.sqrt(square[0]) + eps)
        return p - lr * velocity[0]

    return step


def adagrad(eps: float = 1e-10, decay: float = 0.0) -> Step:
    """The sum of squares starts at zero."""
    total = [0.0 * np.ones(())]

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        g = g + decay * p
        total[0] = total[0] + g**2
        return p - lr * g / (np.sqrt(total[0]) + eps)

    return step


def adadelta(rho: float = 0.9, eps: float = 1e-6, decay: float = 0.0) -> Step:
    """Epsilon inside both roots."""
    square, moved = [0.0 * np.ones(())], [0.0 * np.ones(())]

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        g = g + decay * p
        square[0] = rho * square[0] + (1.0 - rho) * g**2
        delta = g * np.sqrt(moved[0] + eps) / np.sqrt(square[0] + eps)
        moved[0] = rho * moved[0] + (1.0 - rho) * delta**2
        return p - lr * delta

    return step


def lion(betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.0) -> Step:
    """Algorithm 2 of arXiv 2302.06675."""
    mean = [0.0 * np.ones(())]

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        direction = np.sign(betas[0] * mean[0] + (1.0 - betas[0]) * g)
        mean[0] = betas[1] * mean[0] + (1.0 - betas[1]) * g
        return p - lr * (direction + decay * p)

    return step


def lamb(betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6, decay: float = 0.0) -> Step:
    """Algorithm 2 of arXiv 1904.00962."""
    m, v = [0.0 * np.ones(())], [0.0 * np.ones(())]

    def step(p: np.ndarray, g: np.ndarray, lr: float, t: int) -> np.ndarray:
        m[0] = betas[0] * m[0] + (1.0 - betas[0]) * g
        v[0] = betas[1] * v[0] + (1.0 - betas[1]) * g**2
        u = (m[0] / (1.0 - betas[0] ** t)) / (
            np.sqrt(v[0] / (1.0 - betas[1] ** t)) + eps
        ) + decay * p
        return p - lr * np.linalg.norm(p) / np.linalg.norm(u) * u

    return step


def run(
    step: Step, start: np.ndarray, gradients: Sequence[np.ndarray], rates: Sequence[float]
) -> list[np.ndarray]:
    """The parameter after each update."""
    path, p = [], start
    for t, (g, lr) in enumerate(zip(gradients, rates, strict=True), start=1):
        p = step(p, g, lr, t)
        path.append(p)
    return path
