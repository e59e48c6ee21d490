"""Arithmetic, comparisons and other functions of single elements, written on the primitives."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from deliralike.errors import DtypeError, SettingError
from deliralike.nn import checks
from deliralike.nn.arguments import common_type, in_float32, truth_values
from deliralike.nn.checks import is_floating
from deliralike.nn.primitives import Array, Primitives, other_name

# The largest finite number of each floating type.
_LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
}


class Elementwise(Primitives):
    """Functions that keep the shape of their arrays; two arrays are broadcast."""

    # Arithmetic

    @other_name
    def add(self, x: Array, other: Array | float, *, alpha: float = 1) -> Array:
        """``x + alpha * other``."""
        return x + other if alpha == 1 else x + alpha * other

    @other_name
    def sub(self, x: Array, other: Array | float, *, alpha: float = 1) -> Array:
        """``x - alpha * other``."""
        return x - other if alpha == 1 else x - alpha * other

    @other_name
    def mul(self, x: Array, other: Array | float) -> Array:
        """``x * other``."""
        return x * other

    @other_name
    def div(
        self, x: Array, other: Array | float, *, rounding_mode: str | None = None
    ) -> Array:
        """``x / other``, as it is, or rounded down (``"floor"``) or towards zero (``"trunc"``)."""
        checks.one_of(rounding_mode, (None, "floor", "trunc"), "div: rounding_mode")
        if is_floating(x):
            if rounding_mode is None:
                return self._quotient(x, other)
            return self._whole_quotient(x, other, rounding_mode)
        if rounding_mode is None:
            raise DtypeError(
                "div: whole numbers have a quotient with a rounding_mode alone"
            )
        quotient = x // other
        if rounding_mode == "floor":
            return quotient
        is_inexact_below_zero = (quotient < 0) & (quotient * other != x)
        return self.where(is_inexact_below_zero, quotient + 1, quotient)

    def _quotient(self, x: Array, other: Array | float) -> Array:
        """A quotient, also by the number 0, by which Python would refuse to divide."""
        if isinstance(other, int | float) and other == 0:
            other = self._array(other, x)
        return x / other

    def _whole_quotient(self, x: Array, other: Array | float, mode: str) -> Array:
        """A quotient without its fraction, and without a derivative."""
        quotient = self.stop_gradient(self._quotient(x, other))
        if mode == "trunc":
            return self.trunc(quotient)
        # 1 / 0.1 is 10 when rounded, where 1 is less than 10 times the number called 0.1
        rest = self.stop_gradient(self.fmod(x, other))
        whole = self.stop_gradient(self._quotient(x - rest, other))
        is_below = (rest != 0) & ((rest < 0) != (other < 0))
        whole = self.round(self.where(is_below, whole - 1.0, whole))
        return self.where(rest == rest, whole, self.floor(quotient))

    @other_name
    def neg(self, x: Array) -> Array:
        """``-x``."""
        return -x

    def pow(self, x: Array, exponent: Array | float) -> Array:
        """``x ** exponent``; the derivative for the exponent 0 is 0."""
        if isinstance(exponent, int | float):
            if exponent < 0 and not is_floating(x):
                raise SettingError(
                    f"pow: whole numbers have no power of exponent {exponent!r}"
                )
            return self._ones(x.shape, x) if exponent == 0 else x**exponent
        if not is_floating(x):
            return x**exponent
        is_zero = x == 0
        power = self.where(is_zero, 1.0, x) ** exponent
        return self.where(is_zero, self._power_of_zero(x, exponent), power)

    def square(self, x: Array) -> Array:
        """``x * x``."""
        return x * x

    def reciprocal(self, x: Array) -> Array:
        """``1 / x``."""
        return 1.0 / x

    def rsqrt(self, x: Array) -> Array:
        """``1 / sqrt(x)``."""
        return 1.0 / self.sqrt(x)

    def remainder(self, x: Array, other: Array | float) -> Array:
        """The remainder of a division that rounds down: it has the sign of `other`."""
        if not is_floating(x):
            return x % other
        rest = self.fmod(x, other)
        is_of_other_sign = (rest != 0) & ((rest < 0) != (other < 0))
        return self.where(is_of_other_sign, rest + other, rest)

    def fmod(self, x: Array, other: Array | float) -> Array:
        """The remainder of a division that rounds towards zero: it has the sign of `x`."""
        return x - self.div(x, other, rounding_mode="trunc") * other

    @other_name
    def lerp(self, x: Array, end: Array, weight: Array | float) -> Array:
        """``(1 - weight) * x + weight * end``."""
        return (1.0 - weight) * x + weight * end

    @other_name
    def addcmul(
        self, x: Array, tensor1: Array, tensor2: Array, *, value: float = 1
    ) -> Array:
        """``x + value * tensor1 * tensor2``."""
        return x + value * tensor1 * tensor2

    @other_name
    def addcdiv(
        self, x: Array, tensor1: Array, tensor2: Array, *, value: float = 1
    ) -> Array:
        """``x + value * tensor1 / tensor2``."""
        return x + value * tensor1 / tensor2

    # Rounding

    def ceil(self, x: Array) -> Array:
        """The smallest whole number that is not below `x`, in its type; the derivative is 0."""
        return -self.floor(-x)

    def trunc(self, x: Array) -> Array:
        """The whole part, in the type of `x`; the derivative is 0."""
        return self.where(x < 0, self.ceil(x), self.floor(x))

    def frac(self, x: Array) -> Array:
        """What `trunc` leaves."""
        return x - self.trunc(x)

    def round(self, x: Array, *, decimals: int = 0) -> Array:
        """The nearest whole number, halves to the even one; the derivative is 0."""
        if decimals:
            scale = 10.0**decimals
            return self.round(x * scale) * (1.0 / scale)
        low = self.floor(x)
        above = x - low
        low_is_odd = self.floor(low * 0.5) * 2.0 != low
        goes_up = (above > 0.5) | ((above == 0.5) & low_is_odd)
        return self.where(goes_up, low + 1.0, low)

    # Exponentials, logarithms and angles

    def log1p(self, x: Array) -> Array:
        """``log(1 + x)``, also near 0."""
        return self.log(1.0 + x)

    def expm1(self, x: Array) -> Array:
        """``exp(x) - 1``, also near 0."""
        is_near = self.abs(x) < 1.0
        half = self.tanh(self.where(is_near, x, 0.0) * 0.5)
        return self.where(is_near, 2.0 * half / (1.0 - half), self.exp(x) - 1.0)

    @in_float32
    def exp2(self, x: Array) -> Array:
        """``2 ** x``."""
        return self.exp(x * math.log(2.0))

    def log2(self, x: Array) -> Array:
        """The logarithm to the base 2."""
        return self.log(x) * (1.0 / math.log(2.0))

    def log10(self, x: Array) -> Array:
        """The logarithm to the base 10."""
        return self.log(x) * (1.0 / math.log(10.0))

    def logaddexp(self, x: Array, other: Array) -> Array:
        """``log(exp(x) + exp(other))`` without overflow."""
        is_less = x < other
        larger, smaller = self.where(is_less, other, x), self.where(is_less, x, other)
        same_infinity = self.logical_and(x == other, self.isinf(x))  # no difference
        difference = self.where(same_infinity, 0.0, smaller - larger)
        return larger + self.exact_softplus(difference)

    def logit(self, x: Array, eps: float | None = None) -> Array:
        """``log(x / (1 - x))``; with `eps`, of `x` clamped to ``[eps, 1 - eps]``."""
        if eps is not None:
            bounded = self.where(x > 1.0 - eps, 1.0 - eps, x)
            x = self.where(x < eps, eps, bounded)  # the lower bound wins
        return self.log(x) - self.log1p(-x)

    def xlogy(self, x: Array, other: Array) -> Array:
        """``x * log(other)``, which is 0 where `x` is 0."""
        other = self._array(other, x)
        is_zero = (x == 0) & ((other <= 0) | (other == math.inf))
        return self.where(is_zero, 0.0, x * self.log(self.where(is_zero, 1.0, other)))

    def erfc(self, x: Array) -> Array:
        """``1 - erf(x)``."""
        return 1.0 - self.erf(x)

    def tan(self, x: Array) -> Array:
        """The tangent."""
        return self.sin(x) / self.cos(x)

    def asin(self, x: Array) -> Array:
        """The arc sine."""
        # two roots, so that the derivative at both ends is infinite and not NaN
        return 2.0 * self.atan(x / (1.0 + self.sqrt(1.0 - x) * self.sqrt(1.0 + x)))

    def acos(self, x: Array) -> Array:
        """The arc cosine."""
        is_right = x > 0  # where a difference from pi / 2 would lose digits
        right = self.where(is_right, x, 0.0)
        y = 2.0 * self.atan(self.sqrt(1.0 - right) / self.sqrt(1.0 + right))
        left = math.pi / 2 - self.asin(self.where(is_right, 0.0, x))
        return self.where(is_right, y, left)

    def atan2(self, x: Array, other: Array) -> Array:
        """The angle of the point ``(other, x)``, from -pi to pi."""
        is_steep = self.abs(x) > self.abs(other)
        is_origin = (x == 0) & (other == 0)
        below = self.where(is_origin, 1.0, self.where(is_steep, x, other))
        angle = self.atan(
            self.where(is_origin, 0.0, self.where(is_steep, other, x)) / below
        )
        zeros = self.zeros(tuple(x.shape), like=x)
        half_turn = self.where(x < 0, zeros - math.pi, zeros + math.pi)
        steep = 0.5 * half_turn - angle
        return self.where(
            is_steep, steep, self.where(other < 0, angle + half_turn, angle)
        )

    def sinh(self, x: Array) -> Array:
        """The hyperbolic sine."""
        return 0.5 * (self.expm1(x) - self.expm1(-x))

    def cosh(self, x: Array) -> Array:
        """The hyperbolic cosine."""
        half = self.sinh(0.5 * x)  # so that the derivative near 0 is no difference
        return 1.0 + 2.0 * half * half

    @in_float32
    def asinh(self, x: Array) -> Array:
        """The inverse of `sinh`."""
        size = self.where(x < 0, -x, x)
        is_large = size > 1.0
        inside = self.where(is_large, 1.0, size)
        inverse = 1.0 / self.where(is_large, size, 1.0)
        # size / (1 + sqrt(1 + size * size)), where no square overflows
        below = inverse + self.sqrt(inverse * inverse + inside * inside)
        y = self.log1p(size + size * (inside / below))
        return self.where(x < 0, -y, y)

    @in_float32
    def acosh(self, x: Array) -> Array:
        """The inverse of `cosh`, for ``x >= 1``."""
        above = x - 1.0
        return self.log1p(above + self.sqrt(above) * self.sqrt(x + 1.0))

    def atanh(self, x: Array) -> Array:
        """The inverse of `tanh`."""
        return 0.5 * (self.log1p(x) - self.log1p(-x))

    def hypot(self, x: Array, other: Array) -> Array:
        """``sqrt(x * x + other * other)``, also where the squares are too large or too small."""
        other = self._array(other, x)
        size = self.stop_gradient(self.maximum(self.abs(x), self.abs(other)))
        scale = self.where((size > 0) & (size < math.inf), size, 1.0)
        x = x / scale
        other = other / scale
        return scale * self.sqrt(x * x + other * other)

    # Bounds and masks

    def clamp(
        self,
        x: Array,
        min: Array | float | None = None,
        max: Array | float | None = None,
    ) -> Array:
        """Limit to ``[min, max]``, numbers or arrays; the derivative at both bounds is 1.

        `max` wins where it is below `min`.
        """
        if min is None and max is None:
            raise SettingError("clamp: give min, max or both")
        if min is not None:
            x, min = common_type(self, "clamp", x, min)
            x = self.where(x < min, min, x)
        if max is not None:
            x, max = common_type(self, "clamp", x, max)
            x = self.where(x > max, max, x)
        return x

    def maximum(self, x: Array, other: Array) -> Array:
        """The larger of two elements; equal ones share the gradient."""
        return self._chosen(x > other, x, other)

    def minimum(self, x: Array, other: Array) -> Array:
        """The smaller of two elements; equal ones share the gradient."""
        return self._chosen(x < other, x, other)

    @other_name
    def masked_fill(self, x: Array, mask: Array, value: Array | float) -> Array:
        """`value` where the mask is true, else `x`; `mask` is broadcast."""
        truth_values("masked_fill", mask)
        if not isinstance(value, Real):  # of Python or NumPy
            return self.where(mask, value, x)
        number = value if isinstance(value, int | float) else float(value)
        return self.where(mask, self._fitting("masked_fill", number, x), x)

    def sign(self, x: Array) -> Array:
        """-1, 0 or 1 in the type of `x`; the derivative is 0."""
        return self.cast(x > 0, x) - self.cast(x < 0, x)

    def nan_to_num(
        self,
        x: Array,
        nan: float | None = None,
        posinf: float | None = None,
        neginf: float | None = None,
    ) -> Array:
        """Finite numbers for NaN (0) and for infinities (the largest of the type)."""
        if not is_floating(x):
            return x
        largest = _LARGEST[checks.type_name(x)]
        x = self.where(x != x, 0.0 if nan is None else float(nan), x)
        x = self.where(x == math.inf, largest if posinf is None else float(posinf), x)
        return self.where(
            x == -math.inf, -largest if neginf is None else float(neginf), x
        )

    # Comparisons and truth values

    @other_name
    def eq(self, x: Array, other: Array | float) -> Array:
        """``x == other``."""
        return x == other

    @other_name
    def ne(self, x: Array, other: Array | float) -> Array:
        """``x != other``."""
        return x != other

    @other_name
    def lt(self, x: Array, other: Array | float) -> Array:
        """``x < other``."""
        return x < other

    @other_name
    def le(self, x: Array, other: Array | float) -> Array:
        """``x <= other``."""
        return x <= other

    @other_name
    def gt(self, x: Array, other: Array | float) -> Array:
        """``x > other``."""
        return x > other

    @other_name
    def ge(self, x: Array, other: Array | float) -> Array:
        """``x >= other``."""
        return x >= other

    def isclose(
        self, x: Array, other: Array, rtol: float = 1e-5, atol: float = 1e-8
    ) -> Array:
        """Whether ``|x - other|`` is at most ``atol + rtol * |other|``."""
        if not is_floating(x):
            x = self.cast(x, "float64")
            other = self.cast(other, "float64")
        near = self.abs(x - other) <= atol + rtol * self.abs(other)
        return (x == other) | (near & (self.abs(other) < math.inf))

    @other_name
    def isnan(self, x: Array) -> Array:
        """Whether an element is NaN."""
        return x != x

    @other_name
    def isinf(self, x: Array) -> Array:
        """Whether an element is an infinity."""
        if not is_floating(x):
            return x != x
        return self.abs(x) == math.inf

    @other_name
    def isfinite(self, x: Array) -> Array:
        """Whether an element is neither NaN nor an infinity."""
        if not is_floating(x):
            return x == x
        return self.abs(x) < math.inf

    @other_name
    def logical_not(self, x: Array) -> Array:
        """Whether an element is zero or false."""
        return ~self.cast(x, "bool")

    @other_name
    def logical_and(self, x: Array, other: Array) -> Array:
        """Whether both elements are true."""
        return self.cast(x, "bool") & self.cast(other, "bool")

    @other_name
    def logical_or(self, x: Array, other: Array) -> Array:
        """Whether one of two elements is true."""
        return self.cast(x, "bool") | self.cast(other, "bool")

    @other_name
    def logical_xor(self, x: Array, other: Array) -> Array:
        """Whether one of two elements is true, and the other is not."""
        return self.cast(x, "bool") ^ self.cast(other, "bool")

    def _array(self, x: Array | float, like: Array) -> Array:
        """An array as it is, a number in the type of another array."""
        return self.constant(float(x), like=like) if isinstance(x, int | float) else x

    def _ones(self, shape: Sequence[int], like: Array) -> Array:
        return self.zeros(tuple(shape), like=like) + 1

    def _fitting(self, name: str, value: Any, x: Array) -> float:
        """A number in the type of an array.

        Raises:
            DtypeError: The type has no such number.
        """
        if is_floating(x):
            return float(value)
        fitting = int(value) if checks.is_whole(x) else bool(value)
        if fitting != value:
            raise DtypeError(
                f"{name}: an array of {checks.type_name(x)} cannot hold {value!r}"
            )
        return fitting

    def _chosen(self, is_first: Array, x: Array, other: Array) -> Array:
        """One of two elements, NaN if the first one is; equal ones share the gradient."""
        chosen = self.where(is_first | (x != x), x, other)
        if not is_floating(x):
            return chosen
        return self.where(x == other, 0.5 * x + 0.5 * other, chosen)

    def _power(self, base: Array, exponent: float) -> Array:
        """Raise elements that are not negative to a power.

        The derivatives at 0 are 0, even where the exponent is small.
        """
        if exponent == 1.0:
            return base
        if exponent == 0.0:
            return base * 0.0 + 1.0
        is_zero = base <= 0.0  # NaN stays
        safe = self.where(is_zero, 1.0, base)
        return self.where(is_zero, 0.0, safe**exponent)

    def _root(self, squares: Array) -> Array:
        """The square root with derivative 0 at 0."""
        is_zero = squares == 0.0
        return self.where(is_zero, 0.0, self.sqrt(self.where(is_zero, 1.0, squares)))

    def _power_of_zero(self, x: Array, exponent: Array) -> Array:
        """0 to a power: infinite, 1, a root, 0 itself or 0, with the derivative in `x`."""
        exponent = self.stop_gradient(exponent)
        is_root = (exponent > 0) & (exponent < 1)
        root = self.sqrt(self.where(is_root, x, 1.0))
        y = self.where(
            exponent == 1, x, self.stop_gradient(self.cast(exponent == 0, x))
        )
        is_negative = exponent < 0
        inverse = self.reciprocal(self.where(is_negative, x, 1.0))
        y = self.where(exponent == exponent, y, exponent)  # NaN
        return self.where(is_negative, inverse, self.where(is_root, root, y))
