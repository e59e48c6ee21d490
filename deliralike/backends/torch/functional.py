"""The functions of `nn` on tensors: PyTorch's own wherever it has one."""

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from threading import local
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from deliralike.backends.torch import arrays, unstable
from deliralike.backends.torch.random import (
    draws_by_key,
    draws_portably,
    keyed_numbers,
    native_numbers,
    portable_numbers,
)
from deliralike.network.construction import require_construction
from deliralike.nn import checks, geometry
from deliralike.nn.functional import Functions
from deliralike.nn.means import mean_over
from deliralike.nn.primitives import axis_of, of_one_array
from deliralike.nn.windows import _resizing

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def _avg_pool3d(x: torch.Tensor, *settings: Any) -> torch.Tensor:
    """Average over volumes; on the host PyTorch (2.13) has no such kernel for 16 bits."""
    if x.is_cpu and x.element_size() == 2:
        return F.avg_pool3d(x.float(), *settings).to(x.dtype)
    return F.avg_pool3d(x, *settings)


_AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: _avg_pool3d}
_ADAPTIVE_AVG = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}
_WHOLE = frozenset(
    getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
)
_NO_LABEL = -(
    2**62
)  # PyTorch's kernel looks whether each label is a class unless it is ignored
_LINEAR_MODE = {1: "linear", 2: "bilinear", 3: "trilinear"}


class _Gradient(local):
    """Whether a thread is in a function of which `gradient` is taken; dynamo can read it."""

    is_taken = False


_gradient = _Gradient()


