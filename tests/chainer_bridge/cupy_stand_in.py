"""A stand-in for CuPy 14 over NumPy, for machines without a GPU.

It has CuPy's names, and is as strict: an array of it is no NumPy array, becomes one by ``get()``
alone, and does not mix with one. Stricter than CuPy, it refuses NumPy's functions too, which CuPy
computes on the device where it can. Kernels in C++ are those of a table, in NumPy.
"""

import types
from contextlib import nullcontext

import numpy as np
import scipy.special

# what NumPy has and CuPy 14.2 has not
LACKING = set(
    "asmatrix block bmat einsum_path errstate frompyfunc geomspace geterr histogram_bin_edges "
    "insert isnat ma matrix matvec memmap nanpercentile nanquantile ndenumerate nditer "
    "nested_iters polyder polydiv polyint rec seterr spacing unstack vecdot vecmat".split()
)
LACKING_METHODS = {
    "__index__",
    "__contains__",
    "ctypes",
    "getfield",
    "resize",
    "setfield",
} | {
    "setflags",
    "to_device",
}


class Device:
    """A device; there is one."""

    def __init__(self, number=0):
        self.id = int(getattr(number, "id", number))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __eq__(self, other):
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self):
        return hash(self.id)

    def __int__(self):
        return self.id

    def use(self):
        pass

    def synchronize(self):
        pass


