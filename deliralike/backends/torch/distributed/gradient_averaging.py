"""The PyTorch network that averages gradients in buckets during backward."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from deliralike.backends.torch import arrays, unstable
from deliralike.backends.torch.holder import TorchHolder
from deliralike.parallel.gradient_averaging import GradientAveragingNetwork
from deliralike.parallel.processes.buckets import GradientSpec


class GradientAveragingTorchNetwork(GradientAveragingNetwork, TorchHolder):
    """A module whose state is that of the given one, under the same names.

    See `GradientAveragingNetwork`. Gradients are sent by hooks on their accumulation.
    """

    in_backward = True
    __call__ = torch.nn.Module.__call__

    def __init__(self, network, module, processes, **settings):
        TorchHolder.__init__(self, module)
        self._own: dict[str, torch.nn.Parameter] = {}
        self._hooked: dict[
            int, torch.Tensor
        ] = {}  # by identity; held, so that it stays unique
        self._in_pass = False  # whether a callback for the end of backward is queued
        GradientAveragingNetwork.__init__(self, network, module, processes, **settings)

    def trainable(self):
        named = self.given.named_parameters()
        parameters = {name: p for name, p in named if p.requires_grad}
        self._own = parameters
        self._names = {id(p): name for name, p in parameters.items()}
        arrive = weakref.WeakMethod(self._arrived)
        for parameter in parameters.values():
            if id(parameter) not in self._hooked:
                self._hooked[id(parameter)] = parameter
                parameter.register_post_accumulate_grad_hook(partial(_call, arrive))
        return {
            name: GradientSpec(tuple(p.shape), _host_type(p))
            for name, p in parameters.items()
        }

    def _arrived(self, parameter: torch.Tensor) -> None:
        if not self._in_pass:
            self._in_pass = True
            unstable.call_after_backward(self._ended)
        self.arrived(self._names.get(id(parameter), ""))

    def _ended(self) -> None:
        self._in_pass = False
        self.average()

    def gradient(self, name):
        return self._own[name].grad

    def put_gradient(self, name, gradient):
        self._own[name].grad = gradient

    def on_host(self, gradient):
        gradient = gradient.detach()
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        if gradient.dtype == torch.bfloat16:
            gradient = gradient.float()
        return gradient.cpu().numpy()

    def from_host(self, name, average):
        parameter = self._own[name]
        return torch.from_numpy(average).to(parameter.device, parameter.dtype)

    def forward(self, *args, **kwargs):
        """Return the outputs for this process's batch."""
        self._in_pass = False  # also after a backward pass that broke off
        self.look()
        return self.given(*args, **kwargs)

    def clear(self, optimizer, set_to_none):
        optimizer.native.zero_grad(set_to_none)

    def __getattr__(self, name: str) -> Any:
        """Return a part, which a subclass may add, or else an attribute of the network."""
        try:
            return torch.nn.Module.__getattr__(self, name)
        except AttributeError:
            return GradientAveragingNetwork.__getattr__(self, name)


def _host_type(parameter: torch.Tensor) -> str:
    if parameter.dtype == torch.bfloat16:
        return "float32"
    return arrays.dtype_name(parameter.dtype)


def _call(method: weakref.WeakMethod, *args: Any) -> None:
    """Call a method of an object that may have been deleted."""
    function = method()
    if function is not None:
        function(*args)
