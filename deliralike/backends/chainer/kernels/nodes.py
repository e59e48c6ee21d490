"""Function nodes that Chainer lacks or computes otherwise; all can be differentiated twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deliralike.backends.chainer.arrays import array_module, chainer
from deliralike.nn.start import Shape

F = chainer.functions
_Remainder: Any = F.math.fmod.Fmod
_SigmoidGrad = F.activation.sigmoid.SigmoidGrad
Pads = Sequence[tuple[int, int]]


class Sigmoid(chainer.FunctionNode):
    """The logistic function; Chainer's goes through tanh, which loses the far tail."""

    def forward(self, inputs):
        self.retain_outputs((0,))
        (x,) = inputs
        xp = array_module(x)
        small = xp.exp(-xp.abs(x))  # at most 1: no overflow on either side
        y = 1 / (1 + small)
        return (xp.asarray(xp.where(x < 0, small * y, y)),)

    def backward(self, indexes, gradients):
        (y,) = self.get_retained_outputs()
        return _SigmoidGrad((None,)).apply((y, gradients[0]))


class Softplus(chainer.FunctionNode):
    """``log(1 + exp(x))``, with the sigmoid above as derivative."""

    def forward(self, inputs):
        self.retain_inputs((0,))
        (x,) = inputs
        xp = array_module(x)
        tail = xp.log1p(xp.exp(-xp.abs(x)))
        return (xp.asarray(xp.maximum(x, 0) + tail),)

    def backward(self, indexes, gradients):
        (x,) = self.get_retained_inputs()
        return (gradients[0] * Sigmoid().apply((x,))[0],)


class Fmod(_Remainder):
    """The remainder; Chainer's derivative calls ``numpy.fix``, which NumPy 2.5 deprecates."""

    def backward(self, indexes, gradients):
        x, divisor = (variable.array for variable in self.get_retained_inputs())
        (gradient,) = gradients
        return gradient, -array_module(x).trunc(x / divisor) * gradient


class ReLU(chainer.FunctionNode):
    """``max(x, 0)``, and at most a cap if there is one.

    Outside of these bounds the derivative is 0, whatever gradient comes back: Chainer's own, a
    product, makes NaN of NaN and infinity.
    """

    def __init__(self, cap: float | None = None) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, inputs):
        self.retain_outputs((0,))
        xp = array_module(inputs[0])
        y = xp.maximum(inputs[0], 0)
        if self.cap is not None:
            y = xp.minimum(y, self.cap)
        return (xp.asarray(y),)

    def backward(self, indexes, gradients):
        y = self.get_retained_outputs()[0].array
        inside = y != 0
        if self.cap is not None:
            inside &= y != self.cap

        def inner(x: Any, _: Any = None) -> Any:
            return keep_where(x, inside)

        return LinearMap(inner, inner).apply(gradients)


def keep_where(x: Any, mask: Any) -> Any:
    """Return `x` where a mask is true and 0 elsewhere, where it may be NaN or infinite, too.

    The numbers are multiplied as integers of the same bits: NumPy's `where` takes ten times as long
    as a product.
    """
    bits = x.view(f"i{x.dtype.itemsize}")
    return array_module(x).asarray(bits * mask).view(x.dtype)


class LinearMap(chainer.FunctionNode):
    """A linear function of an array, whose derivative is its transpose.

    Args:
        function: The function of an array.
        transpose: From an array like the result, and the shape of the argument, to an array of that
            shape.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        transpose: Callable[[Any, Shape], Any],
    ) -> None:
        super().__init__()
        self.function, self.transpose = function, transpose

    def forward(self, inputs):
        return (self.function(inputs[0]),)

    def backward(self, indexes, gradients):
        return self.transposed(self.inputs[0].shape).apply(gradients)

    def transposed(self, shape: Shape) -> LinearMap:
        """Return the transpose, for arguments of a shape."""
        function, transpose = self.function, self.transpose
        return LinearMap(lambda gy: transpose(gy, shape), lambda gx, _: function(gx))


class Pad(chainer.FunctionNode):
    """Padding with a constant; negative numbers crop. Its derivative is the opposite padding."""

    def __init__(self, pads: Pads, value: float = 0.0) -> None:
        super().__init__()
        self.pads = tuple(pads)
        self.value = value

    def forward(self, inputs):
        (x,) = inputs
        inner = x[_without_margins(x.shape, self._opposite())]
        if all(before <= 0 and after <= 0 for before, after in self.pads):
            return (inner,)
        shape = [n + sum(pads) for n, pads in zip(x.shape, self.pads, strict=True)]
        y = array_module(x).full(shape, self.value, x.dtype)
        y[_without_margins(y.shape, self.pads)] = inner
        return (y,)

    def backward(self, indexes, gradients):
        return Pad(self._opposite()).apply(gradients)

    def _opposite(self) -> list[tuple[int, int]]:
        return [(-before, -after) for before, after in self.pads]


def _without_margins(shape: Sequence[int], margins: Pads) -> tuple[slice, ...]:
    """Return the index of an array without its positive margins, before and after on each axis."""
    axes = zip(shape, margins, strict=True)
    return tuple(
        slice(max(before, 0), n - max(after, 0)) for n, (before, after) in axes
    )


# Selecting
# ------------------------------------------------------------


def select(index: Any, axis: int) -> LinearMap:
    """Return the elements at positions along an axis.

    In the transpose gradients of the same position are summed.
    """

    def function(x: Any) -> Any:
        return array_module(x).take(x, index, axis=axis)

    def transpose(gy: Any, shape: Shape) -> Any:
        gy = gy.reshape(*shape[:axis], index.size, *shape[axis + 1 :])
        xp = array_module(gy)
        gx = xp.zeros(shape, gy.dtype)
        xp.add.at(gx, (slice(None),) * axis + (index.ravel(),), gy)
        return gx

    return LinearMap(function, transpose)


def select_along(index: Any, axis: int) -> LinearMap:
    """Return one element along an axis for each entry of an index with as many axes."""

    def function(x: Any) -> Any:
        inner = [slice(size) for size in index.shape]
        inner[axis] = slice(None)
        return array_module(x).take_along_axis(x[tuple(inner)], index, axis)

    def transpose(gy: Any, shape: Shape) -> Any:
        xp = array_module(gy)
        grid = list(xp.ogrid[tuple(slice(n) for n in index.shape)])
        grid[axis] = index
        positions = tuple(grid)
        gx = xp.zeros(shape, gy.dtype)
        if index.shape[axis] == 1:  # nothing is taken twice
            gx[positions] = gy
        else:
            xp.add.at(gx, positions, gy)
        return gx

    return LinearMap(function, transpose)
