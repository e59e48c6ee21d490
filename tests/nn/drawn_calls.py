"""Calls of the functions that have PyTorch's names, drawn from a table of their signatures.

A row of the table draws the arguments of one call: arrays of any shapes (no axes, one element,
none), values at the edge (ties, zeros, bounds), whole numbers and truth values, Python numbers,
negative axes and ones that there are not, bounds in the wrong order.
"""

import numpy as np

SEED, COUNT = 0, 12  # calls of each function
TABLE = {}  # name -> the rows that draw its arguments
EDGES = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0)


def row(names):
    """Add a function from a `Draw` to arguments to the table, under several names."""

    def add(make):
        for name in names.split():
            TABLE.setdefault(name, []).append(make)
        return make

    return add


def draw_calls(name, count, seed):
    """Draw so many calls of a function: (args, kwargs)."""
    rng = np.random.default_rng([seed, *name.encode()])
    rows = TABLE[name]
    return [_arguments(rows[index % len(rows)](Draw(rng))) for index in range(count)]


def _arguments(drawn):
    """The arguments as (args, kwargs); a row returns the first ones alone where there are no
    others."""
    args, kwargs = drawn, {}
    if isinstance(drawn[-1], dict):
        *args, kwargs = drawn
    return tuple(map(_as_array, args)), kwargs


