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

from deliralike.backends import replaced_functions
from deliralike.backends.jax import double_precision
from deliralike.backends.jax.functional import value_of
from deliralike.backends.native_calls import (
    ChannelsLast,
    Follower,
    Interceptor,
    NativeArray,
    Neutral,
    Row,
    Rows,
    Table,
    along_one_axis,
    by_numbers,
    call_of,
    elementwise,
    padding_of,
    product_of,
    renamed,
    square,
    unpacked,
    unpartnered,
)


@contextmanager
def intercept_calls(blocks: Iterable[Any], interceptor: Interceptor) -> Iterator[None]:
    """Let `interceptor` make this thread's calls of functions of JAX, in a ``with`` block.

    Calls within a function that JAX traces apart (`vmap`, `scan`, `jit`) are left alone.

    Args:
        blocks: Those of the network: functions may be their attributes.
        interceptor: As in `Backend.intercept_native_functions`.
    """
    outside = current_jax_trace()
    follower = Follower(interceptor, _is_array, lambda: current_jax_trace() == outside)
    with replaced_functions.intercept_calls(
        follower, _replacements(), blocks, _spaces()
    ):
        yield


def same_trace_only(interceptor: Callable[..., Any]) -> Callable[..., Any]:
    """Let `interceptor` make calls of blocks, but none within what JAX traces apart from here."""
    outside = current_jax_trace()

    def untraced(path: str, block: Any, call: Any, args: Any, kwargs: Any) -> Any:
        if current_jax_trace() != outside:
            return call(*args, **kwargs)
        return interceptor(path, block, call, args, kwargs)

    return untraced


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | nnx.Variable)


def _spaces() -> list[Any]:
    """What has the functions as attributes: modules, and the classes of arrays."""
    modules = [
        jax.nn,
        jnp,
        jnp.linalg,
        lax,
        jax.image,
        jax.scipy.special,
        nnx,
        flax.linen,
    ]
    return [*modules, *_optax(), *_array_classes()]


def _optax() -> list[Any]:
    """The modules of optax, where something has imported it."""
    return [
        sys.modules[name] for name in ("optax", "optax.losses") if name in sys.modules
    ]


@cache
def _array_classes() -> list[type]:
    with (
        jax.ensure_compile_time_eval()
    ):  # an array, also where this is asked for in a trace
        array = jnp.zeros(())
    return [jax.core.Tracer, type(array)]


def _replacements() -> replaced_functions.Replacements:
    return _followers(bool(_optax()))


@cache
def _followers(has_optax: bool) -> replaced_functions.Replacements:
    table: Table = {}
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
    return replaced_functions.replacements_of(table)


# Layouts
# -----------------------------------------------------------------------------


def _permute(x: Any, axes: Sequence[int]) -> Any:
    return jnp.transpose(value_of(x), tuple(axes))


_PICTURES = ChannelsLast(_permute)


def _heads_first(x: Any) -> Any:
    """Swap the axes of tokens and heads."""
    return jnp.swapaxes(value_of(x), -3, -2)


# The table
# -----------------------------------------------------------------------------


def _gelu(x: NativeArray, approximate: bool = True) -> Neutral:
    return call_of("gelu", x=x, approximate="tanh" if approximate else "none")


def _einsum(
    subscripts: str, *operands: NativeArray, optimize: Any = None, precision: Any = None
) -> Neutral | None:
    return product_of(subscripts, operands, _permute)


