"""PyTorch's own functions and methods of tensors as functions of `nn`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from deliralike.backends.native_calls import (
    Follower,
    Interceptor,
    NativeArray,
    Neutral,
    Row,
    Rows,
    Table,
    by_numbers,
    call_of,
    elementwise,
    product_of,
    renamed,
    unpacked,
    unpartnered,
)
from deliralike.backends.replaced_functions import replaced_by_name
from deliralike.backends.torch import unstable


@contextmanager
def intercept_calls(blocks: Any, interceptor: Interceptor) -> Iterator[None]:
    """Let `interceptor` make this thread's calls of PyTorch's functions, in a ``with`` block."""
    with _Following(Follower(interceptor, _is_array, _is_open)):
        yield


@contextmanager
def as_exact_as_their_type() -> Iterator[None]:
    """Mend functions of PyTorch that compute less exactly than their type, in a ``with`` block.

    The slope 1/6 of `hardsigmoid` is rounded to float32 for arrays of float64, too (PyTorch 2.13).
    """
    with replaced_by_name({(F, "hardsigmoid"): _exact_hardsigmoid}):
        yield


_hardsigmoid = F.hardsigmoid


def _exact_hardsigmoid(
    input: torch.Tensor,
    inplace: bool = False,  # both are names of PyTorch
) -> torch.Tensor:
    # PyTorch's own function calls this one again where a mode follows its calls.
    is_scaled = getattr(input.grad_fn, "_forward_cls", None) is _Scaled
    if input.dtype != torch.float64 or not input.requires_grad or is_scaled:
        return _hardsigmoid(input, inplace)
    output = _hardsigmoid(_Scaled.apply(input))
    return input.copy_(output) if inplace else output


@contextmanager
def in_float64() -> Iterator[None]:
    """Compute in float64 where float32 is said, or no type, in a ``with`` block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widening():
            yield
    finally:
        torch.set_default_dtype(before)


class _Widening(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wide, args), **named)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


class _Scaled(torch.autograd.Function):
    """The input, whose gradient is scaled by what the rounded slope lacks."""

    @staticmethod
    def forward(_: Any, x: Any) -> Any:
        return x.clone()  # the input may be written over

    @staticmethod
    def backward(_: Any, gradient: Any) -> Any:
        return gradient * _LACKING


_SLOPE = 1.0 / 6.0
_LACKING = _SLOPE / torch.tensor(_SLOPE, dtype=torch.float32).item()


