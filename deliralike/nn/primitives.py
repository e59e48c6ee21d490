"""The functions that a backend must provide: all others are written in terms of these.

Arrays are the backend's own (``torch.Tensor``, ``chainer.Variable`` or an array, ``jax.Array``), in
PyTorch layouts. A function takes the backend's parameters as well as its arrays, and changes no
argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from inspect import isfunction
from typing import Any

import numpy as np

from deliralike import random
from deliralike.errors import ShapeError
from deliralike.nn.arguments import BARE_ERRORS, guarded, is_guarded
from deliralike.nn.geometry import Pads
from deliralike.nn.start import Distribution

Array = Any
Dims = int | Sequence[int] | None


def other_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that is another one, or an operator, by a second name.

    Where calls are followed, the other one is followed in its place.
    """
    function.is_other_name = True  # type: ignore[attr-defined]
    return function


def of_one_array(function: Callable[[Array], Array]) -> Any:
    """Return the method of a vocabulary that is a framework's function of one array."""

    def method(self: Primitives, x: Array) -> Array:  # noqa: ARG001  # a method
        return function(x)

    return method


def at(x: Array, dim: int, index: int | slice) -> Array:
    """Return the elements of an array at a place, or at several, of an axis."""
    before = (slice(None),) * axis_of(dim, x.ndim)
    return x[(*before, index)]


def axis_of(dim: int, rank: int) -> int:
    """Return the number of an axis that may be counted from the end.

    Raises:
        ShapeError: There is no such axis.
    """
    if dim is None or not -rank <= dim < rank:
        raise ShapeError(f"there is no axis {dim} in an array of {rank} axes")
    return int(dim) % rank