def _attention(
    query: NativeArray,
    key: NativeArray,
    value: NativeArray,
    bias: NativeArray | None = None,
    mask: NativeArray | None = None,
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
        added = mask.converted(partial(_forbidding, like=query.array), lambda x: x == 0)
    if is_causal:
        allowed = jnp.tri(query.shape[-3], key.shape[-3], dtype=bool)
        added = _forbidding(allowed, query.array)
    turned = [x.converted(_heads_first, _heads_first) for x in (query, key, value)]
    arguments = dict(zip(("query", "key", "value"), turned, strict=True))
    found = call_of(
        "attention", **arguments, bias=added, scale=scale, need_weights=False
    )
    return found.with_results(
        lambda y: (_heads_first(y), None), lambda pair, y: _heads_first(pair[0])
    )


def _forbidding(allowed: Any, like: Any) -> Any:
    """Return minus infinity where attention is not allowed, and 0 elsewhere."""
    return jnp.where(value_of(allowed), 0.0, -jnp.inf).astype(like.dtype)


def _pool(
    name: str,
    inputs: NativeArray,
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
    return _PICTURES.result(call_of(name, x=_PICTURES.argument(inputs), **settings))


def _resize(
    image: NativeArray,
    shape: Any,
    method: str,
    antialias: bool = True,
    precision: Any = None,
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
    found = call_of(
        "interpolate", x=_PICTURES.argument(image), size=new[1:-1], mode=mode
    )
    return _PICTURES.result(found)


_METHODS_OF_RESIZING = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}


def _cross_entropy(
    logits: NativeArray, labels: NativeArray, axis: Any = -1, where: Any = None
) -> Neutral | None:
    if where is not None or axis not in (-1, logits.ndim - 1) or logits.ndim < 2:
        return None
    return call_of(
        "cross_entropy",
        logits=_PICTURES.argument(logits),
        target=labels,
        reduction="none",
    )


def _reshape(
    a: NativeArray, *shape: Any, order: str = "C", copy: Any = None
) -> Neutral | None:
    if order != "C":
        return None
    return call_of("reshape", x=a, shape=unpacked(shape))


def _transposed(a: NativeArray, *axes: Any) -> Neutral:
    if axes in ((), (None,)):
        axes = tuple(reversed(range(a.ndim)))
    return call_of("permute", x=a, dims=unpacked(axes))


def _named_axes(a: NativeArray, axes: Any = None) -> Neutral:
    return _transposed(a, axes)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def _pad(
    array: NativeArray,
    pad_width: Any,
    mode: str = "constant",
    constant_values: float = 0.0,
) -> Neutral | None:
    if isinstance(pad_width, int) or mode not in _PAD_MODES:
        return None
    pairs = [tuple(pair) for pair in pad_width]
    if len(pairs) != array.ndim:
        return None
    return call_of(
        "pad", x=array, pad=pairs, mode=_PAD_MODES[mode], value=constant_values
    )


def _along(name: str) -> Row:
    return renamed(name, "x axis=dim where", {"where": None}, along_one_axis, axis=-1)


def _reduction(name: str) -> Row:
    return renamed(name, "a=x axis=dim dtype= out= keepdims=keepdim")


_MATMUL = renamed(
    "matmul", "a=x b=y precision=", when=lambda a, b, **_: min(a.ndim, b.ndim) > 1
)
_DOT = renamed(
    "matmul", "a=x b=y precision=", when=lambda a, b, **_: a.ndim > 1 and b.ndim == 2
)
_MAX = renamed("max_along", "a=x axis=dim out= keepdims=keepdim", when=along_one_axis)
_CONCATENATE = renamed("concatenate", "arrays axis=dim dtype=")
_RAVEL = renamed("reshape", "a=x", shape=(-1,))
_SQUEEZE = renamed("squeeze", "a=x axis=dim", when=along_one_axis)
_SWAPAXES = renamed("transpose", "a=x axis1=dim0 axis2=dim1")
_CLIP = renamed("clamp", "arr=x min max", when=by_numbers)
_ERF = renamed("erf", "x")
_SOFTMAXES: Rows = {
    "softmax": _along("softmax"),
    "log_softmax": _along("log_softmax"),
}
_ACTIVATIONS: Rows = {
    **elementwise("relu relu6 silu sigmoid tanh softplus"),
    **_SOFTMAXES,
    "swish": renamed("silu", "x"),
    "hard_sigmoid": renamed("hardsigmoid", "x"),
    **dict.fromkeys(("hard_swish", "hard_silu"), renamed("hardswish", "x")),
    "leaky_relu": renamed("leaky_relu", "x negative_slope"),
    "elu": renamed("elu", "x alpha"),
    "gelu": _gelu,
    "dot_product_attention": _attention,
    **unpartnered(
        "celu glu hard_tanh log_sigmoid logsumexp mish selu soft_sign squareplus standardize"
    ),
}
_REDUCTIONS: Rows = {
    "sum": _reduction("sum"),
    "mean": _reduction("mean"),
    "max": _MAX,
    "var": renamed(
        "var",
        "a=x axis=dim dtype= out= ddof=correction keepdims=keepdim",
        correction=0,
    ),
    **unpartnered("cumprod cumsum min prod std"),
}
_NUMPY: Rows = {
    **elementwise("exp log sqrt sin cos tanh abs"),
    **_REDUCTIONS,
    "absolute": renamed("abs", "x"),
    "amax": _MAX,
    "clip": _CLIP,
    "where": renamed("where", "condition x y"),
    "matmul": _MATMUL,
    "dot": _DOT,
    "einsum": _einsum,
    "concatenate": _CONCATENATE,
    "concat": _CONCATENATE,
    "stack": renamed("stack", "arrays axis=dim out= dtype="),
    "reshape": _reshape,
    "ravel": _RAVEL,
    "transpose": _named_axes,
    "permute_dims": _named_axes,
    "swapaxes": _SWAPAXES,
    "squeeze": _SQUEEZE,
    "expand_dims": renamed("expand_dims", "a=x axis=dim", when=along_one_axis),
    "broadcast_to": renamed("broadcast_to", "array=x shape"),
    "pad": _pad,
    **unpartnered(
        "amin flip log1p logaddexp maximum minimum outer roll square take tensordot tril triu vdot"
    ),
}
_POOLS: Rows = {
    "max_pool": partial(_pool, "max_pool"),
    "avg_pool": partial(_pool, "avg_pool"),
    "dot_product_attention": _attention,
}
_ROWS: tuple[tuple[Any, Rows], ...] = (
    (jnp, _NUMPY),
    (jnp.linalg, unpartnered("norm")),
    (lax, {"erf": _ERF, "stop_gradient": renamed("stop_gradient", "x")}),
    (
        lax,
        unpartnered(
            "conv conv_general_dilated conv_transpose dot_general reduce_window rsqrt top_k"
        ),
    ),
    (jax.scipy.special, {"erf": _ERF, "logsumexp": None}),
    (jax.image, {"resize": _resize}),
    (jax.nn, _ACTIVATIONS),
    (nnx, _POOLS | unpartnered("min_pool")),
    (flax.linen, _POOLS),
)
_METHODS: Rows = {
    **_REDUCTIONS,
    "clip": _CLIP,
    "flatten": _RAVEL,
    "ravel": _RAVEL,
    "reshape": _reshape,
    "squeeze": _SQUEEZE,
    "swapaxes": _SWAPAXES,
    "transpose": _transposed,
    "__matmul__": _MATMUL,
}
_OPTAX: Rows = {
    "softmax_cross_entropy_with_integer_labels": _cross_entropy,
    "sigmoid_binary_cross_entropy": renamed(
        "bce_with_logits",
        "logits labels=target",
        when=lambda logits, labels, **_: logits.shape == labels.shape,
        reduction="none",
    ),
    "squared_error": renamed(
        "mse_loss",
        "predictions=prediction targets=target",
        when=lambda predictions, targets, **_: predictions.shape == targets.shape,
        reduction="none",
    ),
    **unpartnered(
        "cosine_distance ctc_loss hinge_loss huber_loss kl_divergence l2_loss log_cosh "
        "sigmoid_focal_loss softmax_cross_entropy"
    ),
}
