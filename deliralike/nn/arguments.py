"""The arguments of functions of `nn`: what is refused on every backend, and what is converted.

Frameworks differ in what they do with whole numbers and truth values. Here a function of real
numbers takes floating arrays alone, arithmetic and order take numbers, and of two arrays the one
of the lesser type is converted. What a framework refuses itself is said with the function's name.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np

from deliralike.errors import DeliralikeError, DtypeError, OperationError
from deliralike.nn.checks import SHORT_TYPES, is_floating, is_whole, type_name, where
from deliralike.nn.geometry import expanded
from deliralike.nn.means import with_denominator_of

# Those by which Python and NumPy refuse arguments; not their subclasses, which mean something else.
BARE_ERRORS = frozenset(
    {
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        AttributeError,
        NotImplementedError,
        ZeroDivisionError,
        OverflowError,
        np.exceptions.AxisError,
    }
)
Rule = Callable[[Any, str, tuple], tuple]


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a vocabulary that looks at its arguments, and names itself in errors."""
    rule = _RULES.get(name)
    _, *parameters = signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if rule is not None:
                for argument in names[len(args) :]:
                    if argument not in kwargs:
                        break
                    args = (*args, kwargs.pop(argument))
                args = rule(self, name, args)
            return function(self, *args, **kwargs)
        except Exception as error:
            _refuse(self, name, args, kwargs, error)
            raise

    return call


