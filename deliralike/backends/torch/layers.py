"""PyTorch's own layers, with portable start values and errors that name the layer's path."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from deliralike.backends.torch import arrays, unstable
from deliralike.backends.torch.functional import unambiguous
from deliralike.backends.torch.network import AbstractTorchNetwork
from deliralike.backends.torch.random import draws_by_key, draws_portably
from deliralike.backends.torch.replicas.batch_norm import move_statistics
from deliralike.network.construction import current_construction
from deliralike.nn import checks
from deliralike.nn.layers import LAYERS, guard
from deliralike.nn.start import ONES, ZEROS, Constant, Normal, fan_in_uniform


def _options() -> dict[str, Any]:
    """Return type and device of the network under construction, as keywords."""
    construction = current_construction()
    assert (
        construction is not None
    )  # layers are made inside of a network's construction
    return {
        "dtype": arrays.find_dtype(construction.dtype),
        "device": construction.device,
    }


def _accept(*args: Any, **kwargs: Any) -> None:
    """Accept any settings: the check of a layer that has none of its own."""


def _start_values(layer: torch.nn.Module) -> dict[str, Any]:
    """Return PyTorch's default distributions for a layer, by parameter."""
    if isinstance(layer, torch.nn.Embedding):
        return {"weight": Normal(zero_row=layer.padding_idx)}
    if isinstance(layer, torch.nn.PReLU):
        return {"weight": Constant(layer.init)}
    if isinstance(layer, torch.nn.Linear) or unstable.is_convolution(layer):
        start = fan_in_uniform(layer.weight[0].numel())
        return {"weight": start, "bias": start}
    return {"weight": ONES, "bias": ZEROS}


class _Native(AbstractTorchNetwork):
    """The base of PyTorch's layers with the arguments of `nn`; construction draws nothing random.

    `written_once` is the layer of `nn` with the same name, whose checks and rules hold here too.

    Attributes:
        borrowed: Names of methods that are those of `written_once`.
    """

    written_once: ClassVar[Any]
    borrowed: ClassVar[tuple[str, ...]] = ()
    takes_options = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        getattr(self.written_once, "check_settings", _accept)(*args, **kwargs)
        options = _options() if self.takes_options else {}
        super(AbstractTorchNetwork, self).__init__(*args, **kwargs, **options)
        if getattr(self, "inplace", False):
            self.inplace = (
                False  # the input may be read again: on every backend it means the same
            )

    def reset_parameters(self) -> None:
        construction = current_construction()
        if construction is None:
            super().reset_parameters()  # PyTorch's tools may ask for new values later
            return
        for name, start in _start_values(self).items():
            if getattr(self, name, None) is not None:
                construction.declare(getattr(self, name), start)
        if hasattr(self, "reset_running_stats"):
            self.reset_running_stats()


# PyTorch refuses most wrong inputs itself. So the checks, which name the layer and say what to do,
# come after its error, or where it would take what other backends do not; compiled programs make
# them once, as they are traced.


class _Conv(_Native):
    def forward(self, x):
        is_usual = len(x.shape) == self.n + 2 and x.shape[1] == self.in_channels
        if not is_usual or torch.compiler.is_compiling():
            self.written_once.check_input(self, x)
        try:
            return self._conv_forward(x, self.weight, self.bias)
        except (RuntimeError, TypeError):
            arrays.refuse_host_array(x, checks.where(self))
            self.written_once.check_input(self, x)
            raise

    def _conv_forward(self, x, weight, bias):
        if (
            self.padding == "same" and self.padding_mode == "zeros"
        ):  # PyTorch warns of the copy that an even kernel needs
            return self.nn.conv(
                x, weight, bias, self.stride, self.padding, self.dilation, self.groups
            )
        return super()._conv_forward(x, weight, bias)


class _ConvTranspose(_Native):
    borrowed = ("forward", "check_input", "extra_for")


class _Norm(_Native):
    def forward(self, x):
        if len(x.shape) != self.n + 2 or x.shape[1] != self.num_features:
            is_without_length = self.n == 1 and len(x.shape) <= 2
            checks.channels(
                self, x, self.num_features, None if is_without_length else self.n
            )
        if self.training or not self.track_running_stats:
            replica = self.written_once.replica(self)
            if replica is not None:
                return self._over_replicas(x, replica)
            if x.numel() <= self.num_features:
                checks.several_values(self, x)
        rows = unambiguous(x)
        try:
            y = super().forward(rows)
        except RuntimeError:
            checks.floating(self, x)
            raise
        return y if rows is x else y.reshape(x.shape)

    def _check_input_dim(self, x):
        """`forward` has checked the axes."""

    def _over_replicas(self, x, replica):
        y, mean, var, count = self.written_once.over_replicas(self, x, replica)
        if self.training and self.track_running_stats:
            move_statistics(self, mean, var, count)
        return y


