"""PyTorch's names: what stands in their place in a network written once.

A name that is not here and that `nn` has is taken as it stands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import libcst as cst
import numpy as np
from libcst import matchers as m

from deliralike.port.calls import (
    DROPPED,
    KEYWORDS,
    NN,
    Call,
    Entry,
    NeedsHand,
    arguments,
    call_of_nn,
    code,
    detached,
    elements,
    filled,
    in_brackets,
    joined,
    plain,
    refused,
    tuple_of,
    written,
)
from deliralike.port.framework import Framework, Names
from deliralike.port.patterns import pattern

# Modules whose members have names, and the prefix of these.
_MODULES = {
    "torch.nn": "",
    "torch.nn.functional": "",
    "torch": "",
    "torch.nn.init": "init.",
    "torch.nn.utils": "utils.",
    "torch.nn.utils.rnn": "rnn.",
    "torch.nn.utils.parametrizations": "parametrizations.",
    "torch.utils.checkpoint": "checkpoint.",
    "torch.jit": "jit.",
    "torch.compiler": "compiler.",
    "torch.onnx": "onnx.",
    "torch.special": "",
    "torch.cuda": "cuda.",
    "torch.linalg": "linalg.",
    "torch.autograd": "autograd.",
    "torch.nn.modules.utils": "modules.",
    "torch.nn.modules.batchnorm": "",
    "torch.nn.modules.conv": "",
    "torchvision.ops": "torchvision.",
    "torchvision.utils": "torchvision.",
    "timm.layers": "timm.",
    "einops.layers.torch": "",
}
_REARRANGE = '''class Rearrange(Network):
    """``einops.rearrange`` as a layer."""

    def __init__(self, pattern, **sizes):
        super().__init__()
        self.pattern, self.sizes = pattern, sizes

    def forward(self, x):
        return einops.rearrange(x, self.pattern, **self.sizes)'''

_REDUCE = '''class Reduce(Network):
    """``einops.reduce`` as a layer."""

    def __init__(self, pattern, reduction, **sizes):
        super().__init__()
        self.pattern, self.reduction, self.sizes = pattern, reduction, sizes

    def forward(self, x):
        return einops.reduce(x, self.pattern, self.reduction, **self.sizes)'''

_NORMALISED = '''class WeightNorm{layer}({layer}):
    """A layer whose weight is a length times a direction. Source: arXiv 1602.07868."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        nn, shape = self.nn, self.weight.shape
        del self.weight
        self.axes = tuple(range(1, len(shape)))
        self.weight_g = nn.Parameter((shape[0], *[1] * len(self.axes)), start.ONES)
        self.weight_v = nn.Parameter(shape, start.HeUniform())

    def forward(self, x):
        nn, v = self.nn, self.weight_v
        length = nn.sqrt(nn.sum(v * v, self.axes, keepdim=True))
        weight = v * (self.weight_g / length)
        return nn.{function}(x, weight, self.bias{settings})'''

_CONVOLVED = ", self.stride, self.padding, self.dilation, self.groups"
_TRANSPOSED = (
    ", self.stride, self.padding, self.output_padding, self.groups, self.dilation"
)
#: Layers that the port writes itself.
LAYER_SOURCES = {"Rearrange": _REARRANGE, "Reduce": _REDUCE}
for _layer, _function, _settings in (
    ("Linear", "linear", ""),
    ("Conv1d", "conv1d", _CONVOLVED),
    ("Conv2d", "conv2d", _CONVOLVED),
    ("ConvTranspose1d", "conv_transpose1d", _TRANSPOSED),
    ("ConvTranspose2d", "conv_transpose2d", _TRANSPOSED),
):
    LAYER_SOURCES[f"WeightNorm{_layer}"] = _NORMALISED.format(
        layer=_layer, function=_function, settings=_settings
    )


# Functions and methods on arrays, in forward
# -------------------------------------------------------------------------------------------------


_CONVERSIONS = (
    *("to", "type", "type_as", "float", "double", "half"),
    *("long", "int", "bool"),
)


def _converted(call: Call) -> str:
    """``.float()``, ``.to(...)``: networks compute in one type, so only that of masks changes."""
    before, after = call.value, call.result
    if before.dtype == after.dtype or (before.is_floating and not after.dtype):
        return call.x
    if after.dtype and not after.is_floating:
        return call_of_nn("cast", call.x, _whole_type(after.dtype))
    if before.is_floating:
        return call.x
    try:
        dtype = call.like()
    except NeedsHand:
        dtype = '"float32"'
    return call_of_nn("cast", call.x, dtype)


def _alike(call: Call) -> str:
    """``torch.ones_like(indices, dtype=x.dtype)``: an array of another type than that given."""
    return _converted(replace(call, x=plain(call), value=call.first))


def _whole_type(dtype: str) -> str:
    """The type of an array that is not floating, as source."""
    return '"bool"' if dtype == "bool" else '"int64"'


def _created(text: str) -> Entry:
    """A new array, of whole numbers or truth values where it was one in the run."""
    return lambda call: _in_type_of_run(written(text, call), call)


def _in_type_of_run(array: str, call: Call) -> str:
    dtype = call.result.dtype
    if not dtype or call.result.is_floating:
        return array
    return call_of_nn("cast", array, _whole_type(dtype))


def _ranged(call: Call) -> str:
    like = call.array_at_hand()
    names = ("start", "end", "step", "steps", "n", "m")
    given = {name: value for name, value in call.kwargs.items() if name in names}
    array = call_of_nn(call.name, *call.args, **given, like=like)
    if call.name != "arange":
        return _in_type_of_run(array, call)
    return call_of_nn("cast", array, like) if call.result.is_floating else array


def _normal(call: Call) -> str:
    """``torch.normal(mean, std)`` of two arrays."""
    if not all(one.is_array for one in call.values):
        raise NeedsHand("normal: self.noise = nn.NormalNoise() in __init__")
    return written("mean std -> ({mean} + {std} * {normal}({mean}))", call)


def _noise(plain: str, scaled: str) -> Entry:
    """Noise that is written into an array, between limits or not."""

    def in_place(call: Call) -> str:
        is_plain = not call.args and not call.kwargs
        return written(plain if is_plain else scaled, call)

    return in_place


def _stochastic_depth(call: Call) -> str:
    given = call.only("p mode")
    if given["mode"][1:-1] != "row":
        raise NeedsHand(f"{call.name} by {given['mode']}: nn.DropPath drops samples")
    return call_of_nn("DropPath", given["p"])


def _size(call: Call) -> str:
    return f"{call.x}.shape" + "".join(f"[{axis}]" for axis in call.sources)


def _accumulated(call: Call) -> str:
    """``mask.cumsum(1, dtype=torch.float32)``: truth values are counted as numbers."""
    if call.value.dtype != "bool":
        return plain(call)
    dtype = '"int64"'
    if call.result.is_floating:
        dtype = call.like()
    return plain(replace(call, x=call_of_nn("cast", call.x, dtype)))


def _variance(call: Call) -> str:
    """``x.var(1, False, True)``, ``torch.var(x, dim=1, unbiased=False)``."""
    given = call.bound("input dim unbiased keepdim")
    unbiased = given.pop("unbiased", None)
    if unbiased is not None:
        known = {"True": "1", "False": "0"}
        given["correction"] = known.get(unbiased, f"int({unbiased})")
    return plain(Call(call.name, (), given))


def _einsum(call: Call) -> str:
    """``torch.einsum("ij,kj->ik", [x, y])``: the arrays may come in a list."""
    formula, *arrays = call.args
    if len(arrays) == 1:
        arrays = elements(arrays[0]) or arrays
    return plain(replace(call, args=(formula, *arrays)))


#: The mask of a transformer: scores of later places are -inf.
_SUBSEQUENT = "np.triu(np.full(({a}, {a}), -np.inf), 1)"
_SUBSEQUENT_MASK = f"nn.constant({_SUBSEQUENT}, like={{like}})"


def _number(call: Call) -> str:
    if call.first.is_array:
        return call.args[0]
    return call_of_nn("constant", call.args[0], like=call.array_at_hand())


_REPEATED = "({a} if isinstance({a}, (tuple, list)) else ({a},) * "


def _batch_norm(call: Call) -> str:
    """By the batch's own statistics, or in a subclass of a batch norm by those of its base."""
    of_base = ("running_mean", "running_var", "weight", "bias")
    given = call.bound(f"input {' '.join(of_base)} training momentum eps")
    if given.get("running_mean", "None") == "None" and given.get("training") == "True":
        return filled("nn.batch_norm_train({input}{weight?}{bias?}{eps?})[0]", given)
    if all(f"self.{name}" in given.get(name, "") for name in of_base):
        return f"super().forward({given['input']})"
    raise NeedsHand(
        "batch_norm: a layer, nn.BatchNorm2d, keeps and updates its statistics"
    )


_LOSS = re.compile("loss|entropy|kl_div", re.IGNORECASE)
_SOFTMAX = re.compile("^(log_?)?soft(max|min)$", re.IGNORECASE)


_RANDOM = refused(
    "random numbers belong to layers, such as nn.Dropout and nn.DropPath, which draw the same ones "
    "on every backend"
)
_BY_VALUES = refused(
    "it depends on the values of an array, which a compiled program does not know"
)
_LAYER = re.compile(rf"{NN}\.(\w+)\(")


def _weight_norm(call: Call) -> str:
    """``weight_norm(nn.Conv1d(3, 4, 5))``: a layer with that kind of weight."""
    given = call.bound("module name dim")
    found = _LAYER.match(given["module"])
    name = f"WeightNorm{found[1]}" if found else ""
    pads_otherwise = "padding_mode" in given["module"]
    if name not in LAYER_SOURCES or pads_otherwise or given.keys() != {"module"}:
        raise NeedsHand(
            "weight_norm: of a linear layer or convolution that is created here, pads with zeros "
            "and has no other arguments"
        )
    return f"{name}({given['module'][found.end() :]}"  # type: ignore[union-attr]


_PACKED = refused(
    "an LSTM or GRU gives what PyTorch gives for packed sequences by self.rnn.outputs(x, lengths)"
)


# Arrays that are created while a network is, by NumPy
# -------------------------------------------------------------------------------------------------


def in_axes(kwargs: dict[str, str]) -> dict[str, str]:
    """Arguments by NumPy's names."""
    given = {key: value for key, value in kwargs.items() if key not in DROPPED}
    return {_OF_NUMPY.get(key, key): value for key, value in given.items()}


_OF_NUMPY = {
    "dim": "axis",
    "keepdim": "keepdims",
    "diagonal": "k",
    "end": "stop",
    "steps": "num",
}


def _np(name: str) -> Callable[[Call], str]:
    def written(call: Call) -> str:
        return f"np.{name}({joined(call.given, in_axes(call.kwargs))})"

    return written


#: An array whose axes from the first or second on become one.
_NP_FLAT = {
    "0": "{input}.reshape(-1)",
    "1": "np.stack([part.ravel() for part in {input}])",
}


def _np_flat(call: Call) -> str:
    given = call.only("input start_dim=0")
    of_later_axes = "(lambda x: x.reshape(*x.shape[:{start_dim}], -1))({input})"
    return filled(_NP_FLAT.get(given["start_dim"], of_later_axes), given)


def _np_range(call: Call) -> str:
    kwargs = in_axes(call.kwargs)
    if call.numpy_type == "float":
        kwargs["dtype"] = "float"
    return f"np.arange({joined(call.args, kwargs)})"


def _np_expand(call: Call) -> str:
    sizes = elements(call.many())
    if sizes is None:
        return f"np.broadcast_to({call.x}, {call.many()})"
    if any(size.startswith("*") for size in sizes):
        raise NeedsHand("expand: write np.broadcast_to(x, shape) with all sizes")
    added = len(sizes) - call.value.ndim
    for axis, size in enumerate(sizes):
        if size == "-1":
            sizes[axis] = f"{call.x}.shape[{axis - added}]"
    return f"np.broadcast_to({call.x}, {tuple_of(sizes)})"


def _np_eye(call: Call) -> str:
    return f"np.eye({joined(call.args, {'dtype': call.numpy_type})})"


def _np_meshgrid(call: Call) -> str:
    indexing = call.kwargs.get("indexing", '"ij"')
    args = [arg for arg in call.args if not arg.startswith("**")]
    if len(args) == 1 and not args[0].startswith("*"):  # a list of them
        args = [f"*{args[0]}"]
    return f"np.meshgrid({joined(args, {'indexing': indexing})})"


def _np_array(call: Call) -> str:
    given = [call.args[0]]
    if "dtype" in call.kwargs:
        given.append(call.numpy_type)
    return f"np.asarray({joined(given)})"


def _np_tensor(call: Call) -> str:
    """``torch.Tensor(3, 4)`` has that shape, ``torch.Tensor([3, 4])`` these values."""
    is_sequence = call.first.kind == "sequence"
    if len(call.args) == 1 and (is_sequence or call.args[0].startswith("[")):
        return f"np.asarray({call.args[0]}, float)"
    return f"np.zeros({call.many()})"


# Parameters and buffers
# -------------------------------------------------------------------------------------------------

#: Arrays that NumPy makes, and the start values of their kind.
_STARTS = {
    "np.zeros(SHAPE)": "start.ZEROS",
    "np.ones(SHAPE)": "start.ONES",
    "np.full(SHAPE, VALUE, TYPE)": "start.Constant({VALUE})",
    "np.random.standard_normal(SHAPE)": "start.Normal()",
    "FACTOR * np.zeros(SHAPE)": "start.ZEROS",
    "FACTOR * np.ones(SHAPE)": "start.Constant({FACTOR})",
    "FACTOR * np.random.standard_normal(SHAPE)": "start.Normal({FACTOR})",
    "np.ones(SHAPE) * FACTOR": "start.Constant({FACTOR})",
    "np.random.standard_normal(SHAPE) * FACTOR": "start.Normal({FACTOR})",
    "np.random.standard_normal(SHAPE) / DIVISOR": "start.Normal(1 / {DIVISOR})",
}
_FORMS = [(pattern(text), begin) for text, begin in _STARTS.items()]
_FILLED = {
    "normal_": "mean std=1.0 ... -> start.Normal(std={std}{mean?})",
    "zero_": "start.ZEROS",
    "fill_": "start.Constant({a})",
}
_METHOD_OF_CALL = m.Call(m.Attribute(m.Call()))
Started = tuple[str, str] | None  # the sources of a shape and of a start value


def _parameter(call: Call) -> str:
    """``nn.Parameter`` of an array that NumPy makes: of its shape and start value, if it can be.

    Raises:
        NeedsHand: It is of a distribution that is not there.
    """
    text = call.sources[0]
    if call.name == "Buffer":
        return _buffered(text, call.kwargs.get("persistent", "True"))
    if call.result.dtype and not call.result.is_floating:
        return _buffered(text)
    value = cst.parse_expression(text)
    started = _drawn(value) or _filled(value)
    shape, begin = started or (f"np.shape({text})", f"np.asarray({text})")
    return call_of_nn("Parameter", shape, begin)


def _drawn(value: Any) -> Started:
    """``torch.zeros(3)``, ``0.02 * torch.randn(3)``, ``torch.full((3,), 0.5)``."""
    for form, begin in _FORMS:
        found: Any = m.extract(value, form)
        if found is not None:
            parts = {name: code(part) for name, part in found.items()}
            if "DIVISOR" in found:
                parts["DIVISOR"] = code(in_brackets(found["DIVISOR"]))
            return parts["SHAPE"], begin.format(**parts)
    return None


def _filled(value: Any) -> Started:
    """``torch.empty(3).normal_(std=0.02)``."""
    if not m.matches(value, _METHOD_OF_CALL):
        return None
    drawn = _drawn(value.func.value)
    if drawn is None:
        return None
    shape, _ = drawn
    call = Call(value.func.attr.value, *arguments(value.args))
    if call.name in _FILLED:
        return shape, written(_FILLED[call.name], call)
    if call.name == "uniform_" and len(call.args) == 2:
        low, high = call.args
        if low == f"-{high}":
            return shape, f"start.Uniform({high})"
    raise NeedsHand(
        f"{call.name}: give a distribution of deliralike.start as the start value"
    )


def _buffered(value: str, persistent: str = "True") -> str:
    """A buffer; of one that is not saved the array."""
    if persistent == "True" and value != "None":
        return call_of_nn("Buffer", value)
    return value


def _buffer(call: Call) -> str:
    given = call.bound("self name tensor persistent=True")
    array = _buffered(given["tensor"], given["persistent"])
    return f"setattr({call.x}, {given['name']}, {array})"


_HOOK = refused("hooks are not ported: compute in forward what the hook takes or gives")
_CHILDREN = 'for name, block in {x}.named_blocks() if name and "." not in name'


# The tables
# -------------------------------------------------------------------------------------------------


class PyTorchCalls(Framework):
    """What stands for PyTorch's calls."""

    keywords = KEYWORDS
    dropped = DROPPED
    layer_sources = LAYER_SOURCES
    #: Classes of the framework that have another name here.
    classes = {"SyncBatchNorm": "BatchNorm2d", "timm.DropPath": "DropPath"}
    #: Functions that draw masks, and the layers that do.
    drawing = {
        "dropout": "Dropout",
        "dropout1d": "Dropout1d",
        "dropout2d": "Dropout2d",
        "dropout3d": "Dropout3d",
        "alpha_dropout": "AlphaDropout",
    }
    #: Functions of attention that draw masks, and their arguments.
    attending = {
        "scaled_dot_product_attention": "query key value attn_mask dropout_p=0.0 is_causal scale "
        "enable_gqa",
    }
    #: What is called for its effect on the framework alone.
    without_effect = (
        "torchvision._log_api_usage_once",
        "set_grad_enabled",
        "manual_seed",
        "_assert",
        "jit.is_scripting",
        "jit.is_tracing",
        "compiler.is_compiling",
        "is_grad_enabled",
        "onnx.is_in_onnx_export",
    )
    functions = {
        "Parameter": _parameter,
        "Buffer": _parameter,
        "batch_norm": _batch_norm,
        "Embedding.from_pretrained": "embeddings freeze -> nn.Embedding(*np.shape({embeddings}))",
        "flatten": "input start_dim=0 end_dim -> nn.flatten({input}, {start_dim}{end_dim?})",
        "reshape": "nn.reshape({args})",
        "var": _variance,
        "std": _variance,
        "var_mean": _variance,
        "std_mean": _variance,
        "einsum": _einsum,
        "select": "input dim index -> nn.movedim({input}, {dim}, 0)[{index}]",
        "zeros": _created("nn.zeros({many}, like={like})"),
        "ones": _created("nn.ones({many}, like={like})"),
        "empty": _created("nn.zeros({many}, like={like})"),
        "empty_like": "nn.zeros_like({a})",
        "zeros_like": _alike,
        "ones_like": _alike,
        "full_like": _alike,
        "full": _created(
            "size fill_value ... -> nn.full({size}, {fill_value}, like={like})"
        ),
        "arange": _ranged,
        "linspace": _ranged,
        "eye": _ranged,
        "tensor": _number,
        "as_tensor": _number,
        "from_numpy": _number,
        "split": "tensor split_size_or_sections dim -> "
        "nn.split({tensor}, {split_size_or_sections}{dim?})",
        "utils.weight_norm": _weight_norm,
        "rnn.pack_padded_sequence": _PACKED,
        "rnn.pad_packed_sequence": _PACKED,
        "rand": "{uniform}({like}, {many})",
        "randn": "{normal}({like}, {many})",
        "rand_like": "{uniform}({a})",
        "randn_like": "{normal}({a})",
        "bernoulli": _RANDOM,
        "normal": _normal,
        "cuda.is_available": "False",
        "Transformer.generate_square_subsequent_mask": _SUBSEQUENT_MASK,
        "finfo": "np.finfo(np.float32)",
        "is_tensor": 'hasattr({a}, "shape")',
        "nonzero": _BY_VALUES,
        "unique": _BY_VALUES,
        "checkpoint.checkpoint": lambda call: (
            f"{call.args[0]}({joined(call.args[1:])})"
        ),
        "autograd.Variable": "{a}",
        "jit.annotate": "{b}",
        "modules._single": f"{_REPEATED}1)",
        "modules._pair": f"{_REPEATED}2)",
        "modules._triple": f"{_REPEATED}3)",
        "linalg.norm": lambda call: plain(replace(call, name="norm")),
        "linalg.vector_norm": "x ord=2 dim keepdim -> nn.norm({x}, {ord}{dim?}{keepdim?})",
        "clamp_min": "input min -> nn.clamp({input}, {min})",
        "clamp_max": "input max -> nn.clamp({input}, max={max})",
        "timm.DropPath": "drop_prob=0.0 -> nn.DropPath({drop_prob})",
        "torchvision.StochasticDepth": _stochastic_depth,
    }
    names = Names(_MODULES, {*functions, *without_effect})
    methods = {
        "view": "nn.reshape({x}, {many})",
        "reshape": "nn.reshape({x}, {many})",
        "view_as": "nn.reshape({x}, {a}.shape)",
        "reshape_as": "nn.reshape({x}, {a}.shape)",
        "permute": "nn.permute({x}, {many})",
        "repeat": "nn.tile({x}, {many})",
        "tile": "nn.tile({x}, {many})",
        "flip": "nn.flip({x}, {many})",
        "expand": "nn.broadcast_to({x}, {many})",
        "expand_as": "nn.broadcast_to({x}, {a}.shape)",
        "sum": _accumulated,
        "cumsum": _accumulated,
        "split": "self split_size dim -> nn.split({x}, {split_size}{dim?})",
        "size": _size,
        "dim": "{x}.ndim",
        "ndimension": "{x}.ndim",
        "numel": "math.prod({x}.shape)",
        "zero_": "nn.zeros_like({x})",
        "fill_": "nn.full_like({x}, {a})",
        "copy_": "{a}",
        "is_floating_point": lambda call: str(call.value.is_floating),
        "contiguous": "{x}",
        "cuda": "{x}",
        "cpu": "{x}",
        "clone": "{x}",
        "requires_grad_": "{x}",
        **dict.fromkeys(_CONVERSIONS, _converted),
        "new_zeros": _created("nn.zeros({many}, like={x})"),
        "new_empty": _created("nn.zeros({many}, like={x})"),
        "new_ones": _created("nn.ones({many}, like={x})"),
        "new_full": _created(
            "self size fill_value ... -> nn.full({size}, {fill_value}, like={x})"
        ),
        "new": _created("nn.zeros({many}, like={x})"),
        "new_tensor": "nn.constant({a}, like={x})",
        "unfold": refused(
            "windows along an axis: nn.stack([x[:, i : i + size] for i in places], -1)"
        ),
        "item": _BY_VALUES,
        "tolist": _BY_VALUES,
        "nonzero": _BY_VALUES,
        "register_hook": refused("hooks of gradients are not ported"),
        "bernoulli_": _RANDOM,
        "normal_": _noise(
            "{normal}({x})", "self mean=0 std=1 -> ({mean} + {std} * {normal}({x}))"
        ),
        "uniform_": _noise(
            "{uniform}({x})",
            "self from=0 to=1 -> ({from} + ({to} - {from}) * {uniform}({x}))",
        ),
    }
    #: Attributes of attributes that are the same for all networks.
    known_attributes = {
        "device.type": '"cpu"',
        "meshgrid.__kwdefaults__": '{"indexing": None}',
    }
    attributes = {
        "T": "nn.t({x})",
        "mT": "nn.swapaxes({x}, -2, -1)",
        "data": detached,
        "is_cuda": "False",
        "device": "None",  # new arrays lie where the others are
    }
    numpy_functions = {
        "zeros": "np.zeros({many}{whole_type?dtype})",
        "ones": "np.ones({many}{whole_type?dtype})",
        "empty": "np.zeros({many}{whole_type?dtype})",
        "full": "size fill_value ... -> np.full({size}, {fill_value}, {type})",
        "eye": _np_eye,
        # What it is like may be the backend's, which has a shape.
        "zeros_like": "np.zeros({a}.shape{whole_type?dtype})",
        "ones_like": "np.ones({a}.shape{whole_type?dtype})",
        "empty_like": "np.zeros({a}.shape{whole_type?dtype})",
        "full_like": "input fill_value ... -> np.full({input}.shape, {fill_value}, {type})",
        "normalize": "input p=2 dim=1 eps -> "
        "(lambda x: x / np.linalg.norm(x, {p}, {dim}, keepdims=True))({input})",
        "Transformer.generate_square_subsequent_mask": _SUBSEQUENT,
        "arange": _np_range,
        "meshgrid": _np_meshgrid,
        "cat": _np("concatenate"),
        "concat": _np("concatenate"),
        "unsqueeze": _np("expand_dims"),
        "flatten": _np_flat,
        "unbind": "input dim=0 -> np.moveaxis({input}, {dim}, 0)",
        "cdist": "x1 x2 -> np.linalg.norm({x1}[..., None, :] - {x2}[..., None, :, :], axis=-1)",
        "clamp": "input min=None max=None -> np.clip({input}, {min}, {max})",
        "randn": "np.random.standard_normal({many})",
        "rand": "np.random.random({many})",
        "tensor": _np_array,
        "as_tensor": _np_array,
        "from_numpy": "{a}",
        "autograd.Variable": "{a}",
        "Tensor": _np_tensor,
        "FloatTensor": _np_tensor,
        "LongTensor": "np.asarray({a}, np.int64)",
    }
    numpy_methods = {
        "size": methods["size"],
        "dim": methods["dim"],
        "numel": methods["numel"],
        "view": "{x}.reshape({args})",
        "permute": "{x}.transpose({args})",
        "transpose": "np.swapaxes({x}, {args})",
        "t": "{x}.T",
        "expand": _np_expand,
        "unsqueeze": _np("expand_dims"),
        "repeat": "np.tile({x}, {many})",
        "flatten": _np_flat,
        "float": "{x}.astype(float)",
        "long": "{x}.astype(np.int64)",
        "int": "{x}.astype(np.int32)",
        "bool": "{x}.astype(bool)",
        "clone": "{x}.copy()",
        "flip": "np.flip({x}, {many})",
        "repeat_interleave": "np.repeat({x}, {args})",
        # NumPy splits at places, PyTorch into sizes.
        "split": "self split_size dim=0 -> "
        "np.split({x}, np.cumsum({split_size})[:-1], {dim})",
        "mul_": "self other -> ({x} * {other})",
        "div_": "self other -> ({x} / {other})",
        "add_": "self other -> ({x} + {other})",
        "sub_": "self other -> ({x} - {other})",
        "unbind": "self dim=0 -> np.moveaxis({x}, {dim}, 0)",
        "clamp": "self min=None max=None -> np.clip({x}, {min}, {max})",
        "fill_": "np.full_like({x}, {a})",
        "zero_": "np.zeros_like({x})",
        "masked_fill": "np.where({a}, {b}, {x})",
        "masked_fill_": "np.where({a}, {b}, {x})",
        "contiguous": "{x}",
        "cpu": "{x}",
        "cuda": "{x}",
        "detach": "{x}",
        "numpy": "{x}",
        "type_as": "{x}",
        "type": "{x}",
        "to": "{x}",
    }
    #: Methods of modules that set an attribute, or give members.
    setters = {
        "register_forward_hook": _HOOK,
        "register_forward_pre_hook": _HOOK,
        "register_full_backward_hook": _HOOK,
        "generate_square_subsequent_mask": _SUBSEQUENT_MASK,
        "register_buffer": _buffer,
        "requires_grad_": "{x}",
        "register_parameter": "setattr({x}, {args})",
        "add_module": "setattr({x}, {args})",
        "__getattr__": "getattr({x}, {a})",
        "get_submodule": "getattr({x}, {a})",
        "modules": "[block for _, block in {x}.named_blocks()]",
        "children": f"[block {_CHILDREN}]",
        "named_children": f"[(name, block) {_CHILDREN}]",
        "named_modules": "{x}.named_blocks()",
    }
    #: What is the same while a network is created.
    in_both = (
        *("Parameter", "Buffer"),
        *("modules._pair", "modules._triple", "modules._single"),
        *("torchvision.StochasticDepth", "timm.DropPath", "utils.weight_norm"),
        *("cuda.is_available", "Embedding.from_pretrained"),
    )
    in_axes = staticmethod(in_axes)

    def refuse_old(self, call: Call, function: Any) -> None:
        """See `Framework`; of losses, and of softmax without an axis."""
        if _SOFTMAX.search(call.name):
            signature = "dim" if call.name[0].isupper() else "input dim ..."
            if call.bound(signature).get("dim", "None") == "None":
                raise NeedsHand(
                    f"{call.name} without dim: 0 for inputs of one or three axes, else 1"
                )
        if inspect.isbuiltin(function) or not _LOSS.search(call.name):
            return
        names = list(inspect.signature(function).parameters)
        if {"size_average", "reduce"} & {*names[: len(call.args)], *call.kwargs}:
            raise NeedsHand(
                f"{call.name} with size_average or reduce: give reduction by its name, "
                '"mean", "sum" or "none"'
            )

    def in_numpy(self, call: Call) -> str:
        """A function on arrays while a network is created.

        Raises:
            NeedsHand: NumPy has none of this name.
        """
        if call.name in self.numpy_functions:
            return written(self.numpy_functions[call.name], call)
        if call.name.startswith("init."):
            raise NeedsHand(f"{call.name}: start values are given by deliralike.start")
        module, _, _ = call.name.rpartition(".")
        if module in ("utils", "parametrizations") or module.istitle():
            raise NeedsHand(f"there is no {call.name} in nn")
        if not hasattr(np, call.name):
            raise NeedsHand(
                f"{call.name} while the network is created: compute it with NumPy"
            )
        return _np(call.name)(call)
