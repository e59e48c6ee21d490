"""The JAX network that averages gradients over processes in each step."""

from __future__ import annotations

from typing import Any

from deliralike.parallel.gradient_averaging import GradientAveragingNetwork


class GradientAveragingJaxNetwork(GradientAveragingNetwork):
    """See `GradientAveragingNetwork`.

    On JAX gradients are what a function returns. So they stay on this process until they are sent
    in `step`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._gradients: dict[str, Any] = {}
        super().__init__(*args, **settings)

    def gradient(self, name):
        return self._gradients.get(name)

    def put_gradient(self, name, gradient):
        self._gradients[name] = gradient
