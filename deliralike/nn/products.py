"""Products of matrices and vectors, and arrays made from numbers, written on the primitives."""

import math
from collections.abc import Sequence

import numpy as np

from deliralike.nn import checks
from deliralike.nn.primitives import Array, axis_of, other_name
from deliralike.nn.shaping import Shaping


def _check_matrices(name: str, x: Array, y: Array, rank: int) -> None:
    """Check that two arrays are matrices, or batches of them of one size."""
    if not x.ndim == y.ndim == rank or x.shape[:-2] != y.shape[:-2]:
        batch = " and one batch size" if rank > 2 else ""
        raise checks.shape_error(name, f"two of {rank} axes{batch}", x, y)


def _weighted_sum(x: Array, product: Array, beta: float, alpha: float) -> Array:
    """Return ``beta * x + alpha * product``, without NaN of an `x` that does not count."""
    scaled = alpha * product
    return scaled if beta == 0 else beta * x + scaled


class Products(Shaping):
    """Products by the names of PyTorch."""

    @other_name
    def mm(self, x: Array, mat2: Array) -> Array:
        """The product of two matrices."""
        _check_matrices("mm", x, mat2, 2)
        return self.matmul(x, mat2)

    @other_name
    def bmm(self, x: Array, mat2: Array) -> Array:
        """The products of two batches of matrices."""
        _check_matrices("bmm", x, mat2, 3)
        return self.matmul(x, mat2)

    @other_name
    def mv(self, x: Array, vec: Array) -> Array:
        """The product of a matrix and a vector."""
        if x.ndim != 2 or vec.ndim != 1:
            raise checks.shape_error("mv", "a matrix and a vector", x, vec)
        return self.reshape(self.matmul(x, self.expand_dims(vec, 1)), (x.shape[0],))

    def dot(self, x: Array, tensor: Array) -> Array:
        """The sum of the products of two vectors' elements."""
        if x.ndim != 1 or tuple(x.shape) != tuple(tensor.shape):
            raise checks.shape_error("dot", "two vectors of one length", x, tensor)
        return self.sum(x * tensor)

    @other_name
    def inner(self, x: Array, other: Array) -> Array:
        """The sums of products over the last axes of two arrays."""
        return self.tensordot(x, other, ([-1], [-1]))

    def outer(self, x: Array, vec2: Array) -> Array:
        """The products of all pairs of two vectors' elements."""
        if x.ndim != 1 or vec2.ndim != 1:
            raise checks.shape_error("outer", "two vectors", x, vec2)
        return self.expand_dims(x, 1) * self.expand_dims(vec2, 0)

    def kron(self, x: Array, other: Array) -> Array:
        """The Kronecker product of two arrays; the one with fewer axes gets more in front."""
        rank = max(x.ndim, other.ndim)
        sizes = (*[1] * (rank - x.ndim), *x.shape)
        other_sizes = (*[1] * (rank - other.ndim), *other.shape)
        rows = [length for size in sizes for length in (size, 1)]
        columns = [length for size in other_sizes for length in (1, size)]
        product = self.reshape(x, rows) * self.reshape(other, columns)
        return self.reshape(
            product, [a * b for a, b in zip(sizes, other_sizes, strict=True)]
        )

    def tensordot(
        self, a: Array, b: Array, dims: int | Sequence[Sequence[int]] = 2
    ) -> Array:
        """The sums of products over axes of both arrays.

        Args:
            a, b: The arrays.
            dims: How many of the last axes of `a` and the first ones of `b`; or the axes of both.
        """
        if isinstance(dims, int | np.integer):
            dims = (range(-dims, 0), range(dims))
        over_a = [axis_of(dim, a.ndim) for dim in dims[0]]
        over_b = [axis_of(dim, b.ndim) for dim in dims[1]]
        count = math.prod(a.shape[dim] for dim in over_a)
        left = self.movedim(a, over_a, range(-len(over_a), 0))
        right = self.movedim(b, over_b, range(len(over_b)))
        shape_of_a = left.shape[: a.ndim - len(over_a)]
        kept_of_b = right.shape[len(over_b) :]
        rows = self.reshape(left, (math.prod(shape_of_a), count))
        columns = self.reshape(right, (count, math.prod(kept_of_b)))
        shape = (*shape_of_a, *kept_of_b)
        return self.reshape(self.matmul(rows, columns), shape)

    @other_name
    def addmm(
        self, x: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1
    ) -> Array:
        """``beta * x + alpha * (mat1 @ mat2)``; for ``beta=0`` whatever `x` is."""
        return _weighted_sum(x, self.mm(mat1, mat2), beta, alpha)

    @other_name
    def baddbmm(
        self,
        x: Array,
        batch1: Array,
        batch2: Array,
        *,
        beta: float = 1,
        alpha: float = 1,
    ) -> Array:
        """``beta * x + alpha * (batch1 @ batch2)``; for ``beta=0`` whatever `x` is."""
        return _weighted_sum(x, self.bmm(batch1, batch2), beta, alpha)

    def cross(self, x: Array, other: Array, dim: int | None = None) -> Array:
        """The cross product of vectors with three elements along an axis.

        The axis is the first one with three elements when not given.
        """
        if dim is None:
            dim = next((axis for axis, size in enumerate(x.shape) if size == 3), -1)
        if x.ndim != other.ndim:
            raise checks.shape_error("cross", "as many axes", x, other)
        if x.shape[dim] != 3 or other.shape[dim] != 3:
            wanted = f"three elements along axis {dim} of both"
            raise checks.shape_error("cross", wanted, x, other)
        forwards = self.roll(x, -1, dim) * self.roll(other, 1, dim)
        backwards = self.roll(x, 1, dim) * self.roll(other, -1, dim)
        return forwards - backwards

    def bilinear(
        self, input1: Array, input2: Array, weight: Array, bias: Array | None = None
    ) -> Array:
        """``input1 @ weight[k] @ input2 + bias[k]`` for each output k.

        Shapes:
            ``(..., in1)`` and ``(..., in2)`` with ``(out, in1, in2)`` give ``(..., out)``.
        """
        out, in1, in2 = weight.shape
        count = math.prod(input1.shape[:-1])
        rows = self.reshape(input1, (count, in1))
        flat = self.reshape(self.permute(weight, (1, 0, 2)), (in1, out * in2))
        half = self.reshape(self.matmul(rows, flat), (count, out, in2))
        y = self.sum(half * self.reshape(input2, (count, 1, in2)), 2)
        y = self.reshape(y, (*input1.shape[:-1], out))
        if bias is None:
            return y
        return y + bias

    # Arrays made from numbers: on the device and in the type of `like`

    @other_name
    def ones(self, shape: Sequence[int], like: Array) -> Array:
        """Ones on the device and in the type of `like`."""
        return self.full(shape, 1, like)

    @other_name
    def full(self, shape: Sequence[int], fill_value: float, like: Array) -> Array:
        """One number everywhere, on the device and in the type of `like`."""
        zeros = self.zeros(tuple(shape), like=like)
        return self.cast(zeros + fill_value, like)

    @other_name
    def zeros_like(self, x: Array) -> Array:
        """Zeros of the shape and type of `x`."""
        return self.zeros(tuple(x.shape), like=x)

    @other_name
    def ones_like(self, x: Array) -> Array:
        """Ones of the shape and type of `x`."""
        return self.ones(x.shape, like=x)

    @other_name
    def full_like(self, x: Array, fill_value: float) -> Array:
        """One number everywhere, in the shape and type of `x`."""
        return self.full(x.shape, fill_value, like=x)

    @other_name
    def arange(
        self, start: float, end: float | None = None, step: float = 1, *, like: Array
    ) -> Array:
        """Numbers from `start` (0 if there is no `end`) to before `end`.

        Whole numbers are int64, others have the type of `like`.
        """
        if end is None:
            start, end = 0, start
        return self.constant(np.arange(start, end, step), like=like)

    @other_name
    def linspace(self, start: float, end: float, steps: int, *, like: Array) -> Array:
        """So many numbers at equal distances, both ends included."""
        return self.constant(np.linspace(start, end, steps), like=like)

    @other_name
    def eye(self, n: int, m: int | None = None, *, like: Array) -> Array:
        """The unit matrix."""
        return self.constant(np.eye(n, m), like=like)
