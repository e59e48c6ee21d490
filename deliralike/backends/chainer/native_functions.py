"""Chainer's own functions, and methods of variables that call them, as functions of `nn`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from deliralike.backends import held_functions
from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import Variable, chainer
from deliralike.backends.native_calls import Around, Follower, Given, Neutral, call_of, product_of

Row = Callable[..., Neutral | None]


@contextmanager
def called_through(blocks: Iterable[Any], around: Around) -> Iterator[None]:
    """Let `around` make this thread's calls of Chainer's functions, in a ``with`` block.

    Args:
        blocks: Those of the network: functions may be their attributes.
        around: As in `Backend.native_functions_called_through`.
    """
    follower = Follower(around, arrays.is_array)
    spaces = (chainer.functions, Variable)
    with held_functions.called_through(follower, _known(), blocks, spaces):
        yield


@cache
def _known() -> dict[int, tuple[Any, Callable[..., Any]]]:
    table: dict[Any, tuple[str, Row | None]] = {}
    for name, row in _ROWS.items():
        function = getattr(chainer.functions, name, None)
        if function is not None:
            table[function] = (f"chainer.functions.{name}", row)
    table[Variable.__matmul__] = ("chainer.Variable.matmul", _matmul)
    return held_functions.followers(table)


# The table
# -----------------------------------------------------------------------------


def _element(name: str, x: Given) -> Neutral:
    return call_of(name, x=x)


def _leaky_relu(x: Given, slope: float = 0.2) -> Neutral:
    return call_of("leaky_relu", x=x, negative_slope=slope)


def _elu(x: Given, alpha: float = 1.0) -> Neutral:
    return call_of("elu", x=x, alpha=alpha)


def _clip(x: Given, x_min: float, x_max: float) -> Neutral:
    return call_of("clip", x=x, low=x_min, high=x_max)


def _clipped_relu(x: Given, z: float = 20.0) -> Neutral:
    return call_of("relu6", x=x) if z == 6.0 else call_of("clip", x=x, low=0.0, high=z)


def _prelu(x: Given, W: Given) -> Neutral:
    return call_of("prelu", x=x, weight=W)


def _softplus(x: Given, beta: float = 1.0) -> Neutral | None:
    return call_of("softplus", x=x) if beta == 1 else None


def _softmax(name: str, x: Given, axis: int = 1) -> Neutral:
    return call_of(name, x=x, dim=axis)


def _where(condition: Given, x: Any, y: Any) -> Neutral:
    return call_of("where", condition=condition, x=x, y=y)


def _sum(x: Given, axis: Any = None, keepdims: bool = False) -> Neutral:
    return call_of("sum", x=x, dim=axis, keepdim=keepdims)


def _mean(
    x: Given, axis: Any = None, weights: Any = None, keepdims: bool = False
) -> Neutral | None:
    return call_of("mean", x=x, dim=axis, keepdim=keepdims) if weights is None else None


def _max(x: Given, axis: Any = None, keepdims: bool = False) -> Neutral | None:
    return call_of("max_along", x=x, dim=axis, keepdim=keepdims) if isinstance(axis, int) else None


def _matmul(a: Given, b: Given, transa: bool = False, transb: bool = False) -> Neutral | None:
    if transa or transb or min(a.ndim, b.ndim) < 2:
        return None
    return call_of("matmul", x=a, y=b)


def _batch_matmul(a: Given, b: Given, transa: bool = False, transb: bool = False) -> Neutral | None:
    return _matmul(a, b, transa, transb) if a.ndim == b.ndim == 3 else None


def _einsum(equation: str, *operands: Given) -> Neutral | None:
    if not isinstance(equation, str):
        return None
    return product_of(equation, operands, chainer.functions.transpose)


def _linear(x: Given, W: Given, b: Given | None = None, n_batch_axes: int = 1) -> Neutral | None:
    if n_batch_axes != x.ndim - 1:
        return None  # it flattens
    return call_of("linear", x=x, weight=W, bias=b)


def _conv(
    rank: int | None,
    x: Given,
    W: Given,
    b: Given | None = None,
    stride: Any = 1,
    pad: Any = 0,
    cover_all: bool = False,
    dilate: Any = 1,
    groups: int = 1,
) -> Neutral | None:
    if cover_all or (rank is not None and x.ndim != rank + 2):
        return None
    settings = {"stride": stride, "padding": pad, "dilation": dilate, "groups": groups}
    return call_of("conv", x=x, weight=W, bias=b, **settings)


def _conv_transpose(
    x: Given,
    W: Given,
    b: Given | None = None,
    stride: Any = 1,
    pad: Any = 0,
    outsize: Any = None,
    dilate: Any = 1,
    groups: int = 1,
) -> Neutral | None:
    if outsize is not None:
        return None
    settings = {"stride": stride, "padding": pad, "dilation": dilate, "groups": groups}
    return call_of("conv_transpose", x=x, weight=W, bias=b, **settings)


def _max_pool(
    x: Given,
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


def _leaves_over(x: Given, ksize: Any, stride: Any, pad: Any) -> bool | None:
    """Return whether windows do not fit; None where one more would begin within the padding."""
    rank = x.ndim - 2
    windows = (_each(one, rank) for one in (ksize, ksize if stride is None else stride, pad))
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
    x: Given, ksize: Any, stride: Any = None, pad: Any = 0, pad_value: Any = 0
) -> Neutral | None:
    settings = {"kernel_size": ksize, "stride": stride, "padding": pad}
    return call_of("avg_pool", x=x, **settings, count_include_pad=pad_value is not None)


def _fixed_batch_norm(
    x: Given,
    gamma: Given,
    beta: Given,
    mean: Given,
    var: Given,
    eps: float = 2e-5,
    axis: Any = None,
) -> Neutral | None:
    if axis is not None:
        return None
    return call_of("batch_norm", x=x, mean=mean, var=var, weight=gamma, bias=beta, eps=eps)


def _layer_norm(x: Given, gamma: Given, beta: Given, eps: float = 1e-5) -> Neutral | None:
    shape = x.shape[1:]
    if len(shape) != 1:
        return None
    return call_of("layer_norm", x=x, normalized_shape=shape, weight=gamma, bias=beta, eps=eps)


def _group_norm(x: Given, groups: int, gamma: Given, beta: Given, eps: float = 1e-5) -> Neutral:
    return call_of("group_norm", x=x, num_groups=groups, weight=gamma, bias=beta, eps=eps)


def _embedding(x: Given, W: Given, ignore_label: int | None = None) -> Neutral | None:
    return call_of("embedding", index=x, weight=W) if ignore_label is None else None


def _resize(
    x: Given, output_shape: Any, *, mode: str = "bilinear", align_corners: bool = True
) -> Neutral | None:
    if mode != "bilinear":
        return None
    size = tuple(output_shape)
    return call_of("interpolate", x=x, size=size, mode="linear", align_corners=align_corners)


def _cross_entropy(
    x: Given,
    t: Given,
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
        "cross_entropy", logits=x, target=t, ignore_index=ignore_label, reduction=reduction
    )


def _distance(name: str, x0: Given, x1: Given) -> Neutral | None:
    return call_of(name, prediction=x0, target=x1) if x0.shape == x1.shape else None


def _concatenate(xs: Any, axis: int = 1) -> Neutral:
    return call_of("concatenate", arrays=list(xs), dim=axis)


def _stack(xs: Any, axis: int = 0) -> Neutral:
    return call_of("stack", arrays=list(xs), dim=axis)


def _reshape(x: Given, shape: Any) -> Neutral:
    return call_of("reshape", x=x, shape=tuple(shape))


def _flatten(x: Given) -> Neutral:
    return call_of("reshape", x=x, shape=(-1,))


def _permute(x: Given, axes: Any = None) -> Neutral:
    dims = tuple(reversed(range(x.ndim))) if axes is None else tuple(axes)
    return call_of("permute", x=x, dims=dims)


def _swapaxes(x: Given, axis1: int, axis2: int) -> Neutral:
    return call_of("transpose", x=x, dim0=axis1, dim1=axis2)


def _squeeze(x: Given, axis: Any = None) -> Neutral | None:
    return call_of("squeeze", x=x, dim=axis) if isinstance(axis, int) else None


def _expand_dims(x: Given, axis: int) -> Neutral:
    return call_of("expand_dims", x=x, dim=axis)


def _flip(x: Given, axis: Any) -> Neutral | None:
    return call_of("flip", x=x, dims=axis) if isinstance(axis, int) else None


def _broadcast_to(x: Given, shape: Any) -> Neutral:
    return call_of("broadcast_to", x=x, shape=tuple(shape))


def _pad(x: Given, pad_width: Any, mode: str, constant_values: float = 0.0) -> Neutral | None:
    if mode != "constant" or isinstance(pad_width, int):
        return None
    pairs = [tuple(pair) for pair in pad_width]
    return call_of("pad", x=x, pad=pairs, value=constant_values)


_ROWS: dict[str, Row | None] = {
    **{name: partial(_element, name) for name in ("relu", "relu6", "sigmoid", "tanh")},
    **{name: partial(_element, name) for name in ("exp", "log", "sqrt", "sin", "cos", "erf")},
    **{name: partial(_softmax, name) for name in ("softmax", "log_softmax")},
    **{f"convolution_{rank}d": partial(_conv, rank) for rank in (1, 2, 3)},
    **{f"deconvolution_{rank}d": _conv_transpose for rank in (1, 2, 3)},
    **{f"max_pooling_{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"average_pooling_{rank}d": _avg_pool for rank in (1, 2, 3)},
    "absolute": partial(_element, "abs"),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "clip": _clip,
    "clipped_relu": _clipped_relu,
    "prelu": _prelu,
    "softplus": _softplus,
    "where": _where,
    "sum": _sum,
    "mean": _mean,
    "average": _mean,
    "max": _max,
    "matmul": _matmul,
    "batch_matmul": _batch_matmul,
    "einsum": _einsum,
    "linear": _linear,
    "convolution_nd": partial(_conv, None),
    "deconvolution_nd": _conv_transpose,
    "max_pooling_nd": _max_pool,
    "average_pooling_nd": _avg_pool,
    "fixed_batch_normalization": _fixed_batch_norm,
    "layer_normalization": _layer_norm,
    "group_normalization": _group_norm,
    "embed_id": _embedding,
    "resize_images": _resize,
    "softmax_cross_entropy": _cross_entropy,
    "mean_squared_error": partial(_distance, "mse_loss"),
    "mean_absolute_error": partial(_distance, "l1_loss"),
    "concat": _concatenate,
    "stack": _stack,
    "reshape": _reshape,
    "flatten": _flatten,
    "transpose": _permute,
    "swapaxes": _swapaxes,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "flip": _flip,
    "broadcast_to": _broadcast_to,
    "pad": _pad,
    # without a partner in `nn`
    **dict.fromkeys(("batch_normalization", "bilinear", "cosine_similarity", "crelu", "cumprod")),
    **dict.fromkeys(("cumsum", "depth2space", "dropout", "hard_sigmoid", "hinge", "huber_loss")),
    **dict.fromkeys(("local_response_normalization", "log1p", "logsumexp", "maximum", "maxout")),
    **dict.fromkeys(("min", "minimum", "normalize", "prod", "rsqrt", "selu")),
    **dict.fromkeys(("sigmoid_cross_entropy", "space2depth", "square", "squared_error", "swish")),
    **dict.fromkeys(("tensordot", "unpooling_2d")),
}