def guarded_layer(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward pass of a layer that names the layer and its path in errors."""

    @wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return forward(self, *args, **kwargs)
        except Exception as error:
            _refuse(self.nn, where(self), args, kwargs, error)
            raise

    return call


def _refuse(nn: Any, name: str, args: tuple, kwargs: dict, error: Exception) -> None:
    """Raise `OperationError` in the place of an error of arguments; return for any other."""
    if isinstance(error, OperationError):  # a function within has found it
        raise _refusal(name, args, kwargs, error.cause) from error.__cause__
    if isinstance(error, DeliralikeError) or type(error) not in nn.argument_errors:
        return
    cause = str(error)
    if not nn.takes_host_arrays and _holds_host_array((args, kwargs)):
        cause = f"an argument is a NumPy array, see nn.constant: {cause}"
    raise _refusal(name, args, kwargs, cause) from error


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function compute arrays of 16 bits in float32, as sums of squares overflow float16.

    Its result, or the first of several, has the type of its first array; a mean loss keeps its
    denominator.
    """

    @wraps(function)
    def call(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if type_name(x) not in SHORT_TYPES:
            return function(self, x, *args, **kwargs)

        def widened(value: Any) -> Any:
            is_short = hasattr(value, "dtype") and type_name(value) in SHORT_TYPES
            return self.cast(value, "float32") if is_short else value

        named = {key: widened(value) for key, value in kwargs.items()}
        y = function(self, widened(x), *map(widened, args), **named)
        if isinstance(y, tuple):
            return (self.cast(y[0], x), *y[1:])
        return with_denominator_of(y, self.cast(y, x))

    return call


def is_guarded(name: str) -> bool:
    """Return whether a function computes with its arguments alone, and calls no other's code."""
    return name[0].islower() and name not in _OF_OTHERS


def _refusal(name: str, args: tuple, kwargs: dict, cause: str) -> OperationError:
    given = [_described(value) for value in args]
    given += [f"{key}={_described(value)}" for key, value in kwargs.items()]
    first_line = cause.strip().partition("\n")[0]
    message = f"{name}: cannot be computed of ({', '.join(given)}): {first_line}"
    return OperationError(message, cause)


def _holds_host_array(value: Any) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return any(map(_holds_host_array, value))
    return isinstance(value, np.ndarray)


def _described(value: Any) -> str:
    """Return a short text of an argument: type and shape of an array."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type_name(value)} {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_described, value))}]"
    return repr(value)


# Types of mixed precision
# -----------------------------------------------------------------------------

# The functions of the vocabulary that cast arrays of float32 or a shorter type in mixed forward
# passes: products compute in the shorter type, the others in float32. All further functions take
# the types that they are given. Double precision is never shortened.
PRODUCTS = (
    "matmul",
    "einsum",
    "linear",
    "conv",
    "convolve",
    "conv_transpose",
    "convolve_transposed",
)
EXACT = (
    "exp",
    "log",
    "sqrt",
    "softplus",
    "exact_softplus",
    "logsumexp",
    "std",
    "norm",
    "cumsum",
    "rms_norm",
    "sum",
    "mean",
    "var",
    "log_softmax",
    "softmax",
    "lstm",
    "gru",
    "normalize",
    "cross_entropy",
    "bce_with_logits",
    "nll_loss",
    "kl_div",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "l1_loss",
    "dice_loss",
)
NORMS = (
    "batch_norm",
    "batch_norm_train",
    "group_norm",
    "layer_norm",
    "sum_windows",
    "avg_pool",
    "adaptive_avg_pool",
)


def autocast(
    function: Callable[..., Any],
    current: Callable[[], str | None],
    cast: Callable[[Any, str], Any],
    *,
    dtype: str | None = None,
    back: bool = False,
) -> Callable[..., Any]:
    """Return a function of a backend's vocabulary that casts its arrays for mixed precision.

    It casts where forward passes are mixed; elsewhere the arrays stay as they are.

    Args:
        current: Gives the shorter type in force, or None.
        cast: Gives an array of float32 or of a shorter type in a type by name, and anything else as
            it is.
        dtype: What the arrays are cast to; the shorter type in force when None.
        back: Whether the result, or the first of several, is cast to the type of the first array.
    """

    @wraps(function)
    def with_casts(self: Any, *args: Any, **kwargs: Any) -> Any:
        precision = current()
        if precision is None:
            return function(self, *args, **kwargs)
        wanted = dtype or precision
        cast_args = [cast(value, wanted) for value in args]
        cast_kwargs = {name: cast(value, wanted) for name, value in kwargs.items()}
        result = function(self, *cast_args, **cast_kwargs)
        if not back:
            return result
        own = next(str(value.dtype) for value in args if hasattr(value, "dtype"))
        if isinstance(result, tuple):
            first, *others = result
            return (cast(first, own), *others)
        return cast(result, own)

    return with_casts


# Rules of types
# -----------------------------------------------------------------------------


def _real(_nn: Any, name: str, args: tuple) -> tuple:
    """Floating numbers alone."""
    if not is_floating(args[0]):
        raise DtypeError(
            f"{name}: got an array of {type_name(args[0])}, wanted floating numbers: convert it, "
            "such as by nn.cast(x, 'float32')"
        )
    return args


def _numbers(_nn: Any, name: str, args: tuple) -> tuple:
    """Floating or whole numbers, no truth values."""
    x = args[0]
    if not is_floating(x) and not is_whole(x):
        raise DtypeError(
            f"{name}: got an array of {type_name(x)}, wanted numbers: convert it, such as by "
            "nn.cast(x, 'int64')"
        )
    return args


def _pair(nn: Any, name: str, args: tuple) -> tuple:
    """Two arrays of one type, or an array and a number that its type has."""
    x, other, *rest = args
    x, other = common_type(nn, name, x, other)
    return x, other, *rest


def _compared(nn: Any, name: str, args: tuple) -> tuple:
    """Two arrays of one type, or an array and any number."""
    x, other, *rest = args
    other = _plain(other, x)
    if not isinstance(other, int | float):
        return _pair(nn, name, args)
    if _is_beyond(other, x):  # which frameworks would wrap around
        x = nn.cast(x, "int64")
    return x, other, *rest


def _both(first: Rule, second: Rule) -> Rule:
    """Return two rules as one, of which the second takes what the first returns."""

    def rule(nn: Any, name: str, args: tuple) -> tuple:
        return second(nn, name, first(nn, name, args))

    return rule


def _joined(nn: Any, name: str, args: tuple) -> tuple:
    """Arrays of one type in a list."""
    arrays, *rest = args
    if len({x.dtype for x in arrays}) > 1:
        greatest = max(arrays, key=_rank)
        arrays = [common_type(nn, name, x, greatest)[0] for x in arrays]
    return arrays, *rest


def _choice(nn: Any, name: str, args: tuple) -> tuple:
    """A condition, and two arrays as in `_pair`; or two numbers."""
    condition, x, other = args
    truth_values(name, condition)
    x = _plain(x, other)
    if isinstance(x, int | float) and not isinstance(other, int | float):
        other, x = common_type(nn, name, other, x)
    elif not isinstance(x, int | float):
        x, other = common_type(nn, name, x, other)
    return condition, x, other


def _several(nn: Any, name: str, args: tuple) -> tuple:
    """Arrays of one type, and numbers that it has."""
    x, *others = args
    for _ in others:  # each may turn the first one into its own type
        for index, other in enumerate(others):
            x, others[index] = common_type(nn, name, x, other)
    return x, *others


_number_pair = _both(_pair, _numbers)
_real_pair = _both(_pair, _real)
_number_several = _both(_several, _numbers)
_real_several = _both(_several, _real)


def _summed(nn: Any, name: str, args: tuple) -> tuple:
    """A text, and arrays as in `_number_several`."""
    equation, *arrays = args
    return equation, *_number_several(nn, name, tuple(arrays))


def truth_values(name: str, x: Any) -> None:
    """Check that an array has truth values."""
    if is_floating(x) or is_whole(x):
        raise DtypeError(
            f"{name}: got a condition of {type_name(x)}, wanted truth values (bool)"
        )


def common_type(nn: Any, name: str, x: Any, other: Any) -> tuple[Any, Any]:
    """Return two arrays of one type, the greater of truth values, whole and floating numbers.

    A number stays as it is.

    Raises:
        DtypeError: The array's type does not have the number.
    """
    other = _plain(other, x)
    if isinstance(other, int | float):
        if not is_floating(x) and (isinstance(other, float) or not is_whole(x)):
            raise DtypeError(
                f"{name}: an array of {type_name(x)} and the number {other!r} have no common type: "
                "convert the array, such as by nn.cast(x, 'float32')"
            )
        if _is_beyond(other, x):
            raise DtypeError(
                f"{name}: an array of {type_name(x)} cannot hold {other!r}: convert it, such as by "
                "nn.cast(x, 'int64')"
            )
        return x, other
    if x.dtype == other.dtype:
        return x, other
    rank = _rank(x)
    other_rank = _rank(other)
    if rank < other_rank:
        return nn.cast(x, other), other
    if rank > other_rank:
        return x, nn.cast(other, x)
    return x, other


def _plain(value: Any, x: Any) -> Any:
    """Return a number of Python in the place of one of NumPy beside an array of floats."""
    if isinstance(value, np.number) and hasattr(x, "dtype") and is_floating(x):
        return value.item()
    return value


def _is_beyond(number: float, x: Any) -> bool:
    """Return whether an array of whole numbers has a type without this whole number."""
    if not is_whole(x) or isinstance(number, float):
        return False
    limits = np.iinfo(type_name(x))
    return not limits.min <= number <= limits.max


def _rank(x: Any) -> int:
    return 2 * is_floating(x) + is_whole(x)


def _spread(_nn: Any, _name: str, args: tuple) -> tuple:
    if len(args) != 2:
        return args
    x, shape = args
    return x, expanded(x.shape, shape)


_NAMES: dict[Rule, str] = {
    _real: """
        exp expm1 exp2 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh
        cosh tanh asinh acosh atanh sigmoid erf erfc exact_softplus logit floor ceil trunc frac
        round relu6 leaky_relu elu celu selu softplus mish logsigmoid softsign tanhshrink hardtanh
        hardshrink softshrink threshold glu silu gelu hardsigmoid hardswish prelu softmax
        log_softmax softmin mean nanmean var std var_mean std_mean logsumexp logcumsumexp norm
        quantile cdist pdist pairwise_distance matmul mv dot inner tensordot avg_pool
        adaptive_avg_pool lp_pool local_response_norm
        """,
    _numbers: """
        neg abs sign square relu cumsum cumprod cummax cummin prod sort argsort topk clamp kthvalue
        median amax amin argmax argmin diff nan_to_num scatter scatter_add index_add index_copy
        max_pool adaptive_max_pool
        """,
    _compared: "eq ne lt le gt ge isclose",
    _number_pair: "add sub mul div floor_divide remainder fmod pow maximum minimum outer kron",
    _real_pair: "xlogy logaddexp hypot atan2 cosine_similarity dist",
    _real_several: "lerp addcdiv",
    _number_several: "addcmul",
    _joined: "concatenate stack",
    _choice: "where",
    _summed: "einsum",
    _spread: "broadcast_to",
}
_RULES: dict[str, Rule] = {}
for _rule, _names in _NAMES.items():
    _RULES.update(dict.fromkeys(_names.split(), _rule))

# Functions that call code of others, or look at what is no array.
_OF_OTHERS = frozenset(
    {
        "gradient",
        "scan",
        "checked",
        "concrete",
        "prepare_rng",
        "draw",
        "keep_mask",
        "dropout_factors",
        "constant",
        "gradient_penalty",
        "r1_penalty",
        "perceptual_loss",
        "deep_supervision",
        "discriminator_loss",
        "generator_loss",
    }
)