class _Following(TorchFunctionMode):
    """Lets another function make the calls of those functions that the table has."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self._follower = follower

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        try:
            row = _TABLE.get(func)
        except TypeError:  # what cannot be hashed is no function of the table
            row = None
        if row is None:
            return func(*args, **kwargs)
        if kwargs.get("inplace"):
            return self._in_place(row, func, args, kwargs)
        return self._follower(*row, func, args, kwargs)

    def _in_place(
        self, row: tuple[str, Row | None], func: Any, args: tuple, kwargs: Any
    ) -> Any:
        """Follow a call that writes its result into its argument, for code that goes on there."""
        x, *others = args or (kwargs["input"],)
        elsewhere = {name: value for name, value in kwargs.items() if name != "input"}
        # of a copy: what the gradient needs of the argument must stay
        result = self._follower(
            *row, func, (x.clone(), *others), elsewhere | {"inplace": False}
        )
        return x.copy_(result)


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_open() -> bool:
    """Return whether tensors are plain ones: not within ``vmap``, and not while compiling."""
    if torch.compiler.is_compiling():
        return False
    return not unstable.is_within_transformation()


# The table
# -----------------------------------------------------------------------------


def _max(input: NativeArray, dim: int, keepdim: bool = False) -> Neutral | None:
    if isinstance(dim, NativeArray):
        return None  # the larger of two arrays
    neutral = call_of("max_along", x=input, dim=dim, keepdim=keepdim)
    return neutral.with_results(
        lambda pair: pair[0], lambda y, pair: type(pair)((y, pair[1]))
    )


def _einsum(equation: str, *operands: Any) -> Neutral | None:
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    return product_of(equation, operands, torch.permute)


_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
}


def _interpolate(
    input: NativeArray,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Neutral | None:
    if mode not in _MODES or antialias or recompute_scale_factor:
        return None
    wanted = {"size": _plain(size), "scale_factor": _plain(scale_factor)}
    corners = bool(align_corners)
    return call_of(
        "interpolate", x=input, **wanted, mode=_MODES[mode], align_corners=corners
    )


def _pad(
    input: NativeArray, pad: Any, mode: str = "constant", value: float | None = None
) -> Neutral:
    pairs = [(pad[at], pad[at + 1]) for at in range(0, len(pad), 2)]
    return call_of("pad", x=input, pad=pairs[::-1], mode=mode, value=value or 0.0)


def _attention(
    query: NativeArray,
    key: NativeArray,
    value: NativeArray,
    attn_mask: NativeArray | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Neutral | None:
    if dropout_p or enable_gqa:
        return None
    bias: Any = attn_mask
    if is_causal:
        bias = _causal(query, key)
    elif attn_mask is not None and attn_mask.is_bool:
        bias = attn_mask.converted(
            partial(_forbidding, like=query.array), lambda x: x == 0
        )
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "bias": bias,
        "scale": scale,
    }
    found = call_of("attention", **arguments, need_weights=False)
    return found.with_results(lambda y: (y, None), lambda pair, y: pair[0])


def _causal(query: NativeArray, key: NativeArray) -> torch.Tensor:
    sizes = (query.shape[-2], key.shape[-2])
    allowed = torch.ones(sizes, dtype=torch.bool, device=query.array.device).tril()
    return _forbidding(allowed, query.array)


def _forbidding(allowed: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return minus infinity where attention is not allowed, and 0 elsewhere."""
    zeros = torch.zeros(allowed.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill(~allowed, -torch.inf)


def _reshape(input: NativeArray, *shape: Any) -> Neutral | None:
    return call_of("reshape", x=input, shape=unpacked(shape))


def _permute(input: NativeArray, *dims: Any) -> Neutral:
    return call_of("permute", x=input, dims=unpacked(dims))


def _plain(value: Any) -> Any:
    """Return several numbers as a tuple; None for an empty list, which means all axes."""
    return tuple(value) or None if isinstance(value, list | tuple) else value


def _reduction(name: str) -> Row:
    return renamed(name, "input=x dim keepdim dtype=", convert=_plain)


def _convolution(name: str, arguments: str) -> Row:
    return renamed(
        name, f"input=x weight bias {arguments}", when=_is_batch, convert=_plain
    )


def _is_batch(input: NativeArray, weight: NativeArray, **others: Any) -> bool:
    return input.ndim == weight.ndim


def _pool(name: str, arguments: str, only: dict[str, Any]) -> Rows:
    """Return the rows of a pooling function for each number of axes."""
    found: Rows = {}
    for rank in (1, 2, 3):
        when = partial(_has_axes, rank + 2)
        found[f"{name}{rank}d"] = renamed(
            name, f"input=x {arguments}", only, when, _plain
        )
    return found


def _has_axes(
    count: int, input: NativeArray, output_size: Any = (), **others: Any
) -> bool:
    is_open = isinstance(output_size, list | tuple) and None in output_size
    return input.ndim == count and not is_open


def _along(*names: str) -> Rows:
    return {name: renamed(name, "input=x dim _stacklevel= dtype=") for name in names}


def _distance(name: str) -> Row:
    arguments = "input=prediction target size_average reduce reduction weight"
    return renamed(name, arguments, _NOT_DEPRECATED | {"weight": None}, _are_alike)


def _are_alike(input: NativeArray, target: NativeArray, **others: Any) -> bool:
    return input.shape == target.shape


def _are_matrices(input: NativeArray, other: NativeArray) -> bool:
    return min(input.ndim, other.ndim) > 1


def _are_labels(input: NativeArray, target: NativeArray, **others: Any) -> bool:
    return target.is_whole and input.ndim > 1


_ELEMENTS = "input=x inplace="
_NOT_DEPRECATED: dict[str, Any] = {"size_average": None, "reduce": None}
_MATMUL = renamed("matmul", "input=x other=y", when=_are_matrices)
_CONV = _convolution("conv", "stride padding dilation groups")
_CONV_TRANSPOSE = _convolution(
    "conv_transpose", "stride padding output_padding groups dilation"
)
_TRANSPOSE = renamed("transpose", "input=x dim0 dim1")
_F: Rows = {
    **elementwise("relu relu6 silu hardsigmoid hardswish sigmoid tanh", _ELEMENTS),
    **_along("softmax", "log_softmax"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _CONV),
    **{f"conv_transpose{rank}d": _CONV_TRANSPOSE for rank in (1, 2, 3)},
    **_pool(
        "max_pool",
        "kernel_size stride padding dilation ceil_mode return_indices",
        {"return_indices": False},
    ),
    **_pool(
        "avg_pool",
        "kernel_size stride padding ceil_mode count_include_pad divisor_override",
        {"divisor_override": None},
    ),
    **_pool("adaptive_avg_pool", "output_size", {}),
    **_pool(
        "adaptive_max_pool", "output_size return_indices", {"return_indices": False}
    ),
    "leaky_relu": renamed("leaky_relu", "input=x negative_slope inplace="),
    "elu": renamed("elu", "input=x alpha inplace="),
    "softplus": renamed("softplus", "input=x beta threshold=", {"beta": 1}),
    "gelu": renamed("gelu", "input=x approximate"),
    "prelu": renamed("prelu", "input=x weight"),
    "linear": renamed("linear", "input=x weight bias"),
    "layer_norm": renamed(
        "layer_norm", "input=x normalized_shape weight bias eps", convert=_plain
    ),
    "group_norm": renamed("group_norm", "input=x num_groups weight bias eps"),
    "batch_norm": renamed(
        "batch_norm",
        "input=x running_mean=mean running_var=var weight bias training momentum= eps",
        {"training": False},  # in training it writes running statistics
    ),
    "normalize": renamed("normalize", "input=x p dim eps out=", {"p": 2.0}),
    "interpolate": _interpolate,
    "pixel_shuffle": renamed(
        "pixel_shuffle",
        "input=x upscale_factor",
        when=lambda input, **_: input.ndim == 4,
    ),
    "pad": _pad,
    "embedding": renamed(
        "embedding",
        "input=index weight padding_idx max_norm norm_type= scale_grad_by_freq sparse=",
        {"padding_idx": None, "max_norm": None, "scale_grad_by_freq": False},
    ),
    "scaled_dot_product_attention": _attention,
    "cross_entropy": renamed(
        "cross_entropy",
        "input=logits target weight size_average ignore_index reduce reduction label_smoothing",
        _NOT_DEPRECATED,
        _are_labels,
    ),
    "binary_cross_entropy_with_logits": renamed(
        "bce_with_logits",
        "input=logits target weight size_average reduce reduction pos_weight",
        _NOT_DEPRECATED,
    ),
    "mse_loss": _distance("mse_loss"),
    "l1_loss": _distance("l1_loss"),
}

# Functions of `torch`, and methods of tensors where there is one.
_TORCH: Rows = {
    **elementwise("exp log sqrt sin cos tanh erf abs sigmoid relu", _ELEMENTS),
    "absolute": renamed("abs", "input=x"),
    **_along("softmax", "log_softmax"),
    **{name: _F[name] for name in _F if name[-1] == "d" and name[-2] in "123"},
    **{name: _F[name] for name in ("prelu", "group_norm", "pixel_shuffle")},
    **dict.fromkeys(
        ("clamp", "clip"), renamed("clamp", "input=x min max", when=by_numbers)
    ),
    "where": renamed("where", "condition input=x other=y"),
    "sum": _reduction("sum"),
    "mean": _reduction("mean"),
    "max": _max,
    "amax": renamed(
        "max_along",
        "input=x dim keepdim",
        when=lambda dim, **_: isinstance(dim, int),
    ),
    "var": renamed(
        "var",
        "input=x dim unbiased=correction keepdim",
        when=lambda input, dim=None, **_: not isinstance(dim, bool),
        convert=lambda value: int(value) if isinstance(value, bool) else _plain(value),
        correction=1,
    ),
    **dict.fromkeys(("matmul", "bmm", "mm"), _MATMUL),
    "einsum": _einsum,
    **dict.fromkeys(
        ("cat", "concat", "concatenate"), renamed("concatenate", "tensors=arrays dim")
    ),
    "stack": renamed("stack", "tensors=arrays dim"),
    "flatten": renamed("flatten", "input=x start_dim end_dim", start_dim=0),
    "reshape": _reshape,
    "view": _reshape,
    "permute": _permute,
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), _TRANSPOSE),
    "squeeze": renamed(
        "squeeze", "input=x dim", when=lambda input, dim: input.shape[dim] == 1
    ),
    "unsqueeze": renamed("expand_dims", "input=x dim"),
    "gather": renamed("take_along", "input=x dim index"),
    "index_select": renamed("take", "input=x dim index"),
    "detach": renamed("stop_gradient", "input=x"),
}
_METHODS: Rows = {"where": renamed("where", "input=x condition other=y")}

