"""Further names that PyTorch has for functions of tensors."""

from typing import Any

from deliralike.nn.primitives import Array, other_name
from deliralike.nn.selecting import Selecting


def _same(name: str) -> Any:
    """Make a method that is another one by a second name."""

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    function.__doc__ = f"`{name}` by another name."
    return other_name(function)


class OtherNames(Selecting):
    """Functions that are others by a second name."""

    absolute = _same("abs")
    arccos = _same("acos")
    arccosh = _same("acosh")
    arcsin = _same("asin")
    arcsinh = _same("asinh")
    arctan = _same("atan")
    arctan2 = _same("atan2")
    arctanh = _same("atanh")
    clip = _same("clamp")
    concat = _same("cat")
    detach = _same("stop_gradient")
    divide = _same("div")
    fix = _same("trunc")
    greater = _same("gt")
    greater_equal = _same("ge")
    less = _same("lt")
    less_equal = _same("le")
    moveaxis = _same("movedim")
    multiply = _same("mul")
    negative = _same("neg")
    not_equal = _same("ne")
    row_stack = _same("vstack")
    subtract = _same("sub")
    swapdims = _same("transpose")
    true_divide = _same("div")

    @other_name
    def clone(self, x: Array) -> Array:
        """The array itself: no function changes its arguments, so that no copy is needed."""
        return x

    @other_name
    def floor_divide(self, x: Array, other: Array | float) -> Array:
        """``x / other``, rounded down."""
        return self.div(x, other, rounding_mode="floor")