class _InstanceNorm(_Native):
    """PyTorch's layer by its class and state, whose forward pass is the one written once."""

    borrowed = (
        "forward",
        "replica",
        "_share",
        "_update",
        "_by_running_statistics",
        "_mean_of_samples",
    )


class _GroupNorm(_Native):
    def forward(self, x):
        checks.channels(self, x, self.num_channels)
        return super().forward(x)


class _PReLU(_Native):
    def forward(self, x):
        self.written_once.check_input(self, x)
        return super().forward(x)


class _OnLastAxes(_Native):
    """A layer of the last axes of its input, whose sizes it knows."""

    def last_sizes(self):
        raise NotImplementedError

    def forward(self, x):
        if torch.compiler.is_compiling():
            checks.last_axes(self, x, self.last_sizes())
        try:
            return super().forward(x)
        except (RuntimeError, TypeError):
            arrays.refuse_host_array(x, checks.where(self))
            checks.last_axes(self, x, self.last_sizes())
            raise


class _Linear(_OnLastAxes):
    def last_sizes(self):
        return (self.in_features,)


class _LayerNorm(_OnLastAxes):
    def last_sizes(self):
        return self.normalized_shape


class _Embedding(_Native):
    def forward(self, index):
        checks.whole_numbers(index, checks.where(self))
        self.nn.checked(index, checks.InRange(self.num_embeddings, checks.where(self)))
        return super().forward(index)


class _Plain(_Native):
    takes_options = False


class _OfFloats(_Plain):
    """A function of floating numbers; PyTorch takes whole ones, too, for some."""

    def forward(self, x):
        checks.floating(self, x)
        return super().forward(x)


class _Dropout(_Native):
    """PyTorch's dropout; in ``random.portable`` and in a replica, the dropout written once."""

    borrowed = ("check_settings", "check_input", "mask_shape", "dropped")
    takes_options = False
    draws_masks = True

    def forward(self, x: Any, p: float | None = None) -> Any:
        self.check_input(x)
        if not self.training or self.p == 0 and p is None:
            return x
        # inductor draws other masks
        draws_itself = p is None and not torch.compiler.is_compiling()
        if draws_itself and not draws_portably() and not draws_by_key():
            return super().forward(x)
        return self.written_once.forward(self, x, p)


class _Sequential(_Plain):
    def __init__(self, *blocks: Any) -> None:
        if len(blocks) == 1 and isinstance(blocks[0], Mapping):
            blocks = (OrderedDict(blocks[0]),)  # PyTorch asks for this class
        super().__init__(*blocks)


def _native(base: Any, name: str, **attributes: Any) -> type:
    """Make a class of PyTorch's layer of that name and a base of this file."""
    written_once = LAYERS[name]
    attributes |= {method: getattr(written_once, method) for method in base.borrowed}
    attributes |= {
        "__module__": __name__,
        "__doc__": written_once.__doc__,
        "written_once": written_once,
    }
    layer = type(base)(name, (base, getattr(torch.nn, name)), attributes)
    guard(layer, written_once.__module__)
    return layer


_PLAIN = ("ReLU", "Identity", "ModuleList", "ModuleDict")
_OF_FLOATS = (
    "ReLU6",
    "LeakyReLU",
    "ELU",
    "SiLU",
    "GELU",
    "Hardswish",
    "Sigmoid",
    "Tanh",
    "SELU",
    "Mish",
    "LogSigmoid",
    "Softsign",
    "Tanhshrink",
    "Hardshrink",
    "Softshrink",
    "Threshold",
)

_OF_SEVERAL_RANKS = {
    "Conv": _Conv,
    "ConvTranspose": _ConvTranspose,
    "BatchNorm": _Norm,
    "InstanceNorm": _InstanceNorm,
    "Dropout": _Dropout,
}
_OTHERS = {
    "Dropout": _Dropout,
    "Sequential": _Sequential,
    "Linear": _Linear,
    "Embedding": _Embedding,
    "GroupNorm": _GroupNorm,
    "LayerNorm": _LayerNorm,
    "PReLU": _PReLU,
}
_BASES = dict.fromkeys(_PLAIN, _Plain) | dict.fromkeys(_OF_FLOATS, _OfFloats) | _OTHERS
NATIVE = {name: _native(base, name) for name, base in _BASES.items()}
for _kind, _base in _OF_SEVERAL_RANKS.items():
    for _n in (1, 2, 3):
        NATIVE[f"{_kind}{_n}d"] = _native(_base, f"{_kind}{_n}d", n=_n)
globals().update(NATIVE)  # by name, so that pickle finds them
