"""PyTorch as a source framework: what its modules and tensors are. Its calls are in `pytorch`."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

import numpy as np

from deliralike.port.calls import PLACEMENT, Call
from deliralike.port.pytorch import PyTorchCalls
from deliralike.port.values import Layer, Value, collection

_GRADIENT_MODES = ("no_grad", "inference_mode", "enable_grad")


class PyTorch(PyTorchCalls):
    """Modules of PyTorch."""

    packages = ("torch",)
    title = "PyTorch"
    network_class = ("torch.nn", "Module")
    array_class = "Tensor"
    bases = {"Module": "Network"}
    idle_methods = ("flatten_parameters",)
    devices = ("device",)
    stops_gradients = ("no_grad", "inference_mode")
    transparent = (*_GRADIENT_MODES, "autocast", "device", "jit.")
    member_tables = ("_modules", "_parameters", "_buffers")

    def name_of(self, value: Any) -> str | None:
        """See `Framework`; of other packages only what the tables have."""
        name = super().name_of(value)
        if name is None or not name.startswith(("timm.", "torchvision.")):
            return name
        known = (*self.classes, *self.functions, *self.without_effect)
        return name if name in known else None

    def describe(self, value: Any) -> Value:
        """See `Framework`."""
        torch = sys.modules["torch"]
        if isinstance(value, torch.Tensor):
            is_parameter = isinstance(value, torch.nn.Parameter)
            kind = "parameter" if is_parameter else "array"
            return Value(kind, value.dim(), str(value.dtype).removeprefix("torch."))
        if isinstance(value, _containers()):
            return Value("container")
        if isinstance(value, torch.nn.Module):
            return Value("network")
        if isinstance(value, torch.Size):
            return Value("shape")
        if isinstance(value, np.ndarray):
            return Value("sequence")
        if isinstance(value, dict) and value and value.keys() <= {*PLACEMENT}:
            return Value("placement")
        if type(value) in (int, float) and value == 0:
            return Value("zero")
        return collection(value, self.describe)

    def is_dtype(self, value: Any) -> bool:
        """See `Framework`."""
        return isinstance(value, sys.modules["torch"].dtype)

    def is_half_type(self, value: Any) -> bool:
        """See `Framework`."""
        return self.is_dtype(value) and str(value) in (
            "torch.float16",
            "torch.bfloat16",
        )

    def has_custom_gradient(self, value: Any) -> bool:
        """See `Framework`."""
        function = sys.modules["torch"].autograd.Function
        return isinstance(value, type) and issubclass(value, function)

    def blocks(self, network: Any) -> list[Any]:
        """See `Framework`."""
        return list(network.modules())

    def members(self, network: Any) -> list[str]:
        """See `Framework`."""
        if not isinstance(network, _containers()):
            return []
        return [name for name, _ in network.named_children()]

    def layer(self, value: Any) -> Layer | None:
        """See `Framework`."""
        is_created = self.is_network_class(type(value)) and "_modules" in vars(value)
        if not is_created:  # or not yet, in its `__new__`
            return None
        state = value.parameters(recurse=False), value.buffers(recurse=False)
        if next(chain(value.children(), *state), None) is not None:
            return None
        return Layer(type(value), value.extra_repr())

    def follows_mode(self, network: Any) -> bool:
        """See `Framework`."""
        before = {module: module.training for module in network.modules()}
        network.train()
        follow = all(module.training for module in before)
        for module, mode in before.items():
            module.training = mode
        return follow

    def parameters(self, network: Any) -> list[str]:
        """See `Framework`."""
        names = [name for name, _ in network.named_parameters()]
        return sorted(names, key=lambda name: name.count("."))

    def frozen(self, network: Any) -> list[str]:
        """See `Framework`; those of whole numbers are buffers here."""
        parameters = network.named_parameters()
        return [name for name, one in parameters if _is_frozen(one)]

    def unsaved(self, network: Any) -> dict[str, Any]:
        """See `Framework`; None for a buffer that it does not have."""
        attributes = vars(network)
        names = attributes["_non_persistent_buffers_set"]
        return {name: attributes["_buffers"][name] for name in names}

    def masking(self, call: Call) -> dict[str, str]:
        """See `Framework`."""
        return call.bound("input p=0.5 training=True inplace")


def _is_frozen(parameter: Any) -> bool:
    return parameter.is_floating_point() and not parameter.requires_grad


def _containers() -> Any:
    nn = sys.modules["torch"].nn
    return nn.Sequential, nn.ModuleList, nn.ModuleDict