def _as_array(value):
    """NumPy's numbers as arrays without axes."""
    if isinstance(value, list) and value and not isinstance(value[0], int | list):
        return [np.asarray(each) for each in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


class Fixed(np.ndarray):
    """An array with respect to which PyTorch does not differentiate."""


def fixed(array):
    return np.asarray(array).view(Fixed)


class Draw:
    """What rows draw from."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def chance(self, p):
        return self.rng.random() < p

    def some(self, **kwargs):
        """Each of the keyword arguments, or not."""
        return {key: value for key, value in kwargs.items() if self.chance(0.5)}

    # Shapes and axes

    def size(self):
        return int(self.rng.choice([0, 1, 2, 3, 4], p=[0.04, 0.16, 0.3, 0.3, 0.2]))

    def shape(self, low=0, high=3):
        return tuple(self.size() for _ in range(self.rng.integers(low, high + 1)))

    def other(self, shape):
        """A shape that broadcasts with another one, mostly."""
        if self.chance(0.03):
            return self.shape()
        shape = [1 if self.chance(0.2) else size for size in shape]
        shape = shape[
            int(self.rng.integers(len(shape) + 1)) if self.chance(0.3) else 0 :
        ]
        if self.chance(0.15):
            shape = [self.size() or 2, *shape]
        return tuple(shape)

    def dim(self, x):
        rank = max(np.ndim(x), 1)
        if self.chance(0.04):
            return self.pick(rank, -rank - 1)
        return int(self.rng.integers(-rank, rank))

    def dims(self, x):
        """Several axes, one, or none at all."""
        rank = np.ndim(x)
        count = int(self.rng.integers(rank + 1))
        chosen = self.rng.permutation(rank)[:count]
        return tuple(int(d) - rank * self.chance(0.4) for d in chosen)

    def axes(self, x):
        return self.pick(self.dim(x), self.dim(x), self.dims(x) or None, None)

    # Arrays

    def real(self, *shape, low=None, high=None):
        if low is not None:
            if self.chance(0.2):
                return self.rng.choice([low, high], shape)
            return self.rng.uniform(low, high, shape)
        if self.chance(0.3):
            return self.rng.choice(EDGES, shape)
        if self.chance(0.04):
            return self.rng.normal(size=shape) * 400.0
        return self.rng.normal(size=shape) * 1.5

    def whole(self, *shape, low=-3, high=4):
        return self.rng.integers(low, high, shape)

    def flags(self, *shape):
        return self.rng.random(shape) < 0.5

    def array(self, *shape):
        """Floating numbers mostly, or whole numbers or truth values."""
        return self.pick(*[self.real] * 6, self.whole, self.flags)(*shape)

    def anything(self, low=0, high=3):
        return self.array(*self.shape(low, high))

    def axial(self):
        """An array with one axis at least."""
        return self.anything(1)

    def distinct(self, *shape):
        """An array without two equal elements, and with some."""
        shape = tuple(size or 1 for size in shape)
        return self.rng.permutation(int(np.prod(shape))).reshape(shape) * 0.7 - 3.0

    def number(self):
        return self.pick(0, 1, -1, 2, 0.5, -1.5, 2.5, True, 0.0)

    def reduction(self):
        return {"reduction": self.pick("mean", "sum", "none")}


# Element by element
# -----------------------------------------------------------------------------


@row(
    "exp expm1 exp2 sin cos tan sinh cosh tanh asinh arcsinh atan arctan erf erfc sigmoid "
    "logsigmoid"
)
@row(
    "log log2 log10 log1p sqrt rsqrt reciprocal acos arccos asin arcsin atanh arctanh acosh arccosh"
)
@row(
    "abs absolute neg negative sign square floor ceil trunc fix frac round relu clone detach"
)
@row("isnan isinf isfinite logical_not softsign tanhshrink zeros_like ones_like ravel")
def _(d):
    return (d.anything(),)


@row("relu relu6 selu silu mish hardsigmoid hardswish")
def _(d):
    return d.anything(), d.some(inplace=False)


@row("log log2 log10 log1p sqrt rsqrt logit acos asin atanh")
def _(d):
    return (d.real(*d.shape(), low=0.0, high=1.0),)


@row("acosh arccosh")
def _(d):
    return (d.real(*d.shape(), low=1.0, high=3.0),)


@row("round")
def _(d):
    return d.real(*d.shape()) * 30, {"decimals": d.pick(0, 1, 2, -1)}


@row("leaky_relu")
def _(d):
    return d.anything(), d.pick(0.0, 0.2, -0.5, 1, 2)


@row("elu celu")
def _(d):
    return d.anything(), d.pick(1.0, 0.7, 2, 3.0, -0.5)


@row("softplus")
def _(d):
    return d.real(*d.shape()) * 10, d.pick(1, 2.0, 0.5), d.pick(20, 5.0, 0)


@row("hardtanh")
def _(d):
    return d.anything(), *d.pick(
        (-1.0, 1.0), (-1, 2), (0.0, 0.5), (1.0, 1.0), (2.0, -1.0)
    )


@row("hardshrink softshrink")
def _(d):
    return d.anything(), d.pick(0.5, 1, 0, 2.0, -0.5)


@row("threshold")
def _(d):
    return d.anything(), d.number(), d.number()


@row("gelu")
def _(d):
    return d.anything(), d.some(approximate=d.pick("none", "tanh", "sinus"))


@row("logit")
def _(d):
    return d.real(*d.shape(), low=0.0, high=1.0), d.pick(None, 0.1, 0.5, 0.6, 0, 1e-6)


@row("prelu")
def _(d):
    x = d.anything(1, 4)
    channels = x.shape[1] if x.ndim > 1 else 1
    return x, d.real(d.pick(1, channels, channels, 2))


@row("nan_to_num")
def _(d):
    x = d.pick(d.array, d.array, d.whole)(*d.shape())
    if x.dtype.kind == "f" and x.size:
        x.flat[:: d.pick(1, 2)] = d.pick(np.nan, np.inf, -np.inf)
    return x, d.some(nan=d.number(), posinf=d.number(), neginf=d.number())


def pair(d, first, second=None, low=0):
    """Two arrays that broadcast."""
    x = first(*d.shape(low))
    return x, (second or first)(*d.other(x.shape))


def operands(d):
    x, y = pair(d, d.array)
    return (x, d.number()) if d.chance(0.35) else (x, y)


def dividends(d):
    """Operands of which the second is no whole 0, by which only some frameworks divide."""
    x, y = operands(d)
    if isinstance(y, np.ndarray | np.generic) and y.dtype.kind != "f":
        y = np.where(y == 0, np.ones_like(y), y)
    return x, y if not isinstance(y, int) or y or x.dtype.kind == "f" else 3


@row("floor_divide")
def _(d):
    x, y = dividends(d)
    return fixed(x), fixed(y) if isinstance(y, np.ndarray | np.generic) else y


@row("div divide true_divide remainder fmod")
def _(d):
    return dividends(d)


@row("mul multiply pow xlogy")
@row("eq ne lt le gt ge greater greater_equal less less_equal not_equal")
def _(d):
    return operands(d)


@row("add sub subtract")
def _(d):
    return *operands(d), d.some(alpha=d.pick(2, 0.5, -1, 0))


@row("div divide")
def _(d):
    return *dividends(d), {"rounding_mode": d.pick(None, "floor", "trunc", "up")}


@row("maximum minimum max min logaddexp hypot atan2 arctan2")
@row("logical_and logical_or logical_xor")
def _(d):
    return pair(d, d.array)


@row("pow")
def _(d):
    return d.real(*d.shape(), low=0.0, high=2.0), d.pick(
        0, 1, 2, 3, -1, 0.5, 1.5, -0.5, 0.0
    )


@row("xlogy")
def _(d):
    x, y = pair(d, lambda *shape: d.real(*shape, low=0.0, high=2.0))
    return d.pick((x, y), (x, 2.5), (x, 0), (x, y))


@row("isclose")
def _(d):
    x, y = pair(d, d.array)
    return x, d.pick(y, x), d.some(rtol=d.pick(0.1, 0), atol=d.pick(0.5, 0))


@row("lerp")
def _(d):
    x, y = pair(d, d.real)
    return x, y, d.pick(d.number(), d.real(*d.other(x.shape)))


@row("addcmul addcdiv")
def _(d):
    x, y = pair(d, d.array)
    return x, y, d.array(*d.other(x.shape)), d.some(value=d.number())


@row("clamp clip")
def _(d):
    x = d.anything()
    bound = d.number if d.chance(0.6) else lambda: d.array(*d.other(x.shape))
    return x, d.pick(bound(), bound(), None), d.pick(bound(), bound(), None)


@row("clamp clip")
def _(d):
    return d.anything(), d.some(min=d.number(), max=d.number())


@row("masked_fill")
def _(d):
    x = d.anything()
    return x, d.pick(d.flags, d.flags, d.flags, d.whole)(*d.other(x.shape)), d.number()


@row("where")
def _(d):
    x, y = operands(d)
    if d.chance(0.3):
        x, y = y, x
    return d.flags(*d.other(np.broadcast(np.ones(np.shape(x)), 1).shape)), x, y


# Reductions
# -----------------------------------------------------------------------------


@row(
    "sum mean amax amin count_nonzero nansum nanmean var std var_mean std_mean all any"
)
def _(d):
    x = d.axial()
    return x, *d.pick((), (d.axes(x),), (d.dim(x),))


@row("sum mean nansum nanmean all any amax amin var std var_mean std_mean")
def _(d):
    x = d.axial()
    dim = d.pick(d.dim(x), d.dims(x) or 0)
    return x, {"dim": dim, "keepdim": d.pick(True, False)}


@row("var std var_mean std_mean")
def _(d):
    x = d.real(*d.shape(1))
    return x, {"dim": d.axes(x), "correction": d.pick(0, 1, 2)}


@row("max min argmax argmin prod")
def _(d):
    x = d.axial()
    return x, *d.pick((), (d.dim(x),), (d.dim(x), True))


@row("argmax argmin")
def _(d):
    return d.anything(), {"dim": None, "keepdim": d.pick(True, False)}


@row("aminmax")
def _(d):
    x = d.axial()
    return x, d.some(dim=d.dim(x), keepdim=True)


@row("cumsum cumprod cummax cummin logcumsumexp")
def _(d):
    x = d.axial()
    return x, d.dim(x)


@row("logsumexp")
def _(d):
    x = d.axial()
    return x, d.pick(d.dim(x), d.dims(x) or 0), *d.pick((), (True,))


@row("norm")
def _(d):
    x = d.axial()
    p = d.pick(0, 1, 2, 3, 0.5, 1.5, np.inf, -np.inf, -1, "fro", None, "nuc")
    return x, p, *d.pick((), (d.axes(x),), (d.axes(x), True))


@row("dist")
def _(d):
    return *pair(d, d.real, low=1), *d.pick((), (d.pick(0, 1, 2, 3, np.inf),))


@row("quantile")
def _(d):
    x = d.axial()
    q = d.pick(0, 1, 0.5, 0.3, 1.5, 0.75)
    return (
        x,
        float(q) if d.chance(0.9) else q,
        *d.pick((), (d.dim(x),), (d.dim(x), True)),
    )


@row("median")
def _(d):
    x = d.distinct(*d.shape(1))
    return x, *d.pick((), (d.dim(x),), (d.dim(x), True))


@row("kthvalue topk")
def _(d):
    x = d.distinct(*d.shape(1))
    k = int(d.rng.integers(0, 5))
    return d.pick((x, k), (x, k, d.dim(x)), (x, k, d.dim(x), True))


@row("topk")
def _(d):
    x = d.distinct(*d.shape(1))
    return x, int(d.rng.integers(0, 4)), d.dim(x), d.pick(True, False), True


@row("sort argsort")
def _(d):
    x = d.axial()
    return x, {"dim": d.dim(x), "descending": d.pick(True, False), "stable": True}


@row("trace")
def _(d):
    return (d.pick(d.real, d.real, d.whole)(*d.shape(d.pick(1, 2, 2, 2, 2), 2)),)


@row("cosine_similarity")
def _(d):
    x, y = pair(d, d.real, low=1)
    return x, y, *d.pick((), (d.dim(x),), (-1,), (d.dim(x), 0.5), (0, 0.0))


@row("pairwise_distance")
def _(d):
    x, y = pair(d, d.real, low=1)
    return (
        x,
        y,
        d.some(p=d.pick(1, 2.0, 3, 0.5, np.inf), eps=d.pick(0.0, 0.1), keepdim=True),
    )


@row("cdist")
def _(d):
    batch, width = d.shape(0, 2), d.size()
    x, y = d.real(*batch, d.size(), width), d.real(*d.other(batch), d.size(), width)
    return x, y, *d.pick((), (d.pick(0, 1, 2.0, 3, 0.5, np.inf),))


@row("pdist")
def _(d):
    return d.real(*d.shape(2, 2)), *d.pick((), (d.pick(0, 1, 2.0, 3, 0.5, np.inf),))


# Shapes
# -----------------------------------------------------------------------------


def several(d, join):
    """Arrays of one shape but for one axis."""
    shape = list(d.shape(1 if join else 0))
    arrays = []
    make = d.pick(d.real, d.real, d.real, d.whole, d.flags, d.array)
    axis = int(d.rng.integers(len(shape))) if join else None
    for _ in range(d.pick(1, 2, 3)):
        if join and d.chance(0.5):
            shape[axis] = d.size()
        arrays.append(make(*shape))
    return arrays, axis


@row("cat concat concatenate")
def _(d):
    arrays, axis = several(d, join=True)
    dim = d.pick(axis, axis, axis - arrays[0].ndim, d.dim(arrays[0]))
    return d.pick((arrays, dim), (arrays, dim), (arrays,))


@row("stack")
def _(d):
    arrays, _ = several(d, join=False)
    return arrays, *d.pick((), (d.dim(arrays[0][None]),))


@row("hstack vstack dstack column_stack row_stack")
def _(d):
    return (several(d, join=d.chance(0.5))[0],)


@row("unsqueeze")
def _(d):
    x = d.anything()
    return x, d.dim(x[None])


@row("squeeze")
def _(d):
    x = d.anything()
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    return x, *d.pick(
        (), (d.pick(*ones, *[axis - x.ndim for axis in ones]),) if ones else ()
    )


@row("flatten")
def _(d):
    x = d.anything(1)
    return x, d.dim(x), *d.pick((), (d.dim(x),))


@row("unflatten")
def _(d):
    x = d.anything(1)
    return (
        x,
        d.dim(x),
        d.pick((1, -1), (-1,), (2, 2), (2, -1), (3, 1), (-1, 1, 1), (-1, -1)),
    )


@row("reshape")
def _(d):
    x = d.anything()
    return x, d.pick(
        (-1,), (1, -1), (x.size,), (2, -1), x.shape[::-1], (-1, -1), (3, 2), (0, -1)
    )


@row("permute")
def _(d):
    x = d.anything()
    order = [int(a) - x.ndim * d.chance(0.3) for a in d.rng.permutation(x.ndim)]
    return x, tuple(order[:-1] if d.chance(0.05) else order)


@row("transpose swapaxes swapdims")
def _(d):
    x = d.axial()
    return x, d.dim(x), d.dim(x)


@row("t fliplr flipud")
def _(d):
    return (d.anything(),)


@row("movedim moveaxis")
def _(d):
    x = d.anything(1)
    axes = d.dims(x)
    to = tuple(int(a) for a in d.rng.permutation(x.ndim)[: len(axes)])
    return d.pick((x, d.dim(x), d.dim(x)), (x, axes, to))


@row("broadcast_to")
def _(d):
    x = d.anything()
    sizes = tuple(d.size() if size == 1 else size for size in x.shape)
    return x, d.pick(sizes, (2, *sizes), (3, 1, *sizes), d.shape())


@row("broadcast_tensors")
def _(d):
    return pair(d, d.array)


@row("tile")
def _(d):
    return d.anything(), d.pick((2,), (1, 2), (2, 1, 3), (0,), (), (1, 1, 1, 2), 2)


@row("repeat_interleave")
def _(d):
    x = d.axial()
    return x, d.pick(0, 1, 2, 3), *d.pick((), (d.dim(x),))


@row("meshgrid")
def _(d):
    make = d.pick(d.real, d.real, d.whole)
    arrays = [make(*d.shape(d.pick(0, 1, 1, 1), 1)) for _ in range(d.pick(1, 2, 3))]
    return *arrays, {"indexing": d.pick("ij", "xy", "ij", "yx")}


@row("split")
def _(d):
    x = d.anything(1)
    dim = d.dim(x)
    size = x.shape[dim] if -x.ndim <= dim < x.ndim else 2
    part = int(d.rng.integers(size + 1))
    return x, d.pick(1, 2, 5, [part, size - part], [1, 1]), dim


@row("chunk")
def _(d):
    x = d.anything(d.pick(0, 1, 1))
    return x, d.pick(1, 2, 3, 5, 0), *d.pick((), (d.dim(x),))


@row("tensor_split")
def _(d):
    x = d.anything(1)
    cuts = d.pick(1, 2, 3, 5, (1,), (1, 2), (2, 1), (0, 3), (-1,), (), (1, 7))
    return x, cuts, *d.pick((), (d.dim(x),))


@row("unbind")
def _(d):
    x = d.axial()
    return x, *d.pick((), (d.dim(x),))


@row("narrow")
def _(d):
    x = d.anything(1)
    return x, d.dim(x), d.pick(0, 1, -1, 2, -2), d.pick(0, 1, 2, 3, -1)


@row("diff")
def _(d):
    x = d.axial()
    return x, *d.pick((), (d.pick(0, 1, 2, 5),), (1, d.dim(x)))


@row("flip")
def _(d):
    x = d.axial()
    return x, d.pick(d.dims(x), d.dims(x), (d.dim(x),), (0, 0))


@row("rot90")
def _(d):
    x = d.anything(d.pick(1, 2, 2))
    return (
        x,
        d.pick(0, 1, 2, 3, -1, 5),
        *d.pick((), ((0, 1),), (d.dims(x),), ((-1, 0),)),
    )


@row("roll")
def _(d):
    x = d.axial()
    dims = d.dims(x) or (0,)
    shifts = tuple(int(s) for s in d.rng.integers(-5, 6, len(dims)))
    return d.pick((x, d.pick(0, 1, -2, 7), d.dim(x)), (x, shifts, dims))


@row("tril triu")
def _(d):
    return d.anything(d.pick(1, 2, 2, 2)), *d.pick((), (d.pick(0, 1, -1, 3, -4),))


@row("diagonal")
def _(d):
    x = d.anything(d.pick(1, 2, 2))
    return x, *d.pick(
        (), (d.pick(0, 1, -1, 5, -5),), (d.pick(0, 1), d.dim(x), d.dim(x))
    )


@row("diag")
def _(d):
    return d.anything(d.pick(0, 1, 1, 1), d.pick(2, 2, 3)), *d.pick(
        (), (d.pick(0, 1, -1, 3, -6),)
    )


@row("diag_embed")
def _(d):
    return d.anything(d.pick(0, 1, 1, 1)), *d.pick((), (d.pick(0, 1, -1, 3),))


@row("pixel_shuffle")
def _(d):
    factor = d.pick(1, 2, 2, 3)
    channels = d.pick(1, 2) * factor**2 + d.chance(0.1)
    return d.array(d.pick(1, 2), channels, *d.pick((1, 2), (3, 2))), factor


@row("pixel_unshuffle")
def _(d):
    factor = d.pick(1, 2, 2, 3)
    sizes = d.pick(1, 2) * factor, 2 * factor + d.chance(0.1)
    return d.array(d.pick(1, 2), d.pick(1, 3), *sizes), factor


@row("channel_shuffle")
def _(d):
    groups = d.pick(1, 2, 3)
    return d.real(
        d.size(), d.pick(1, 2) * groups + d.chance(0.1), *d.shape(1, 2)
    ), groups


@row("full_like")
def _(d):
    return d.anything(), d.number()


# Selecting
# -----------------------------------------------------------------------------


def positions(d, size, *shape):
    """Positions along an axis of a size; a few are out of range."""
    if d.chance(0.06):
        return d.rng.integers(-1, size + 1, shape)
    return d.rng.integers(0, max(size, 1), shape) if size else np.zeros(shape, np.int64)


def along(d, low=1):
    """An array, an axis and the size of that axis."""
    x = d.anything(low)
    dim = d.dim(x)
    return x, dim, x.shape[dim] if x.ndim and -x.ndim <= dim < x.ndim else 1


@row("gather")
def _(d):
    x, dim, size = along(d)
    shape = [int(d.rng.integers(n + 1)) if d.chance(0.4) else n for n in x.shape]
    if -x.ndim <= dim < x.ndim:
        shape[dim] = d.size()
    return x, dim, positions(d, size, *shape)


@row("take_along_dim")
def _(d):
    x, dim, size = along(d)
    shape = [1 if d.chance(0.2) else n for n in x.shape]
    if -x.ndim <= dim < x.ndim:
        shape[dim] = d.size()
    return d.pick(
        (x, positions(d, size, *shape), dim), (x, positions(d, x.size, *d.shape(1, 2)))
    )


@row("index_select")
def _(d):
    x, dim, size = along(d)
    return x, dim, positions(d, size, *d.shape(1, d.pick(1, 1, 1, 2)))


def distinct(d, size, *shape):
    """Different positions along the last axis of a shape."""
    rows = [
        d.rng.permutation(size)[: shape[-1]] for _ in range(int(np.prod(shape[:-1])))
    ]
    return np.array(rows, np.int64).reshape(*shape[:-1], min(size, shape[-1]))


@row("scatter")
def _(d):
    x, dim, size = along(d)
    if not -x.ndim <= dim < x.ndim:
        return x, dim, positions(d, 1, *x.shape), 1.5
    shape = [n for axis, n in enumerate(x.shape) if axis != dim % x.ndim]
    index = np.moveaxis(distinct(d, size, *shape, d.size()), -1, dim)
    like = d.real if x.dtype.kind == "f" else lambda *s: d.array(*s).astype(x.dtype)
    return x, dim, index, d.pick(like(*index.shape), like(*x.shape), d.number())


@row("scatter_add")
def _(d):
    x, dim, size = along(d)
    shape = list(x.shape)
    if -x.ndim <= dim < x.ndim:
        shape[dim] = d.size()
    return x, dim, positions(d, size, *shape), d.real(*shape).astype(x.dtype)


@row("index_add index_copy")
def _(d):
    x, dim, size = along(d)
    index = distinct(d, size, d.pick(1, 2, 3))
    shape = list(x.shape)
    if -x.ndim <= dim < x.ndim:
        shape[dim] = len(index)
    return x, dim, index, d.real(*shape).astype(x.dtype)


@row("index_add")
def _(d):
    x = d.real(*d.shape(1))
    source = d.real(3, *x.shape[1:])
    return x, 0, positions(d, len(x), 3), source, d.some(alpha=d.pick(2, 0.5))


@row("index_fill")
def _(d):
    x, dim, size = along(d)
    return x, dim, positions(d, size, d.size() if size else 0), d.number()


@row("searchsorted")
def _(d):
    batch = d.shape(0, 1)
    sequence = np.sort(d.real(*batch, d.size()), -1)
    values = d.real(*batch, *d.shape(1, 1)) if batch else d.real(*d.shape())
    return sequence, values, d.some(right=True)


@row("bucketize")
def _(d):
    values = np.round(d.real(*d.shape()))  # on a boundary as a rule
    return values, np.sort(np.round(d.real(d.size()))), d.some(right=True)


@row("one_hot")
def _(d):
    classes = d.pick(1, 3, 4, -1)
    return positions(d, max(classes, 3), *d.shape()), *d.pick((classes,), ())


@row("embedding")
def _(d):
    rows = d.pick(1, 3, 4)
    return positions(d, rows, *d.shape()), d.real(rows, d.size())


@row("embedding_bag")
def _(d):
    rows, more = d.pick(1, 3, 4), {"mode": d.pick("mean", "sum", "max")}
    if d.chance(0.3):
        more["padding_idx"] = d.pick(0, -1, rows - 1)
    if d.chance(0.5):
        return positions(d, rows, d.size(), d.pick(1, 2, 3)), d.real(rows, 2), more
    if more["mode"] == "sum":
        more["per_sample_weights"] = d.real(4)
    offsets = np.array(d.pick([0, 4], [0, 2], [0, 0, 3], [0, 4]))
    more["include_last_offset"] = bool(offsets[-1] == 4)
    return positions(d, rows, 4), d.real(rows, 2), offsets, more


# Products
# -----------------------------------------------------------------------------


@row("matmul")
def _(d):
    n = d.size()
    x = d.real(*d.shape(0, 2), n) if d.chance(0.95) else d.real()
    batch = d.other(x.shape[:-2])
    y = d.real(n) if d.chance(0.3) else d.real(*batch, n + d.chance(0.05), d.size())
    return d.pick(
        (x, y), (x, y), (x, y), (np.round(x).astype(int), np.round(y).astype(int))
    )


@row("mm addmm")
def _(d):
    a, b, c = d.size(), d.size(), d.size()
    return d.real(a, b), d.real(b + d.chance(0.05), c), d.pick((a, c), (c,), (), (1, c))


@row("bmm baddbmm")
def _(d):
    n, a, b, c = d.size(), d.size(), d.size(), d.size()
    return (
        d.real(n, a, b),
        d.real(d.pick(n, n, n, n, 1), b, c),
        d.pick((n, a, c), (c,), (1, a, c)),
    )


def _with_a_term(make, is_sum):
    def drawn(d):
        x, y, shape = make(d)
        if not is_sum:
            return x, y
        return (
            d.real(*shape),
            x,
            y,
            d.some(beta=d.pick(2, 0.5, 0), alpha=d.pick(3, 0.5, 0)),
        )

    return drawn


for _name in ("mm", "bmm", "addmm", "baddbmm"):
    TABLE[_name] = [_with_a_term(TABLE[_name][0], _name.startswith(("add", "badd")))]


@row("mv")
def _(d):
    n = d.size()
    return d.real(d.size(), n), d.real(*d.pick((n,), (n,), (n + 1,), (n, 1)))


@row("dot")
def _(d):
    n = d.size()
    return d.real(n), d.real(*d.pick((n,), (n,), (n,), (n,), (n + 1,), (n, 1)))


@row("inner")
def _(d):
    n = d.size()
    return d.real(*d.shape(0, 2), n), d.real(*d.shape(0, 1), n + d.chance(0.1))


@row("outer kron")
def _(d):
    ranks = d.pick((1, 1), (2, 2), (0, 0), (1, 2), (2, 1))
    return [d.array(*d.shape(rank, rank)) for rank in ranks]


@row("tensordot")
def _(d):
    a, b = d.size(), d.size()
    x, y = d.real(d.size(), a, b), d.real(a, b, d.size())
    return d.pick(
        (x, y), (x, y, 2), (x, y, ([1, 2], [0, 1])), (x, y, ([-1], [1])), (x, y, 0)
    )


@row("cross")
def _(d):
    x = d.real(*[d.pick(3, 3, 3, 1, 2, 4) for _ in range(d.pick(1, 2, 2, 3))])
    return x, d.real(*d.other(x.shape)), d.some(dim=d.dim(x))


@row("einsum")
def _(d):
    a, b, c = d.size(), d.size(), d.size()
    x, y = d.real(a, b, c), d.real(a, c, b)
    return d.pick(
        ("abc,acb->ab", x, y), ("abc->c", x), ("abc,dcb->ad", x, y), ("abc,acb", x, y)
    )


@row("linear")
def _(d):
    n, out = d.pick(1, 2, 4), d.pick(1, 2, 3)
    x = d.real(*d.shape(0, 2), n)
    weight = d.real(out, n + d.chance(0.1))
    return x, weight, *d.pick((), (d.real(out),))


@row("bilinear")
def _(d):
    batch, a, b, out = d.shape(0, 2), d.size(), d.size(), d.size()
    x, y = d.real(*batch, a), d.real(*batch, b)
    return x, y, d.real(out, a, b), *d.pick((), (d.real(out),))


@row("scaled_dot_product_attention")
def _(d):
    batch, n, m, width = (
        d.shape(0, 2),
        d.pick(1, 2, 3),
        d.pick(1, 2, 3),
        d.pick(1, 2, 4),
    )
    q, k, v = (
        d.real(*batch, n, width),
        d.real(*batch, m, width),
        d.real(*batch, m, d.pick(2, 3)),
    )
    allowed = d.flags(n, m) | (np.arange(m) == 0)
    mask = d.pick(None, None, d.real(n, m), allowed)
    return (
        q,
        k,
        v,
        mask,
        d.some(scale=d.pick(0.3, 1), is_causal=d.pick(False, mask is None)),
    )


# Arrays from numbers
# -----------------------------------------------------------------------------


@row("zeros ones")
def _(d):
    return (d.pick(d.shape(), d.shape(), (2, 3)), {"like": np.zeros(1)})


@row("full")
def _(d):
    return d.shape(), d.pick(1.5, 0.0, -2.5), {"like": np.zeros(1)}


@row("eye")
def _(d):
    return *d.pick((3,), (0,), (2, 4), (4, 2), (-1,)), {"like": np.zeros(1)}


@row("linspace")
def _(d):
    return d.number(), d.number(), d.pick(0, 1, 2, 5), {"like": np.zeros(1)}


@row("arange")
def _(d):
    return *d.pick((5,), (0,), (2.5,), (1, 4), (1, 4, 0.5), (4, 1, -1), (1, 1)), {
        "like": np.zeros(1)
    }


# Windows
# -----------------------------------------------------------------------------


def picture(d, n, low=1):
    """An input with n axes behind batch and channels, mostly."""
    sizes = [int(d.rng.integers(low, 7 - n)) for _ in range(n)]
    batch = d.pick(1, 2, 3, 3, 0)
    return d.real(
        *d.pick((batch,), (batch,), (batch,), (batch,), ()), d.pick(1, 2, 4), *sizes
    )


def ranked(names):
    """A row for each number of axes."""

    def add(make):
        for n in (1, 2, 3):
            row(" ".join(f"{name}{n}d" for name in names.split()))(
                lambda d, n=n: make(d, n)
            )
        return make

    return add


def window(d, n, least=1, most=3):
    """A number, or one for each axis."""
    numbers = [int(v) for v in d.rng.integers(least, most + 1, n)]
    return d.pick(numbers[0], tuple(numbers))


@ranked("conv")
def _(d, n):
    groups = d.pick(1, 1, 2)
    cin, cout = groups * d.pick(1, 2), groups * d.pick(1, 2)
    kernel = [int(v) for v in d.rng.integers(1, 4, n)]
    x = d.real(d.pick(1, 2, 0), cin, *[int(v) for v in d.rng.integers(2, 6, n)])
    padding = d.pick(window(d, n, 0, 2), "same", "valid", window(d, n, 0, 2))
    stride = 1 if padding == "same" else window(d, n)
    weight = d.real(cout, cin // groups, *kernel)
    bias = d.pick(None, d.real(cout))
    return x, weight, bias, stride, padding, window(d, n, 1, 2), groups


@ranked("conv_transpose")
def _(d, n):
    groups = d.pick(1, 1, 2)
    cin, cout = groups * d.pick(1, 2), groups * d.pick(1, 2)
    kernel = [int(v) for v in d.rng.integers(1, 4, n)]
    x = d.real(d.pick(1, 2), cin, *[int(v) for v in d.rng.integers(1, 5, n)])
    bias, stride = d.pick(None, d.real(cout)), window(d, n)
    extra = d.pick(0, 0, 1)
    weight = d.real(cin, cout // groups, *kernel)
    return x, weight, bias, stride, d.pick(0, 1), extra, groups, window(d, n, 1, 2)


@ranked("max_pool")
def _(d, n):
    more = d.some(
        ceil_mode=True, return_indices=True, padding=window(d, n, 0, 1), dilation=2
    )
    return picture(d, n), window(d, n), d.pick(None, window(d, n)), more


@ranked("avg_pool")
def _(d, n):
    more = d.some(ceil_mode=True, count_include_pad=False, padding=window(d, n, 0, 1))
    if n > 1:
        more |= d.some(divisor_override=d.pick(3, 1, 0))
    return picture(d, n), window(d, n), d.pick(None, window(d, n)), more


@ranked("adaptive_avg_pool adaptive_max_pool")
def _(d, n):
    size = window(d, n, 1, 5)
    if n > 1 and isinstance(size, tuple) and d.chance(0.3):
        size = (None, *size[1:])
    return picture(d, n), size


@ranked("adaptive_max_pool")
def _(d, n):
    return picture(d, n), window(d, n), {"return_indices": True}


@ranked("lp_pool")
def _(d, n):
    x = picture(d, n)
    p = d.pick(1, 2, 2.0, 3, 4)
    return (
        np.abs(x) if p == 3 else x,
        p,
        window(d, n),
        d.pick(None, window(d, n)),
        *d.pick((), (True,)),
    )


@ranked("max_unpool")
def _(d, n):
    x = d.real(1, d.pick(1, 2), *[d.pick(1, 2)] * n)
    count = int(np.prod(x.shape[2:])) * 2**n
    index = np.stack(
        [d.rng.permutation(count)[: x[0, 0].size] for _ in range(x.shape[1])]
    )
    return x, index.reshape(x.shape), d.pick(2, (2,) * n), d.pick(None, 2)


@row("unfold")
def _(d):
    x = picture(d, 2, low=2)
    return x, window(d, 2), d.pick(1, 1, 2), window(d, 2, 0, 1), window(d, 2, 1, 2)


@row("fold")
def _(d):
    kernel = (d.pick(1, 2), d.pick(1, 2))
    stride = d.pick(1, 2)
    size = (d.pick(3, 4), d.pick(2, 4))
    counts = [(s - k) // stride + 1 for s, k in zip(size, kernel, strict=True)]
    x = d.real(
        d.pick(1, 2), kernel[0] * kernel[1] * d.pick(1, 2), counts[0] * counts[1]
    )
    return x, size, kernel, 1, 0, stride


@row("interpolate upsample")
def _(d):
    n = d.pick(1, 2, 2, 3)
    x = d.real(d.pick(1, 2), d.pick(1, 2), *[int(v) for v in d.rng.integers(1, 5, n)])
    modes = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[n]
    mode = d.pick("nearest", "nearest-exact", "area", *modes, *modes)
    more = {"mode": mode}
    if mode in modes:
        more |= d.some(align_corners=d.pick(True, False))
    if d.chance(0.5):
        return x, window(d, n, 1, 6), more
    return x, None, d.pick(1, 2, 0.5, 1.7, 2.0), more


@row("interpolate")
def _(d):
    x = d.real(1, 2, 4, 5)
    return (
        x,
        window(d, 2, 2, 6),
        {"mode": d.pick("bilinear", "bicubic"), "antialias": True},
    )


@row("affine_grid")
def _(d):
    n = d.pick(2, 2, 3)
    size = (d.pick(1, 2), 1, *[int(v) for v in d.rng.integers(1, 4, n)])
    return d.real(size[0], n, n + 1), size, d.pick(True, False)


@row("grid_sample")
def _(d):
    n = d.pick(2, 2, 3)
    x = d.real(2, d.pick(1, 2), *[int(v) for v in d.rng.integers(1, 4, n)])
    grid = d.rng.uniform(-1.5, 1.5, (2, *[int(v) for v in d.rng.integers(1, 3, n)], n))
    mode, padding = (
        d.pick("bilinear", "nearest"),
        d.pick("zeros", "border", "reflection"),
    )
    return x, grid, mode, padding, d.pick(True, False)


@row("pad")
def _(d):
    x = d.anything(d.pick(1, 2))
    count = d.pick(1, min(x.ndim, 2))
    widths = tuple(int(v) for v in d.rng.integers(-1, 4, 2 * count))
    return x, widths, *d.pick((), ("constant", d.number()))


@row("pad")
def _(d):
    n = d.pick(1, 2, 3)
    x = picture(d, n)
    widths = tuple(int(v) for v in d.rng.integers(d.pick(0, -1), 3, 2 * n))
    mode = d.pick("reflect", "replicate", "circular")
    if (
        mode == "circular" and min(widths) < 0
    ):  # PyTorch reads what it has not written yet
        widths = tuple(min(width, 1) for width in widths)
    return x, widths, mode


# Norms and losses
# -----------------------------------------------------------------------------


def affine(d, *shape):
    """A weight and a bias, one of them, or none."""
    return d.pick(
        (), (d.real(*shape),), (d.real(*shape), d.real(*shape)), (None, d.real(*shape))
    )


@row("layer_norm")
def _(d):
    x = d.real(*[d.pick(1, 2, 3) for _ in range(d.pick(1, 2, 3))])
    shape = x.shape[d.pick(0, -1) :]
    return x, shape, *affine(d, *shape), d.some(eps=0.1)


@row("rms_norm")
def _(d):
    x = d.real(*[d.pick(1, 2, 3) for _ in range(d.pick(1, 2, 3))])
    shape = x.shape[d.pick(0, -1) :]
    return x, shape, *d.pick((), (d.real(*shape),)), d.some(eps=0.1)


@row("group_norm")
def _(d):
    groups = d.pick(1, 2)
    x = d.real(d.pick(1, 2, 3), groups * d.pick(1, 2, 3), *d.pick((), (3,), (2, 3)))
    return x, groups, *affine(d, x.shape[1]), d.some(eps=0.1)


@row("batch_norm")
def _(d):
    x = d.real(d.pick(1, 2, 3), d.pick(1, 2), *d.pick((), (3,), (2, 3)))
    n = x.shape[1]
    return x, fixed(d.real(n)), fixed(d.real(n, low=0.0, high=2.0)), *affine(d, n)


@row("instance_norm")
def _(d):
    x = d.real(d.pick(1, 2, 3), d.pick(1, 2), *d.pick((3,), (2, 3)))
    n = x.shape[1]
    return x, d.some(weight=d.real(n), bias=d.real(n), eps=0.1)


@row("local_response_norm")
def _(d):
    x = d.real(*[d.pick(1, 2, 4) for _ in range(d.pick(3, 4))])
    return x, d.pick(1, 2, 3), *d.pick((), (0.1, 0.5, 2.0))


@row("normalize")
def _(d):
    x = d.real(*d.shape(1))
    p = d.pick(1.0, 2.0, 3, 0.5, np.inf)
    return x, *d.pick((), (p,), (p, d.dim(x)), (2.0, d.dim(x), 0.5))


@row("softmax log_softmax softmin")
def _(d):
    x = d.axial()
    return x, d.dim(x)


@row("glu")
def _(d):
    x = d.real(*d.shape(d.pick(0, 1, 1)))
    if x.ndim and d.chance(0.8):
        x = np.concatenate([x, x + 1.0], -1)
    return x, *d.pick((), (d.dim(x),))


def scores_and_labels(d):
    classes = d.pick(1, 2, 4)
    batch, rest = d.pick(1, 2, 3, 3), d.pick((), (), (), (2,), (2, 3))
    if d.chance(0.1):
        return d.real(classes), positions(d, classes)
    return d.real(batch, classes, *rest), positions(d, classes, batch, *rest)


@row("cross_entropy nll_loss")
def _(d):
    x, labels = scores_and_labels(d)
    more = d.some(**d.reduction(), ignore_index=d.pick(0, 1, -1))
    if d.chance(0.3) and x.ndim > 1:
        more["weight"] = fixed(d.rng.uniform(0.5, 2.0, x.shape[1]))
    return x, labels, more


@row("cross_entropy")
def _(d):
    x, labels = scores_and_labels(d)
    target = d.pick(
        labels, d.rng.dirichlet(np.ones(4), x.shape).mean(-1), d.real(*x.shape)
    )
    return x, target, d.some(**d.reduction(), label_smoothing=d.pick(0.1, 0, 1.0))


@row("multi_margin_loss")
def _(d):
    x, labels = scores_and_labels(d)
    more = d.some(**d.reduction(), p=d.pick(1, 2), margin=d.pick(0.5, 0))
    return x, labels, more


@row("multilabel_margin_loss")
def _(d):
    x = d.real(*d.pick((3,), (2, 3), (2, 4)))
    return x, d.rng.integers(-1, x.shape[-1], x.shape), d.some(**d.reduction())


@row("mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss")
def _(d):
    x = d.real(*d.shape())
    return (
        x,
        d.pick(d.real(*x.shape), d.real(*x.shape), x + 0.0),
        d.some(**d.reduction()),
    )


@row("soft_margin_loss hinge_embedding_loss")
def _(d):
    x = d.real(*d.shape())
    return x, fixed(np.where(d.flags(*x.shape), 1.0, -1.0)), d.some(**d.reduction())


@row("smooth_l1_loss")
def _(d):
    x = d.real(*d.shape())
    return x, d.real(*x.shape), d.some(beta=d.pick(0, 0.5, 2))


@row("huber_loss")
def _(d):
    x = d.real(*d.shape())
    return x, d.real(*x.shape), d.some(delta=d.pick(0.5, 2))


@row("binary_cross_entropy")
def _(d):
    x = d.real(*d.shape(), low=0.0, high=1.0)
    return x, fixed(d.real(*x.shape, low=0.0, high=1.0)), d.some(**d.reduction())


@row("binary_cross_entropy")
def _(d):
    x = d.rng.uniform(0.05, 0.95, d.shape())
    weight = d.pick(None, fixed(d.real(*d.other(x.shape))))
    return x, d.real(*x.shape, low=0.0, high=1.0), weight, d.reduction()


@row("binary_cross_entropy_with_logits")
def _(d):
    x = d.real(*d.shape())
    more = d.some(**d.reduction(), weight=fixed(d.real(*d.other(x.shape))))
    if d.chance(0.3) and x.ndim:
        more["pos_weight"] = fixed(d.rng.uniform(0.5, 3.0, x.shape[-1]))
    return x, d.real(*x.shape, low=0.0, high=1.0), more


@row("kl_div")
def _(d):
    x = d.real(d.pick(1, 2, 3), *d.shape(0, 2))
    target = d.real(*x.shape, low=0.0, high=1.0)
    how = d.pick("mean", "sum", "none", "batchmean")
    return x, target, {"reduction": how} | d.some(log_target=True)


@row("poisson_nll_loss")
def _(d):
    x = d.real(*d.shape(), low=0.0, high=3.0)
    return x, d.real(*x.shape, low=0.0, high=3.0), d.some(log_input=False, full=True)


@row("gaussian_nll_loss")
def _(d):
    x = d.real(*d.shape(1))
    var = d.real(*d.pick(x.shape, (*x.shape[:-1], 1)), low=0.0, high=2.0)
    return x, d.real(*x.shape), var, d.some(**d.reduction(), full=True)


@row("multilabel_soft_margin_loss")
def _(d):
    x = d.real(*d.shape(1))
    return x, d.real(*x.shape, low=0.0, high=1.0), d.some(**d.reduction())


@row("margin_ranking_loss")
def _(d):
    x = d.real(*d.shape())
    target = np.where(d.flags(*x.shape), 1.0, -1.0)
    return x, d.real(*x.shape), target, d.some(**d.reduction(), margin=d.pick(0.5, 1))


@row("cosine_embedding_loss")
def _(d):
    x = d.real(*d.pick((2, 3), (1, 2), (3,)))
    target = np.where(d.flags(*x.shape[:-1]), 1.0, -1.0)
    return x, d.real(*x.shape), target, d.some(**d.reduction(), margin=0.3)


@row("triplet_margin_loss")
def _(d):
    x = d.real(*d.pick((2, 3), (1, 2), (3,), (2, 1, 2)))
    more = d.some(**d.reduction(), margin=d.pick(0.5, 2), p=d.pick(1, 2, 3), swap=True)
    return x, d.real(*x.shape), d.real(*x.shape), more


@row("triplet_margin_with_distance_loss")
def _(d):
    x = d.real(*d.pick((2, 3), (1, 2), (3,)))
    return x, d.real(*x.shape), d.real(*x.shape), d.some(**d.reduction(), swap=True)


@row("ctc_loss")
def _(d):
    x = d.rng.normal(size=(5, 2, 4))
    targets = d.rng.integers(1, 4, (2, 3))
    more = d.some(**d.reduction(), zero_infinity=True, blank=0)
    if d.chance(0.3):
        return x, targets.ravel()[:4], (5, 4), (3, 1), more
    return x, targets, d.pick((5, 4), (5, 5)), d.pick((2, 3), (3, 0)), more
