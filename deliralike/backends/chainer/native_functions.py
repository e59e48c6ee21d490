"""Chainer's own functions, and methods of variables that call them, as functions of `nn`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.backends import replaced_functions
from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import Variable, chainer
from deliralike.backends.native_calls import (
    Follower,
    Interceptor,
    NativeArray,
    Neutral,
    Row,
    Rows,
    Table,
    along_one_axis,
    call_of,
    elementwise,
    product_of,
    renamed,
    unpartnered,
)


@contextmanager
def intercept_calls(blocks: Iterable[Any], interceptor: Interceptor) -> Iterator[None]:
    """Let `interceptor` make this thread's calls of Chainer's functions, in a ``with`` block.

    Args:
        blocks: Those of the network: functions may be their attributes.
        interceptor: As in `Backend.intercept_native_functions`.
    """
    follower = Follower(interceptor, arrays.is_array)
    spaces = (chainer.functions, Variable)
    with replaced_functions.intercept_calls(follower, _REPLACEMENTS, blocks, spaces):
        yield


@contextmanager
def in_float64() -> Iterator[None]:
    """Compute in float64 where float32 is said, or no type, in a ``with`` block."""
    create = Variable.__init__

    def widened(self: Any, data: Any = None, **settings: Any) -> None:
        if getattr(data, "dtype", None) == np.float32:
            data = data.astype(np.float64)
        create(self, data, **settings)

    settings = chainer.using_config("dtype", np.float64)
    unchecked = chainer.using_config(
        "type_check", False
    )  # some functions ask for float32
    with (
        settings,
        unchecked,
        replaced_functions.replaced_by_name({(Variable, "__init__"): widened}),
    ):
        yield


def _replacements() -> replaced_functions.Replacements:
    table: Table = {}
    for name, row in _ROWS.items():
        function = getattr(chainer.functions, name, None)
        if function is not None:
            table[function] = (f"chainer.functions.{name}", row)
    table[Variable.__matmul__] = ("chainer.Variable.matmul", _MATMUL)
    return replaced_functions.replacements_of(table)


# The table
# -----------------------------------------------------------------------------


def _clipped_relu(x: NativeArray, z: float = 20.0) -> Neutral:
    return call_of("relu6", x=x) if z == 6.0 else call_of("clamp", x=x, min=0.0, max=z)


def _einsum(equation: str, *operands: NativeArray) -> Neutral | None:
    return product_of(equation, operands, chainer.functions.transpose)


def _max_pool(
    x: NativeArray,
    ksize: Any,
    stride: Any = None,
    pad: Any = 0,
    cover_all: bool = True,
    return_indices: bool = False,
) -> Neutral | None:
    rounds_up = cover_all and _leaves_over(x, ksize, stride, pad)
    if return_indices or rounds_up is None:
        return None
    settings = {"kernel_size": ksize, "stride": stride, "padding": pad}
    return call_of("max_pool", x=x, **settings, ceil_mode=bool(rounds_up))


def _leaves_over(x: NativeArray, ksize: Any, stride: Any, pad: Any) -> bool | None:
    """Return whether windows do not fit; None where one more would begin within the padding."""
    rank = x.ndim - 2
    if stride is None:
        stride = ksize
    windows = (_each(one, rank) for one in (ksize, stride, pad))
    over = False
    for size, width, step, edge in zip(x.shape[2:], *windows, strict=True):
        rest = (size + 2 * edge - width) % step
        start = ((size + 2 * edge - width) // step + 1) * step
        if rest and start >= size + edge:
            return None
        over = over or bool(rest)
    return over


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _avg_pool(
    x: NativeArray, ksize: Any, stride: Any = None, pad: Any = 0, pad_value: Any = 0
) -> Neutral | None:
    settings = {"kernel_size": ksize, "stride": stride, "padding": pad}
    return call_of("avg_pool", x=x, **settings, count_include_pad=pad_value is not None)


def _layer_norm(
    x: NativeArray, gamma: NativeArray, beta: NativeArray, eps: float = 1e-5
) -> Neutral | None:
    shape = x.shape[1:]
    if len(shape) != 1:
        return None
    return call_of(
        "layer_norm", x=x, normalized_shape=shape, weight=gamma, bias=beta, eps=eps
    )


def _resize(
    x: NativeArray,
    output_shape: Any,
    *,
    mode: str = "bilinear",
    align_corners: bool = True,
) -> Neutral | None:
    if mode != "bilinear":
        return None
    size = tuple(output_shape)
    return call_of(
        "interpolate", x=x, size=size, mode="linear", align_corners=align_corners
    )


def _cross_entropy(
    x: NativeArray,
    t: NativeArray,
    normalize: bool = True,
    cache_score: bool = True,
    class_weight: Any = None,
    ignore_label: int = -1,
    reduce: str = "mean",
    enable_double_backprop: bool = False,
    soft_target_loss: str = "cross-entropy",
) -> Neutral | None:
    is_mean = reduce == "mean" and normalize
    if not t.is_whole or class_weight is not None or not (is_mean or reduce == "no"):
        return None
    reduction = "mean" if is_mean else "none"
    return call_of(
        "cross_entropy",
        logits=x,
        target=t,
        ignore_index=ignore_label,
        reduction=reduction,
    )


def _permute(x: NativeArray, axes: Any = None) -> Neutral:
    dims = tuple(reversed(range(x.ndim))) if axes is None else tuple(axes)
    return call_of("permute", x=x, dims=dims)


def _pad(
    x: NativeArray, pad_width: Any, mode: str, constant_values: float = 0.0
) -> Neutral | None:
    if mode != "constant" or isinstance(pad_width, int):
        return None
    pairs = [tuple(pair) for pair in pad_width]
    return call_of("pad", x=x, pad=pairs, value=constant_values)


def _shaped(name: str) -> Row:
    return renamed(name, "x shape")


def _along(name: str) -> Row:
    return renamed(name, "x axis=dim", axis=1)


def _convolution(rank: int | None) -> Row:
    return renamed(
        "conv",
        "x W=weight b=bias stride pad=padding cover_all dilate=dilation groups",
        {"cover_all": False},
        lambda x, **_: rank is None or x.ndim == rank + 2,
    )


def _product(when: Callable[[NativeArray, NativeArray], bool]) -> Row:
    return renamed(
        "matmul",
        "a=x b=y transa transb",
        {"transa": False, "transb": False},
        lambda a, b, **_: when(a, b),
    )


def _distance(name: str) -> Row:
    return renamed(
        name, "x0=prediction x1=target", when=lambda x0, x1: x0.shape == x1.shape
    )


_MATMUL = _product(lambda a, b: min(a.ndim, b.ndim) > 1)
_MEAN = renamed("mean", "x axis=dim weights keepdims=keepdim", {"weights": None})
_CONV_TRANSPOSE = renamed(
    "conv_transpose",
    "x W=weight b=bias stride pad=padding outsize dilate=dilation groups",
    {"outsize": None},
)
_ROWS: Rows = {
    **elementwise("relu relu6 sigmoid tanh exp log sqrt sin cos erf"),
    "softmax": _along("softmax"),
    "log_softmax": _along("log_softmax"),
    **{f"convolution_{rank}d": _convolution(rank) for rank in (1, 2, 3)},
    **{f"deconvolution_{rank}d": _CONV_TRANSPOSE for rank in (1, 2, 3)},
    **{f"max_pooling_{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"average_pooling_{rank}d": _avg_pool for rank in (1, 2, 3)},
    "absolute": renamed("abs", "x"),
    "leaky_relu": renamed("leaky_relu", "x slope=negative_slope", slope=0.2),
    "elu": renamed("elu", "x alpha"),
    "clip": renamed("clamp", "x x_min=min x_max=max"),
    "clipped_relu": _clipped_relu,
    "prelu": renamed("prelu", "x W=weight"),
    "softplus": renamed("softplus", "x beta", {"beta": 1}),
    "where": renamed("where", "condition x y"),
    "sum": renamed("sum", "x axis=dim keepdims=keepdim"),
    "mean": _MEAN,
    "average": _MEAN,
    "max": renamed("max_along", "x axis=dim keepdims=keepdim", when=along_one_axis),
    "matmul": _MATMUL,
    "batch_matmul": _product(lambda a, b: a.ndim == b.ndim == 3),
    "einsum": _einsum,
    "linear": renamed(
        "linear",
        "x W=weight b=bias n_batch_axes=",
        when=lambda x, n_batch_axes, **_: (
            n_batch_axes == x.ndim - 1
        ),  # else it flattens
        n_batch_axes=1,
    ),
    "convolution_nd": _convolution(None),
    "deconvolution_nd": _CONV_TRANSPOSE,
    "max_pooling_nd": _max_pool,
    "average_pooling_nd": _avg_pool,
    "fixed_batch_normalization": renamed(
        "batch_norm",
        "x gamma=weight beta=bias mean var eps axis",
        {"axis": None},
        eps=2e-5,
    ),
    "layer_normalization": _layer_norm,
    "group_normalization": renamed(
        "group_norm", "x groups=num_groups gamma=weight beta=bias eps"
    ),
    "embed_id": renamed(
        "embedding", "x=index W=weight ignore_label", {"ignore_label": None}
    ),
    "resize_images": _resize,
    "softmax_cross_entropy": _cross_entropy,
    "mean_squared_error": _distance("mse_loss"),
    "mean_absolute_error": _distance("l1_loss"),
    "concat": renamed("concatenate", "xs=arrays axis=dim", axis=1),
    "stack": renamed("stack", "xs=arrays axis=dim"),
    "reshape": _shaped("reshape"),
    "flatten": renamed("reshape", "x", shape=(-1,)),
    "transpose": _permute,
    "swapaxes": renamed("transpose", "x axis1=dim0 axis2=dim1"),
    "squeeze": renamed("squeeze", "x axis=dim", when=along_one_axis),
    "expand_dims": renamed("expand_dims", "x axis=dim"),
    "broadcast_to": _shaped("broadcast_to"),
    "pad": _pad,
    **unpartnered(
        "batch_normalization bilinear cosine_similarity crelu cumprod cumsum depth2space dropout "
        "flip hard_sigmoid hinge huber_loss local_response_normalization log1p logsumexp maximum "
        "maxout min minimum normalize prod rsqrt selu sigmoid_cross_entropy space2depth square "
        "squared_error swish tensordot unpooling_2d"
    ),
}

# Made at once: later a comparison may have put functions of its own in their places.
_REPLACEMENTS = _replacements()