class TorchFunctions(Functions):
    """The functions of `nn` on tensors."""

    argument_errors = Functions.argument_errors | {RuntimeError}
    takes_host_arrays = False

    # Parameters

    def Parameter(self, shape, start):
        construction = require_construction("a parameter")
        options = {
            "dtype": arrays.find_dtype(construction.dtype),
            "device": construction.device,
        }
        if isinstance(start, np.ndarray):
            return torch.nn.Parameter(torch.tensor(start, **options))
        return construction.declare(
            torch.nn.Parameter(torch.zeros(tuple(shape), **options)), start
        )

    def Buffer(self, value):
        if value is None:
            return None
        construction = require_construction("a buffer")
        value = np.asarray(value)
        name = construction.dtype if value.dtype.kind == "f" else None
        return torch.nn.Buffer(arrays.tensor(value, name, construction.device))

    # Arrays

    def constant(self, value, like):
        # A copy, as PyTorch would share memory and refuse negative strides; in double precision, as
        # it would take a number in single; a tensor first, as dynamo cannot ask NumPy for the type.
        value = torch.as_tensor(np.array(value), device=like.device)
        if value.is_floating_point() and like.is_floating_point():
            return value.to(like.dtype)
        return value

    def arange(self, start, end=None, step=1, *, like):
        # by PyTorch, so that a traced program counts what it is called with
        start, end = (0, start) if end is None else (start, end)
        is_whole = not any(isinstance(number, float) for number in (start, end, step))
        dtype = torch.int64 if is_whole else torch.float64
        numbers = torch.arange(start, end, step, dtype=dtype, device=like.device)
        if like.is_floating_point() and not is_whole:
            return numbers.to(like.dtype)
        return numbers

    def zeros(self, shape, like):
        return torch.zeros(tuple(shape), dtype=like.dtype, device=like.device)

    def cast(self, x, dtype):
        return x.to(arrays.find_dtype(dtype) if isinstance(dtype, str) else dtype.dtype)

    def stop_gradient(self, x):
        return x.detach()

    def concrete(self, x):
        if not _is_on_host(x):
            return None
        try:
            return x.detach().numpy()
        except (RuntimeError, TypeError):  # within torch.func, or of bfloat16
            return None

    # Losses

    def cross_entropy(
        self,
        logits,
        target,
        weight=None,
        ignore_index=-100,
        reduction="mean",
        label_smoothing=0.0,
    ):
        """Use PyTorch's kernels where they follow the neutral rule: they take half the time.

        Not in float16, in which they add up losses of many positions beyond its largest number.
        """
        is_plain = (
            weight is None and not label_smoothing and reduction in ("mean", "sum")
        )
        may_overflow = logits.dtype == torch.float16
        if is_plain and not may_overflow and target.dtype in _WHOLE:
            if not _is_on_host(target):
                self._check_label_shape(logits, target)
                loss = _cross_entropy(logits, target, ignore_index, reduction)
                return mean_over(lambda: (target != ignore_index).sum(), loss)
            has_axes = 1 < logits.ndim == target.ndim + 1 and target.numel() > 0
            if has_axes and ignore_index < 0:
                # a label that is no class, or a wrong size: what follows ignores or refuses it
                with suppress(IndexError, ValueError, RuntimeError):
                    loss = F.cross_entropy(
                        logits,
                        target.long(),
                        ignore_index=_NO_LABEL,
                        reduction=reduction,
                    )
                    return mean_over(lambda: float(target.numel()), loss)
        return super().cross_entropy(
            logits, target, weight, ignore_index, reduction, label_smoothing
        )

    # Element by element

    exp = of_one_array(torch.exp)
    log = of_one_array(torch.log)
    sqrt = of_one_array(torch.sqrt)
    sin = of_one_array(torch.sin)
    cos = of_one_array(torch.cos)
    tanh = of_one_array(torch.tanh)
    erf = of_one_array(torch.erf)
    sigmoid = of_one_array(torch.sigmoid)

    def exact_softplus(self, x):
        # The threshold is the last one before overflow; PyTorch's own, 20, is inexact. The second
        # derivative of torch.logaddexp is NaN where exp overflows.
        largest = math.log(torch.finfo(x.dtype).max)
        return F.softplus(x, threshold=math.floor(largest))

    def relu(self, x, inplace=False):
        return F.relu(x)

    abs = of_one_array(torch.abs)
    floor = of_one_array(torch.floor)
    atan = of_one_array(torch.atan)

    def fmod(self, x, other):
        return torch.fmod(x, other)

    log1p = of_one_array(torch.log1p)
    expm1 = of_one_array(torch.expm1)
    erfc = of_one_array(torch.erfc)

    def where(self, condition, x, y):
        return torch.where(condition, x, y)

    # Reductions

    def sum(self, x, dim=None, keepdim=False):
        return x if _has_no_axes(dim) else torch.sum(x, dim, keepdim)

    def mean(self, x, dim=None, keepdim=False):
        return x if _has_no_axes(dim) else torch.mean(x, dim, keepdim)

    def max_along(self, x, dim, keepdim=False):
        return torch.max(x, dim, keepdim).values

    def argmax_along(self, x, dim):
        return torch.argmax(x, dim)

    def log_softmax(self, x, dim):
        dim = axis_of(dim, x.dim())
        if x.is_cpu and x.dtype == torch.float16:  # which adds in 16 bits there
            return F.log_softmax(x.float(), dim).half()
        return F.log_softmax(x, dim)

    # Shapes

    def reshape(self, x, shape):
        return torch.reshape(x, tuple(shape))

    def flatten(self, x, start_dim=1, end_dim=-1):
        return torch.flatten(x, start_dim, end_dim)

    def permute(self, x, dims):
        return torch.permute(x, tuple(dims))

    def broadcast_to(self, x, shape):
        return torch.broadcast_to(x, tuple(shape))

    def concatenate(self, arrays, dim=0):
        return torch.cat(list(arrays), dim)

    def pad_constant(self, x, pads, value=0.0):
        # F.pad begins with the last axis
        return F.pad(x, list(chain.from_iterable(reversed(pads))), value=value)

    def flip_along(self, x, dim):
        return torch.flip(x, (dim,))

    def select(self, x, index, dim):
        dim = dim % x.dim()
        flat = torch.index_select(x, dim, _positions(index).reshape(-1))
        if index.dim() == 1:
            return flat
        return flat.reshape(*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])

    def select_along(self, x, index, dim):
        return torch.gather(x, dim, _positions(index))

    def scatter_add(self, x, dim, index, src):
        return torch.scatter_add(x, dim, _positions(index), src)

    def argsort_along(self, x, dim):
        if torch.onnx.is_in_onnx_export():
            # it has no stable sort; what this becomes there, TopK, keeps the order of equals
            return torch.sort(x, dim)[1]
        return torch.argsort(x, dim=dim, stable=True)

    def cumsum(self, x, dim):
        return torch.cumsum(x, dim)

    def roll(self, x, shifts, dims):
        return torch.roll(x, shifts, dims)

    def stack(self, arrays, dim=0):
        return torch.stack(list(arrays), dim)

    # Products and windows

    def matmul(self, x, y):
        return torch.matmul(x, y)

    def einsum(self, equation, *arrays):
        return torch.einsum(equation, *arrays)

    def linear(self, x, weight, bias=None):
        return F.linear(x, weight, bias)

    def convolve(self, x, weight, stride, pads, dilation, groups):
        if any(before != after or before < 0 for before, after in pads):
            x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
            pads = ((0, 0),) * len(pads)
        padding = [before for before, _ in pads]
        return _CONV[len(pads)](x, weight, None, stride, padding, dilation, groups)

    def conv(
        self,
        x,
        weight,
        bias=None,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
    ):
        if padding == "same":
            return super().conv(x, weight, bias, stride, padding, dilation, groups)
        return _CONV[x.dim() - 2](x, weight, bias, stride, padding, dilation, groups)

    def convolve_transposed(
        self, x, weight, stride, padding, output_padding, dilation, groups
    ):
        return _CONV_TRANSPOSE[x.dim() - 2](
            x, weight, None, stride, padding, output_padding, groups, dilation
        )

    def _add_bias(self, y, bias):
        # under autocast y is of a half type, and the bias is not
        return super()._add_bias(y, None if bias is None else bias.to(y.dtype))

    def max_windows(self, x, kernel, stride, pads, dilation):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads), -torch.inf)
        return _MAX_POOL[len(pads)](x, tuple(kernel), tuple(stride), 0, tuple(dilation))

    def max_pool(
        self,
        x,
        kernel_size,
        stride=None,
        padding=0,
        dilation=1,
        ceil_mode=False,
        return_indices=False,
    ):
        n = x.dim() - 2
        if dilation != 1 or return_indices:
            # windows of padding alone are refused: PyTorch writes anywhere for them
            settings = geometry.pool_settings(n, kernel_size, stride, padding, dilation)
            geometry.pool_pads_per_axis(x.shape[2:], settings, ceil_mode)
        return _MAX_POOL[n](
            x,
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            return_indices=return_indices,
        )

    def sum_windows(self, x, kernel, stride, pads):
        x = self.pad_constant(x, ((0, 0), (0, 0), *pads))
        return _AVG_POOL[len(pads)](x, tuple(kernel), tuple(stride)) * float(
            np.prod(kernel)
        )

    def avg_pool(
        self,
        x,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        settings = (kernel_size, stride, padding, ceil_mode, count_include_pad)
        if divisor_override is not None:
            return super().avg_pool(x, *settings, divisor_override)
        return _AVG_POOL[x.dim() - 2](x, *settings)

    def adaptive_avg_pool(self, x, output_size):
        return _ADAPTIVE_AVG[x.dim() - 2](x, output_size)

    def interpolate(
        self,
        x,
        size=None,
        scale_factor=None,
        mode="nearest",
        align_corners=None,
        recompute_scale_factor=None,
        antialias=False,
    ):
        sizes, scales = self._new_size(x, size, scale_factor)
        kind = _resizing(mode, x.dim() - 2, bool(align_corners), antialias)
        # PyTorch has the derivative of another function where a scale changes no size
        may_differ = kind == "cubic" or antialias
        may_keep_size = any(scale is not None and 1 < scale < 2 for scale in scales)
        is_other = may_differ and may_keep_size and sizes == tuple(x.shape[2:])
        if kind in ("linear", "cubic") and not is_other:
            native = "bicubic" if kind == "cubic" else _LINEAR_MODE[x.dim() - 2]
            settings = (native, bool(align_corners), recompute_scale_factor, antialias)
            return F.interpolate(x, size, scale_factor, *settings)
        if kind == "nearest" and all(
            map(geometry.exact_step, x.shape[2:], sizes, scales)
        ):
            return F.interpolate(x, sizes, mode="nearest")
        settings = (mode, align_corners, recompute_scale_factor, antialias)
        return super().interpolate(x, size, scale_factor, *settings)

    # Activations and norms

    def relu6(self, x, inplace=False):
        return F.relu6(x)

    def leaky_relu(self, x, negative_slope=0.01, inplace=False):
        return F.leaky_relu(x, negative_slope)

    def prelu(self, x, weight):
        return F.prelu(x, weight)

    def elu(self, x, alpha=1.0, inplace=False):
        return F.elu(x, alpha)

    def silu(self, x, inplace=False):
        return F.silu(x)

    def gelu(self, x, approximate="none"):
        if approximate not in ("none", "tanh"):
            return super().gelu(x, approximate)  # raises the error
        return F.gelu(x, approximate=approximate)

    def hardswish(self, x, inplace=False):
        return F.hardswish(x)

    def softmax(self, x, dim):
        return F.softmax(x, axis_of(dim, x.dim()))

    def batch_norm(self, x, mean, var, weight=None, bias=None, eps=1e-5):
        if (
            mean.requires_grad or var.requires_grad
        ):  # PyTorch's kernel has no gradients for them
            return super().batch_norm(x, mean, var, weight, bias, eps)
        rows = unambiguous(x)
        return F.batch_norm(rows, mean, var, weight, bias, False, 0.0, eps).reshape(
            x.shape
        )

    def batch_norm_train(self, x, weight=None, bias=None, eps=1e-5):
        dims = (0, *range(2, x.dim()))
        y = F.batch_norm(
            unambiguous(x), None, None, weight, bias, True, 0.0, eps
        ).reshape(x.shape)
        return y, self.mean(x, dims), self.var(x, dims, correction=0)

    def group_norm(self, x, num_groups, weight=None, bias=None, eps=1e-5):
        checks.divides(x.shape[1], num_groups, "group_norm: channels", "num_groups")
        if weight is None and bias is not None:  # PyTorch 2.13 has no derivative then
            return super().group_norm(x, num_groups, weight, bias, eps)
        return F.group_norm(x, num_groups, weight, bias, eps)

    def layer_norm(self, x, normalized_shape, weight=None, bias=None, eps=1e-5):
        return F.layer_norm(x, tuple(normalized_shape), weight, bias, eps)

    def attention(
        self,
        query,
        key,
        value,
        bias=None,
        weights_mask=None,
        scale=None,
        need_weights=True,
    ):
        # PyTorch's fused kernels have no second derivatives
        if need_weights or weights_mask is not None or _gradient.is_taken:
            return super().attention(
                query, key, value, bias, weights_mask, scale, need_weights
            )
        return F.scaled_dot_product_attention(
            query, key, value, bias, scale=scale
        ), None

    def lstm(
        self, x, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr=None
    ):
        if weight_hr is not None:
            parameters = (weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
            return super().lstm(x, hidden, cell, *parameters)
        arguments = _one_layer(weight_ih, weight_hh, bias_ih, bias_hh)
        y, h, c = torch.lstm(x, (hidden[None], cell[None]), *arguments)
        return y, h[0], c[0]

    def gru(self, x, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
        arguments = _one_layer(weight_ih, weight_hh, bias_ih, bias_hh)
        y, h = torch.gru(x, hidden[None], *arguments)
        return y, h[0]

    # Gradients and random masks

    def gradient(self, function, x):
        with torch.inference_mode(False), torch.enable_grad():
            # a node of its own, so that only the path through the argument counts
            argument = x.clone()
            if not argument.requires_grad:
                argument.requires_grad_()
            outer = _gradient.is_taken
            _gradient.is_taken = True
            try:
                value = function(argument)
            finally:
                _gradient.is_taken = outer
            checks.scalar(value, "gradient: the function's value")
            if not value.requires_grad:
                return torch.zeros_like(x)
            (gradient,) = torch.autograd.grad(
                value, argument, create_graph=True, materialize_grads=True
            )
            return gradient

    def prepare_rng(self, layer: Any) -> None:
        layer.draws_masks = True

    def draw(
        self,
        layer: Any,
        shape: Sequence[int],
        like: torch.Tensor,
        kind: str,
        p: float = 0.0,
    ) -> torch.Tensor:
        if draws_portably():
            return portable_numbers(layer.block_path, shape, like, kind, p)
        if draws_by_key():
            return keyed_numbers(shape, like, kind, p)
        return native_numbers(shape, like, kind, p)


def unambiguous(x: torch.Tensor) -> torch.Tensor:
    """Return images or volumes with an axis of length one with their positions along one axis.

    Others are returned as they are.

    PyTorch 2.13 on a CPU takes an array for channels last, or not, by the strides of such axes,
    which mean nothing. Where input and gradient then differ, batch norm reads the gradient in
    another order than it lies, and gives a wrong one. With three axes there is no such order.
    """
    is_ambiguous = x.dim() > 3 and 1 in x.shape and torch.is_grad_enabled()
    return x.flatten(2) if is_ambiguous else x


def _is_on_host(x: torch.Tensor) -> bool:
    """Return whether the values are at hand: they are not in a program that is traced."""
    if torch.compiler.is_compiling() or not x.is_cpu:
        return False
    return type(x) is torch.Tensor or not unstable.is_fake(x)


def _cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int, reduction: str
) -> torch.Tensor:
    """Compute the loss without a look at the labels; the mean over no labels is 0."""
    total = F.cross_entropy(
        logits, target.long(), ignore_index=ignore_index, reduction="sum"
    )
    if reduction == "sum":
        return total
    return total / (target != ignore_index).sum().clamp(min=1)


def _has_no_axes(dim: int | Sequence[int] | None) -> bool:
    """Return whether there are no axes to reduce; PyTorch would reduce all."""
    return isinstance(dim, Sequence) and not len(dim)


def _one_layer(*weights: torch.Tensor | None) -> tuple:
    """Return PyTorch's arguments for a recurrent layer in one direction, with time first."""
    present = [weight for weight in weights if weight is not None]
    has_biases = len(present) == 4
    training = (
        torch.is_grad_enabled()
    )  # what cuDNN needs of the forward pass for the backward pass
    layers, dropout, bidirectional, batch_first = 1, 0.0, False, False
    if present[0].is_cuda:
        present = _in_one_piece(present)
    return present, has_biases, layers, dropout, training, bidirectional, batch_first


def _in_one_piece(weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return weights one after the other in memory, as cuDNN wants them; it warns otherwise."""
    pieces = torch.cat([weight.reshape(-1) for weight in weights]).split(
        [weight.numel() for weight in weights]
    )
    return [
        piece.view(weight.shape) for piece, weight in zip(pieces, weights, strict=True)
    ]


def _positions(index):
    """Short whole numbers as int64, as PyTorch takes no others to index by."""
    return index.long() if index.dtype in _WHOLE else index