_UNPARTNERED = unpartnered(
    "addmm baddbmm cumprod cumsum dot flip log1p logsumexp maximum min minimum norm outer prod "
    "roll rsqrt sort square std tensordot topk tril triu"
)


def _table() -> Table:
    """Return what each native function is, by the function."""
    found: Table = {}
    for name in dir(F):
        function = getattr(F, name)
        if _is_followed(name, function):
            found[function] = (f"torch.nn.functional.{name}", None)
    for name, row in (_UNPARTNERED | _TORCH).items():
        _enter(found, name, row)
    for name, row in _METHODS.items():
        found[getattr(torch.Tensor, name)] = (f"torch.Tensor.{name}", row)
    for name, row in _F.items():
        found[getattr(F, name)] = (f"torch.nn.functional.{name}", row)
    found[_exact_hardsigmoid] = found[F.hardsigmoid]
    return found


def _enter(found: Table, name: str, row: Row | None) -> None:
    for space, prefix in ((torch.Tensor, "torch.Tensor"), (torch, "torch")):
        function = getattr(space, name, None)
        if function is not None:
            found[function] = (f"{prefix}.{name}", row)


def _is_followed(name: str, function: Any) -> bool:
    """Return whether a name of `torch.nn.functional` is a function that returns a new tensor."""
    is_public = name[0].islower() and not name.endswith("_")
    is_own = "torch.nn.functional" in str(getattr(function, "__module__", ""))
    is_builtin = type(function).__name__ == "builtin_function_or_method"
    return (
        is_public
        and callable(function)
        and (is_own or is_builtin)
        and name not in _NOT_FOLLOWED
    )


_NOT_FOLLOWED = frozenset(
    {
        "assert_int_or_pair",
        "boolean_dispatch",
        "handle_torch_function",
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
        "one_hot",
    }
)

# Made at once: later a comparison may have put functions of its own in their places.
_TABLE = _table()
