"""The functions of jax, flax.nnx and optax, and methods of arrays, as functions of `nn`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.tracers import current_jax_trace
from jax import lax

from deliralike.backends import held_functions
from deliralike.backends.jax import double_precision
from deliralike.backends.jax.functional import value_of
from deliralike.backends.native_calls import (
    Around,
    ChannelsLast,
    Follower,
    Given,
    Neutral,
    call_of,
    padding_of,
    product_of,
    square,
)

Row = Callable[..., Neutral | None]


@contextmanager
def called_through(blocks: Iterable[Any], around: Around) -> Iterator[None]:
    """Let `around` make this thread's calls of functions of JAX, in a ``with`` block.

    Calls within a function that JAX traces apart (`vmap`, `scan`, `jit`) are left alone.

    Args:
        blocks: Those of the network: functions may be their attributes.
        around: As in `Backend.native_functions_called_through`.
    """
    outside = current_jax_trace()
    follower = Follower(around, _is_array, lambda: current_jax_trace() == outside)
    with held_functions.called_through(follower, _known(), blocks, _spaces()):
        yield


def here(around: Callable[..., Any]) -> Callable[..., Any]:
    """Let `around` make calls of blocks, but none within what JAX traces apart from here."""
    outside = current_jax_trace()

    def untraced(path: str, block: Any, call: Any, args: Any, kwargs: Any) -> Any:
        if current_jax_trace() != outside:
            return call(*args, **kwargs)
        return around(path, block, call, args, kwargs)

    return untraced


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | nnx.Variable)


def _spaces() -> list[Any]:
    """What has the functions as attributes: modules, and the classes of arrays."""
    modules = [jax.nn, jnp, jnp.linalg, lax, jax.image, jax.scipy.special, nnx, flax.linen]
    return [*modules, *_optax(), *_array_classes()]


def _optax() -> list[Any]:
    """The modules of optax, where something has imported it."""
    return [sys.modules[name] for name in ("optax", "optax.losses") if name in sys.modules]


@cache
def _array_classes() -> list[type]:
    with jax.ensure_compile_time_eval():  # an array, also where this is asked for in a trace
        array = jnp.zeros(())
    return [jax.core.Tracer, type(array)]


def _known() -> dict[int, tuple[Any, Callable[..., Any]]]:
    return _followers(bool(_optax()))


@cache
def _followers(has_optax: bool) -> dict[int, tuple[Any, Callable[..., Any]]]:
    table: dict[Any, tuple[str, Row | None]] = {}
    for cls in _array_classes():
        for name, row in _METHODS.items():
            method = vars(cls).get(name)
            if method is not None:
                table[method] = (f"jax.Array.{name.strip('_')}", row)
    for space, rows in _ROWS:
        for name, row in rows.items():
            function = getattr(space, name, None)
            if function is not None:
                table[function] = (f"{space.__name__}.{name}", row)
    for function in (double_precision.SINGLE, double_precision.attention):
        table[function] = ("jax.nn.dot_product_attention", _attention)
    if has_optax:
        for name, row in _OPTAX.items():
            table[getattr(sys.modules["optax"], name)] = (f"optax.{name}", row)
    return held_functions.followers(table)


# Layouts
# -----------------------------------------------------------------------------


def _permute(x: Any, axes: Sequence[int]) -> Any:
    return jnp.transpose(value_of(x), tuple(axes))


_PICTURES = ChannelsLast(_permute)


def _heads_first(x: Any) -> Any:
    """Swap the axes of tokens and heads."""
    return jnp.swapaxes(value_of(x), -3, -2)


def _in_order(x: Given, axes: Sequence[int]) -> Given:
    inverse = _inverse(axes)
    return x.seen(lambda y: _permute(y, axes), lambda y: _permute(y, inverse))


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


# The table
# -----------------------------------------------------------------------------


def _element(name: str, x: Given) -> Neutral:
    return call_of(name, x=x)


def _leaky_relu(x: Given, negative_slope: float = 0.01) -> Neutral:
    return call_of("leaky_relu", x=x, negative_slope=negative_slope)


def _elu(x: Given, alpha: float = 1.0) -> Neutral:
    return call_of("elu", x=x, alpha=alpha)


def _gelu(x: Given, approximate: bool = True) -> Neutral:
    return call_of("gelu", x=x, approximate="tanh" if approximate else "none")


def _softmax(name: str, x: Given, axis: Any = -1, where: Any = None) -> Neutral | None:
    if where is not None or not isinstance(axis, int):
        return None
    return call_of(name, x=x, dim=axis)


def _clip(
    arr: Given, min: Any = None, max: Any = None, a_min: Any = None, a_max: Any = None
) -> Neutral | None:
    low = a_min if min is None else min
    high = a_max if max is None else max
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return call_of("clip", x=arr, low=low, high=high)


def _where(condition: Any, x: Any, y: Any) -> Neutral:
    return call_of("where", condition=condition, x=x, y=y)


def _reduction(
    name: str,
    a: Given,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
) -> Neutral:
    return call_of(name, x=a, dim=axis, keepdim=keepdims)


def _max(a: Given, axis: Any = None, out: Any = None, keepdims: bool = False) -> Neutral | None:
    return call_of("max_along", x=a, dim=axis, keepdim=keepdims) if isinstance(axis, int) else None


def _var(
    a: Given,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    correction: int | None = None,
) -> Neutral:
    dims = tuple(range(a.ndim)) if axis is None else axis
    found = ddof if correction is None else correction
    return call_of("var", x=a, dim=dims, keepdim=keepdims, correction=found)


def _matmul(a: Given, b: Given, *, precision: Any = None) -> Neutral | None:
    return call_of("matmul", x=a, y=b) if min(a.ndim, b.ndim) > 1 else None


def _dot(a: Given, b: Given, *, precision: Any = None) -> Neutral | None:
    return call_of("matmul", x=a, y=b) if a.ndim > 1 and b.ndim == 2 else None


def _einsum(
    subscripts: str, *operands: Given, optimize: Any = None, precision: Any = None
) -> Neutral | None:
    return product_of(subscripts, operands, _permute) if isinstance(subscripts, str) else None


def _attention(
    query: Given,
    key: Given,
    value: Given,
    bias: Given | None = None,
    mask: Given | None = None,
    broadcast_dropout: bool = True,
    dropout_rng: Any = None,
    dropout_rate: float = 0.0,
    deterministic: bool = False,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    precision: Any = None,
    dtype: Any = None,
    implementation: Any = None,
) -> Neutral | None:
    shares_heads = key.shape[-2] != query.shape[-2]
    drops = dropout_rate > 0.0 and not deterministic
    if drops or shares_heads or (bias is not None and (mask is not None or is_causal)):
        return None
    if mask is not None and is_causal:
        return None
    added: Any = bias
    if mask is not None:
        added = mask.seen(partial(_forbidding, like=query.array), lambda x: x == 0)
    if is_causal:
        allowed = jnp.tri(query.shape[-3], key.shape[-3], dtype=bool)
        added = _forbidding(allowed, query.array)
    turned = [x.seen(_heads_first, _heads_first) for x in (query, key, value)]
    arguments = dict(zip(("query", "key", "value"), turned, strict=True))
    found = call_of("attention", **arguments, bias=added, scale=scale, need_weights=False)
    return found.giving(lambda y: (_heads_first(y), None), lambda pair, y: _heads_first(pair[0]))


def _forbidding(allowed: Any, like: Any) -> Any:
    """Return minus infinity where attention is not allowed, and 0 elsewhere."""
    return jnp.where(value_of(allowed), 0.0, -jnp.inf).astype(like.dtype)


def _convolution(
    lhs: Given,
    rhs: Given,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Neutral | None:
    if batch_group_count != 1 or any(step != 1 for step in lhs_dilation or ()):
        return None
    orders = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    rank = lhs.ndim - 2
    dilation = tuple(rhs_dilation or (1,) * rank)
    sizes = [lhs.shape[axis] for axis in orders.lhs_spec[2:]]
    kernel = [rhs.shape[axis] for axis in orders.rhs_spec[2:]]
    widths = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    pads = square(padding_of(padding, sizes, widths, window_strides))
    if pads is None:
        return None
    settings = {"stride": tuple(window_strides), "padding": pads, "dilation": dilation}
    x, weight = _in_order(lhs, orders.lhs_spec), _in_order(rhs, orders.rhs_spec)
    found = call_of("conv", x=x, weight=weight, **settings, groups=feature_group_count)
    forth, back = orders.out_spec, _inverse(orders.out_spec)
    return found.giving(lambda y: _permute(y, forth), lambda y, native: _permute(y, back))


def _pool(
    name: str,
    inputs: Given,
    window_shape: Sequence[int],
    strides: Any = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
) -> Neutral | None:
    window = tuple(window_shape)
    if inputs.ndim != len(window) + 2:
        return None
    steps = tuple(strides or (1,) * len(window))
    pads = square(padding_of(padding, inputs.shape[1:-1], window, steps))
    if pads is None:
        return None
    own = {"count_include_pad": count_include_pad} if name == "avg_pool" else {}
    settings = {"kernel_size": window, "stride": steps, "padding": pads, **own}
    return _PICTURES.result(call_of(name, x=_PICTURES.given(inputs), **settings))


def _resize(
    image: Given, shape: Any, method: str, antialias: bool = True, precision: Any = None
) -> Neutral | None:
    old, new = image.shape, tuple(shape)
    if old[0] != new[0] or old[-1] != new[-1] or len(old) < 3:
        return None
    scales = [size / before for before, size in zip(old[1:-1], new[1:-1], strict=True)]
    if method not in _METHODS_OF_RESIZING or any(scale < 1 for scale in scales):
        return None
    mode = _METHODS_OF_RESIZING[method]
    if mode == "nearest" and any(scale != int(scale) for scale in scales):
        return None
    found = call_of("interpolate", x=_PICTURES.given(image), size=new[1:-1], mode=mode)
    return _PICTURES.result(found)


_METHODS_OF_RESIZING = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}


def _cross_entropy(
    logits: Given, labels: Given, axis: Any = -1, where: Any = None
) -> Neutral | None:
    if where is not None or axis not in (-1, logits.ndim - 1) or logits.ndim < 2:
        return None
    return call_of("cross_entropy", logits=_PICTURES.given(logits), target=labels, reduction="none")


def _bce_with_logits(logits: Given, labels: Given) -> Neutral | None:
    if logits.shape != labels.shape:
        return None
    return call_of("bce_with_logits", logits=logits, target=labels, reduction="none")


def _squared_error(predictions: Given, targets: Given | None = None) -> Neutral | None:
    if targets is None or predictions.shape != targets.shape:
        return None
    return call_of("mse_loss", prediction=predictions, target=targets, reduction="none")


def _concatenate(arrays: Any, axis: Any = 0, dtype: Any = None) -> Neutral:
    return call_of("concatenate", arrays=list(arrays), dim=axis)


def _stack(arrays: Any, axis: int = 0, out: Any = None, dtype: Any = None) -> Neutral:
    return call_of("stack", arrays=list(arrays), dim=axis)


def _reshape(a: Given, *shape: Any, order: str = "C", copy: Any = None) -> Neutral | None:
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    return call_of("reshape", x=a, shape=shape) if order == "C" else None


def _ravel(a: Given) -> Neutral:
    return call_of("reshape", x=a, shape=(-1,))


def _transposed(a: Given, *axes: Any) -> Neutral:
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = () if axes[0] is None else tuple(axes[0])
    return call_of("permute", x=a, dims=axes or tuple(reversed(range(a.ndim))))


def _named_axes(a: Given, axes: Any = None) -> Neutral:
    return _transposed(a, axes)


def _swapaxes(a: Given, axis1: int, axis2: int) -> Neutral:
    return call_of("transpose", x=a, dim0=axis1, dim1=axis2)


def _squeeze(a: Given, axis: Any = None) -> Neutral | None:
    return call_of("squeeze", x=a, dim=axis) if isinstance(axis, int) else None


def _expand_dims(a: Given, axis: Any) -> Neutral | None:
    return call_of("expand_dims", x=a, dim=axis) if isinstance(axis, int) else None


def _flip(m: Given, axis: Any = None) -> Neutral | None:
    return call_of("flip", x=m, dims=axis) if isinstance(axis, int) else None


def _roll(a: Given, shift: Any, axis: Any = None) -> Neutral | None:
    if axis is None or not isinstance(shift, int | tuple | list):
        return None
    return call_of("roll", x=a, shifts=shift, dims=axis)


def _broadcast_to(array: Given, shape: Any) -> Neutral:
    return call_of("broadcast_to", x=array, shape=tuple(shape))


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def _pad(
    array: Given, pad_width: Any, mode: str = "constant", constant_values: float = 0.0
) -> Neutral | None:
    if isinstance(pad_width, int) or mode not in _PAD_MODES:
        return None
    pairs = [tuple(pair) for pair in pad_width]
    if len(pairs) != array.ndim:
        return None
    return call_of("pad", x=array, pad=pairs, mode=_PAD_MODES[mode], value=constant_values)


def _take(a: Given, indices: Any, axis: Any = None, out: Any = None, mode: Any = None) -> Any:
    if not isinstance(indices, Given) or not isinstance(axis, int):
        return None
    return call_of("take", x=a, index=indices, dim=axis)


_ELEMENTWISE = {name: partial(_element, name) for name in ("exp", "log", "sqrt", "sin", "cos")}
_SOFTMAXES = {name: partial(_softmax, name) for name in ("softmax", "log_softmax")}
_ACTIVATIONS: dict[str, Row | None] = {
    **{name: partial(_element, name) for name in ("relu", "relu6", "silu", "sigmoid", "tanh")},
    **_SOFTMAXES,
    "swish": partial(_element, "silu"),
    "softplus": partial(_element, "softplus"),
    "hard_sigmoid": partial(_element, "hardsigmoid"),
    "hard_swish": partial(_element, "hardswish"),
    "hard_silu": partial(_element, "hardswish"),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "gelu": _gelu,
    "dot_product_attention": _attention,
    # without a partner in `nn`
    **dict.fromkeys(("celu", "glu", "hard_tanh", "log_sigmoid", "logsumexp", "mish", "selu")),
    **dict.fromkeys(("soft_sign", "squareplus", "standardize")),
}
_REDUCTIONS: dict[str, Row | None] = {
    "sum": partial(_reduction, "sum"),
    "mean": partial(_reduction, "mean"),
    "max": _max,
    "var": _var,
    **dict.fromkeys(("cumprod", "cumsum", "min", "prod", "std")),
}
_NUMPY: dict[str, Row | None] = {
    **_ELEMENTWISE,
    **_REDUCTIONS,
    "tanh": partial(_element, "tanh"),
    "abs": partial(_element, "abs"),
    "absolute": partial(_element, "abs"),
    "amax": _max,
    "clip": _clip,
    "where": _where,
    "matmul": _matmul,
    "dot": _dot,
    "einsum": _einsum,
    "concatenate": _concatenate,
    "concat": _concatenate,
    "stack": _stack,
    "reshape": _reshape,
    "ravel": _ravel,
    "transpose": _named_axes,
    "permute_dims": _named_axes,
    "swapaxes": _swapaxes,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "flip": _flip,
    "roll": _roll,
    "broadcast_to": _broadcast_to,
    "pad": _pad,
    "take": _take,
    # without a partner in `nn`
    **dict.fromkeys(("amin", "log1p", "logaddexp", "maximum", "minimum", "outer", "square")),
    **dict.fromkeys(("tensordot", "tril", "triu", "vdot")),
}
_ROWS: tuple[tuple[Any, dict[str, Row | None]], ...] = (
    (jnp, _NUMPY),
    (jnp.linalg, {"norm": None}),
    (lax, {"erf": partial(_element, "erf"), "stop_gradient": partial(_element, "stop_gradient")}),
    (lax, {"rsqrt": None, "conv_general_dilated": _convolution}),
    (lax, dict.fromkeys(("conv", "conv_transpose", "dot_general", "reduce_window", "top_k"))),
    (jax.scipy.special, {"erf": partial(_element, "erf"), "logsumexp": None}),
    (jax.image, {"resize": _resize}),
    (jax.nn, _ACTIVATIONS),
    (nnx, {"max_pool": partial(_pool, "max_pool"), "avg_pool": partial(_pool, "avg_pool")}),
    (nnx, {"min_pool": None, "dot_product_attention": _attention}),
    (flax.linen, {"max_pool": partial(_pool, "max_pool"), "avg_pool": partial(_pool, "avg_pool")}),
    (flax.linen, {"dot_product_attention": _attention}),
)
_METHODS: dict[str, Row | None] = {
    **_REDUCTIONS,
    "clip": _clip,
    "flatten": _ravel,
    "ravel": _ravel,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "swapaxes": _swapaxes,
    "take": _take,
    "transpose": _transposed,
    "__matmul__": _matmul,
}
_OPTAX: dict[str, Row | None] = {
    "softmax_cross_entropy_with_integer_labels": _cross_entropy,
    "sigmoid_binary_cross_entropy": _bce_with_logits,
    "squared_error": _squared_error,
    **dict.fromkeys(("cosine_distance", "ctc_loss", "hinge_loss", "huber_loss", "kl_divergence")),
    **dict.fromkeys(("l2_loss", "log_cosh", "sigmoid_focal_loss", "softmax_cross_entropy")),
}