class Primitives(ABC):
    """The functions of a backend, one short method each.

    Attributes:
        argument_errors: The types of error by which a framework refuses arguments; a function of a
            subclass raises `OperationError` in their place.
        takes_host_arrays: Whether functions compute with NumPy arrays beside the backend's own.
    """

    argument_errors = BARE_ERRORS
    takes_host_arrays = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let the functions of a vocabulary look at their arguments."""
        super().__init_subclass__(**kwargs)
        for name, function in list(vars(cls).items()):
            if isfunction(function) and is_guarded(name):
                setattr(cls, name, guarded(name, function))

    # Parameters

    @abstractmethod
    def Parameter(self, shape: Sequence[int], start: Distribution | np.ndarray) -> Any:
        """Make a trainable parameter.

        It is to be assigned to an attribute of a network under construction.

        Args:
            shape: The shape of the array.
            start: A distribution to draw from, or the value itself.
        """

    @abstractmethod
    def Buffer(self, value: np.ndarray | None) -> Any:
        """Make an array that is saved but not trained; None where there is none.

        It is to be assigned to an attribute of a network under construction.

        Assigning a new array to the attribute later sets its value, without its gradient. Floating
        values take the network's type.
        """

    def State(self, shape: Sequence[int], like: Array) -> Any:
        """Zeros that a network remembers from call to call, neither trained nor saved.

        It is to be assigned to an attribute of a network under construction. Assigning another
        array later sets its value, of whatever shape; ``self.state[...]`` reads it. Gradients flow
        through it within a step.
        """
        return self.zeros(shape, like)

    # Arrays

    @abstractmethod
    def constant(self, value: Any, like: Array) -> Array:
        """Copy a host array to the device of `like`.

        Floating values take the type of `like`, others keep their own.
        """

    @abstractmethod
    def zeros(self, shape: Sequence[int], like: Array) -> Array:
        """Zeros on the device and in the type of `like`."""

    @abstractmethod
    def cast(self, x: Array, dtype: str | Array) -> Array:
        """Convert to the type of another array, or to one by name.

        Names are ``"float32"``, ``"int64"``, ``"bool"``.
        """

    @abstractmethod
    def stop_gradient(self, x: Array) -> Array:
        """The same values, cut off from the gradient."""

    @abstractmethod
    def concrete(self, x: Array) -> np.ndarray | None:
        """The values as a NumPy array where they are on the host at no cost, else None.

        There are none while a program is traced, nor on a GPU.
        """

    def checked(self, x: Array, check: Callable[[np.ndarray], None]) -> None:
        """Make a check of the values where they are at hand on the host.

        Args:
            check: Raises an error; equal ones are made once.
        """
        values = self.concrete(x)
        if values is not None:
            check(values)

    def _per_channel(self, values: Array, x: Array) -> Array:
        """Shape one value for each channel so that the values broadcast over `x`."""
        return self.reshape(values, (1, -1) + (1,) * (x.ndim - 2))

    # Element by element

    @abstractmethod
    def exp(self, x: Array) -> Array:
        """The exponential."""

    @abstractmethod
    def log(self, x: Array) -> Array:
        """The natural logarithm."""

    @abstractmethod
    def sqrt(self, x: Array) -> Array:
        """The square root."""

    @abstractmethod
    def sin(self, x: Array) -> Array:
        """The sine."""

    @abstractmethod
    def cos(self, x: Array) -> Array:
        """The cosine."""

    @abstractmethod
    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent."""

    @abstractmethod
    def erf(self, x: Array) -> Array:
        """The error function."""

    @abstractmethod
    def sigmoid(self, x: Array) -> Array:
        """The logistic function.

        It is accurate in its far tail as well: ``sigmoid(-20)`` is 2.06e-9, not 0.
        """

    @abstractmethod
    def exact_softplus(self, x: Array) -> Array:
        """``log(1 + exp(x))`` without overflow, exact everywhere."""

    @abstractmethod
    def relu(self, x: Array, inplace: bool = False) -> Array:
        """``max(x, 0)`` with derivative 0 at 0; `inplace` is taken and has no effect."""

    @abstractmethod
    def abs(self, x: Array) -> Array:
        """The absolute value with derivative 0 at 0."""

    @abstractmethod
    def floor(self, x: Array) -> Array:
        """The largest whole number that is not above `x`, in its type; the derivative is 0."""

    @abstractmethod
    def atan(self, x: Array) -> Array:
        """The arc tangent."""

    @abstractmethod
    def where(self, condition: Array, x: Array | float, y: Array | float) -> Array:
        """`x` where the condition holds, else `y`."""

    # Reductions

    @abstractmethod
    def sum(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """The sum over some axes, or over all."""

    @abstractmethod
    def mean(self, x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """The mean over some axes, or over all."""

    @abstractmethod
    def max_along(self, x: Array, dim: int, keepdim: bool = False) -> Array:
        """The maximum over an axis; of equal maxima the first alone takes the gradient."""

    @abstractmethod
    def argmax_along(self, x: Array, dim: int) -> Array:
        """The index of the first maximum along an axis."""

    @abstractmethod
    def log_softmax(self, x: Array, dim: int) -> Array:
        """The logarithm of the softmax over an axis, without overflow."""

    # Shapes

    @abstractmethod
    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        """Another shape with the elements in row-major order; one size may be -1."""

    @abstractmethod
    def permute(self, x: Array, dims: Sequence[int]) -> Array:
        """Axes in another order."""

    @abstractmethod
    def broadcast_to(self, x: Array, shape: Sequence[int]) -> Array:
        """Repeat along axes of length one, and along new leading axes, to a shape.

        -1 stands for the size that an axis has.
        """

    @abstractmethod
    def concatenate(self, arrays: Sequence[Array], dim: int = 0) -> Array:
        """Join along an axis."""

    @abstractmethod
    def pad_constant(self, x: Array, pads: Pads, value: float = 0.0) -> Array:
        """Padding before and after every axis; negative numbers crop."""

    @abstractmethod
    def flip_along(self, x: Array, dim: int) -> Array:
        """The elements along an axis in reverse order."""

    @abstractmethod
    def select(self, x: Array, index: Array, dim: int) -> Array:
        """Select the elements at whole-number positions along an axis.

        `index` may have any shape and is not checked.

        Shapes:
            ``(..., n, ...)`` and ``index.shape`` give ``(..., *index.shape, ...)``.
        """

    @abstractmethod
    def select_along(self, x: Array, index: Array, dim: int) -> Array:
        """Select one element along an axis for each entry of `index`.

        `index` has as many axes as `x` and is not checked.
        """

    @abstractmethod
    def scatter_add(self, x: Array, dim: int, index: Array, src: Array) -> Array:
        """Add each entry of `src` to the element of `x` at its position along an axis.

        The transpose of `select_along`: `index` has the shape of `src`, as many axes as `x`, and is
        not checked. Entries at the same position are summed.

        Shapes:
            ``x.shape``
        """

    @abstractmethod
    def argsort_along(self, x: Array, dim: int) -> Array:
        """The positions that sort an axis in ascending order; equal elements keep their order."""

    # Products and windows

    @abstractmethod
    def matmul(self, x: Array, y: Array) -> Array:
        """The matrix product over the last two axes; leading axes broadcast."""

    @abstractmethod
    def einsum(self, equation: str, *arrays: Array) -> Array:
        """Einstein summation."""

    @abstractmethod
    def convolve(
        self,
        x: Array,
        weight: Array,
        stride: Sequence[int],
        pads: Pads,
        dilation: Sequence[int],
        groups: int,
    ) -> Array:
        """Cross-correlation in n dimensions, zero padding, without a bias.

        Negative padding crops.

        Shapes:
            ``(batch, in, *size)`` with ``(out, in/groups, *kernel)`` gives
            ``(batch, out, *new_size)``.
        """

    @abstractmethod
    def convolve_transposed(
        self,
        x: Array,
        weight: Array,
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Array:
        """The gradient of `convolve` with respect to its input, as a layer, without a bias.

        Shapes:
            ``(batch, in, *size)`` with ``(in, out/groups, *kernel)`` gives
            ``(batch, out, *new_size)``, where ``new`` is
            ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.
        """

    @abstractmethod
    def max_windows(
        self,
        x: Array,
        kernel: Sequence[int],
        stride: Sequence[int],
        pads: Pads,
        dilation: Sequence[int],
    ) -> Array:
        """The maximum of each window over the axes after the second.

        The input is padded with minus infinity, negative padding crops; sizes are rounded down.
        """

    @abstractmethod
    def sum_windows(
        self, x: Array, kernel: Sequence[int], stride: Sequence[int], pads: Pads
    ) -> Array:
        """The sum of each window over the axes after the second.

        The input is padded with zeros, negative padding crops; sizes are rounded down.
        """

    # Control flow and random numbers

    def prepare_rng(self, layer: Any) -> None:
        """Give a random layer under construction what the native generator needs.

        Nothing by default.
        """

    @abstractmethod
    def gradient(self, function: Callable[[Array], Array], x: Array) -> Array:
        """The gradient of a scalar function at `x`, as an array that can be differentiated again.

        It is differentiable with respect to `x` and to all that the function makes use of, such as
        the weights of a network; zero where the function does not depend on its argument. For
        penalties on gradients within a loss.

        Args:
            function: A function from an array like `x` to an array without axes. It may call
                networks; buffers that they change are changed once.
            x: A floating array.

        Shapes:
            ``x.shape``
        """

    def scan(
        self, step: Callable[[Any, Array], tuple[Any, Array]], carry: Any, xs: Array
    ) -> tuple[Any, Array]:
        """Run ``carry, y = step(carry, x)`` over the first axis of `xs`.

        Returns the last carry and the stacked ys. Layers that draw random numbers draw the same in
        each step.
        """
        outputs = []
        step = random.drawing_the_same(step)
        for t in range(xs.shape[0]):
            carry, y = step(carry, xs[t])
            outputs.append(self.reshape(y, (1, *y.shape)))
        return carry, self.concatenate(outputs, dim=0)

    @abstractmethod
    def draw(
        self, layer: Any, shape: Sequence[int], like: Array, kind: str, p: float = 0.0
    ) -> Array:
        """Random numbers of a layer, in the type of `like` and on its device.

        Portable (`deliralike.random.numbers` with the layer's path) inside ``random.portable``,
        else native.

        Args:
            layer: Whose path and native generator count.
            shape: That of the numbers, samples first.
            like: An array whose type and device the numbers take.
            kind: ``"keep"``, ones with probability ``1 - p`` and zeros; ``"normal"``, of mean 0 and
                variance 1; ``"uniform"``, from 0 to 1.
            p: The probability of zeros.
        """

    def keep_mask(
        self, layer: Any, shape: Sequence[int], p: float, like: Array
    ) -> Array:
        """Ones where an element survives dropout with probability `p`, zeros elsewhere."""
        return self.draw(layer, shape, like, "keep", p)

    def dropout_factors(
        self, layer: Any, shape: Sequence[int], like: Array
    ) -> Array | None:
        """What a `Dropout` layer multiplies an array of this shape by; None where it drops nothing.

        For arrays that are not at hand by themselves, such as the weights of attention.

        Args:
            layer: A `Dropout`, whose mode and rate `p` count.
            shape: That of the array, samples first.
            like: An array whose type and device the factors take.
        """
        if not layer.training or not layer.p:
            return None
        scale = 1.0 / (1.0 - layer.p) if layer.p < 1 else 0.0
        return self.keep_mask(layer, shape, layer.p, like) * scale