class ndarray:
    """An array on the device."""

    def __init__(self, values):
        self._values = values

    device = Device()
    shape, ndim, size, dtype, strides, nbytes, itemsize, flags = (
        property(lambda self, name=name: getattr(self._values, name))
        for name in "shape ndim size dtype strides nbytes itemsize flags".split()
    )
    T = property(lambda self: ndarray(self._values.T))

    def get(self, stream=None, order="C", out=None, blocking=True):
        return np.array(self._values, order=order)

    def set(self, values, stream=None):
        self._values[...] = values

    def __array__(self, *_, **__):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()`"
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **settings):
        if method == "__call__" and not settings:  # a NumPy scalar times an array, say
            return wrap(ufunc(*map(unwrap, inputs)))
        raise TypeError(f"np.{ufunc.__name__} on an array of the device")

    def __array_function__(self, function, *_):
        raise TypeError(f"np.{function.__name__} on an array of the device")

    def __getattr__(self, name):
        if (
            name.startswith("__")
            or name in LACKING_METHODS
            or not hasattr(np.ndarray, name)
        ):
            raise AttributeError(f"cupy.ndarray has no {name!r}")
        return on_device(getattr(self._values, name))

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return (ndarray(np.asarray(each)) for each in self._values)

    def __getitem__(self, index):
        return wrap(self._values[unwrap(index)])

    def __setitem__(self, index, value):
        self._values[unwrap(index)] = unwrap(value)

    def __repr__(self):
        return f"on the device: {self._values!r}"

    def __copy__(self):
        return ndarray(self._values.copy())

    def __deepcopy__(self, _):
        return ndarray(self._values.copy())


def _give_operators():
    names = (
        "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    )
    both = [f"__{side}{name}__" for name in names for side in ("", "r")]
    others = "lt le gt ge eq ne neg pos abs invert".split()
    for name in both + [f"__{each}__" for each in others]:
        setattr(ndarray, name, _operator(name))
    for name in names:
        if name != "matmul":  # CuPy has no product in place
            setattr(ndarray, f"__i{name}__", _in_place(f"__i{name}__"))
    for name in ("__bool__", "__int__", "__float__"):
        setattr(ndarray, name, lambda self, name=name: getattr(self._values, name)())
    ndarray.__hash__ = object.__hash__


def _operator(name):
    def compute(self, *others):
        if any(
            isinstance(each, ndarray | int | float | np.generic) is False
            for each in others
        ):
            if any(isinstance(each, np.ndarray) for each in others):
                refuse(*others)
            return NotImplemented
        return wrap(getattr(self._values, name)(*map(unwrap, others)))

    return compute


def _in_place(name):
    def compute(self, other):
        getattr(self._values, name)(unwrap(other))
        return self

    return compute


_give_operators()


def refuse(value):
    raise TypeError(f"Unsupported type {type(value)}")


def unwrap(value):
    """Take the values of arrays, in lists and tuples too; a NumPy array is an error."""
    if isinstance(value, ndarray):
        return value._values
    if isinstance(value, np.ndarray):
        refuse(value)
    if isinstance(value, tuple | list):
        return type(value)(map(unwrap, value))
    return value


def wrap(value):
    """Make arrays and scalars of NumPy arrays on the device."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, tuple | list):
        return type(value)(map(wrap, value))
    return value


def on_device(function):
    """Let a function of NumPy's take and return arrays of the device."""

    def call(*args, out=None, **settings):
        settings = {name: unwrap(value) for name, value in settings.items()}
        if out is None:
            return wrap(function(*map(unwrap, args), **settings))
        function(*map(unwrap, args), out=unwrap(out), **settings)
        return out

    return call


class Kernel:
    """An elementwise kernel, by its name in the table `KERNELS`."""

    def __init__(self, in_params, out_params, operation, name, **_):
        self.name = name

    def __call__(self, *args, **_):
        if self.name not in KERNELS:
            raise NotImplementedError(f"the stand-in has no kernel {self.name!r}")
        return wrap(KERNELS[self.name](*map(unwrap, args)))


KERNELS = {
    "abs_bwd": lambda x, gy: np.sign(x) * gy,
    "bn_fwd": lambda x, mean, scale, gamma, beta: gamma * (x - mean) * scale + beta,
    "div_bwd": lambda x, y, gy: (gy / y, -gy / y * x / y),
    "div_from_const_bwd": lambda x, gy, value: -value * gy / (x * x),
    "elementwise_erf": scipy.special.erf,
    "elementwise_ndtr": scipy.special.ndtr,
    "pow_var_const_bwd": lambda x, gy, value: value * x ** (value - 1) * gy,
    "tanh_bwd": lambda y, gy: gy * (1 - y * y),
    "sigmoid_bwd": lambda y, gy: gy * y * (1 - y),
}


def module():
    """Return the module ``cupy``."""
    cupy = types.ModuleType("cupy")
    cupy.__getattr__ = _function_of(np, LACKING)
    cupy.__version__ = "14.2.0"
    cupy.ndarray = ndarray
    cupy.ElementwiseKernel = Kernel
    cupy.asarray = cupy.array = _array
    cupy.is_available = lambda: True
    cupy.get_array_module = _module_of(cupy)
    cupy.ogrid = _Grid()
    cupy.split = _split
    cupy.putmask = _waits
    cupy.random = types.ModuleType("cupy.random")
    cupy.random.__getattr__ = _function_of(
        np.random, {"Generator", "SeedSequence", "set_state"}
    )
    cupy.random.RandomState = _RandomState
    cupy.linalg = types.ModuleType("cupy.linalg")
    cupy.linalg.__getattr__ = _function_of(np.linalg, set())
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=types.SimpleNamespace(null=nullcontext()),
        runtime=types.SimpleNamespace(
            getDeviceCount=lambda: 1, deviceSynchronize=lambda: None
        ),
    )
    return cupy


def _function_of(source, lacking):
    def get(name):
        if name in lacking or not hasattr(source, name):
            raise AttributeError(f"cupy has no {name!r}")
        value = getattr(source, name)
        if isinstance(value, type) or not callable(value):
            return value
        function = on_device(value)
        if isinstance(value, np.ufunc):
            function.at = on_device(value.at)
        return function

    return get


def _array(value, dtype=None, copy=True, order="K", **_):
    """Copy an array of the host too: the one way in."""
    values = value._values if isinstance(value, ndarray) else value
    if isinstance(values, list | tuple):
        values = unwrap(values)
    order = "C" if order == "K" and not isinstance(values, np.ndarray) else order
    return ndarray(np.array(values, dtype=dtype, order=order))


def _split(x, sections, axis=0):
    """Split at positions, which have to be on the host."""
    return wrap(np.split(x._values, sections, axis))


def _waits(*_):
    raise AssertionError("cupy.putmask waits for the device")


def _module_of(cupy):
    def get_array_module(*args):
        return cupy if any(isinstance(each, ndarray) for each in args) else np

    return get_array_module


class _Grid:
    def __getitem__(self, index):
        return wrap(np.ogrid[index])


class _RandomState:
    def __init__(self, seed=None):
        self._generator = np.random.RandomState(seed)

    def __getattr__(self, name):
        return on_device(getattr(self._generator, name))
