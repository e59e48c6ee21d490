"""The names of MLX that the example in `examples/mlx` uses, with NumPy's functions behind them:
enough to build its networks and to compute their outputs, without gradients."""

from types import ModuleType, SimpleNamespace

import numpy as np

SAME = (
    "abs any arange arctan argmax argsort broadcast_to einsum exp expand_dims float32 float64 "
    "floating floor int64 issubdtype log log1p matmul max mean ones_like power sqrt squeeze stack "
    "sum swapaxes take tanh transpose where zeros_like"
).split()


class Type(type):
    """NumPy's arrays are MLX's."""

    def __instancecheck__(cls, value):
        return isinstance(value, np.ndarray | np.generic)


class Array(np.ndarray, metaclass=Type):
    """MLX makes an array by a call of their class; reductions to a number stay arrays."""

    def __new__(cls, value, dtype=None):
        return np.array(value, dtype).view(cls)

    def __array_wrap__(self, array, context=None, return_scalar=False):
        return array.view(Array)


def custom_function(function):
    function.vjp = lambda derivative: derivative
    return function


def pad(x, widths, constant_values=0.0):
    return np.pad(x, widths, constant_values=constant_values).view(Array)


def modules():
    """The modules ``mlx``, ``mlx.core`` and ``mlx.nn`` by name."""
    core, nn, mlx = (ModuleType(f"mlx{end}") for end in (".core", ".nn", ""))
    for name in SAME:
        setattr(core, name, getattr(np, name))
    core.float64, core.float32, core.int64 = map(np.dtype, ("f8", "f4", "i8"))
    core.array = Array
    core.bool_ = np.dtype(bool)
    core.Dtype = np.dtype
    core.concatenate = lambda arrays, axis: np.concatenate(arrays, axis)
    core.custom_function = custom_function
    core.default_device = lambda: SimpleNamespace(type=SimpleNamespace(name="cpu"))
    core.pad = pad
    core.reshape = np.reshape
    core.stop_gradient = lambda x: x
    core.take_along_axis = np.take_along_axis
    core.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
    core.__version__ = "of NumPy"
    nn.Module = type("Module", (dict,), {"__getattr__": get_item})
    for kind in ("Conv", "ConvTranspose"):
        for dims in (1, 2, 3):
            name = f"{kind}{dims}d"
            setattr(nn, name, type(name, (nn.Module,), {}))
    nn.BatchNorm = type("BatchNorm", (nn.Module,), {})
    mlx.core, mlx.nn = core, nn
    return {"mlx": mlx, "mlx.core": core, "mlx.nn": nn}


def get_item(module, name):
    value = dict.get(module, name)
    if value is None:
        raise AttributeError(name)
    return value
