"""Chainer's names: what stands in their place in a network written once.

Only names that are here are taken: Chainer's functions share names with `nn` and have other
arguments. Sizes that a link finds out by itself, and the number of axes that it normalises, are
those of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import libcst as cst

from deliralike.port.calls import (
    NN,
    Call,
    Entry,
    NeedsHand,
    call_of_nn,
    joined,
    refused,
    tuple_of,
)
from deliralike.port.framework import Names

_MODULES = {
    "chainer": "",
    "chainer.links": "",
    "chainer.functions": "",
    "chainer.reporter": "",
    "chainer.initializers": "init.",
    "chainer.backends.cuda": "cuda.",
    "chainer.utils.argument": "argument.",
}


def _half_affine(dims: int) -> str:
    return f'''class HalfAffineBatchNorm{dims}d(BatchNorm{dims}d):
    """Batch normalisation with a factor or a shift alone: "weight" or "bias"."""

    def __init__(self, features, kept, eps, momentum=0.1):
        super().__init__(features, eps, momentum, affine=False)
        first = start.ONES if kept == "weight" else start.ZEROS
        setattr(self, kept, self.nn.Parameter((features,), first))'''


_STACKED_LSTM = '''class LSTMWeights(Network):
    """One layer: w0 to w3 are multiplied by inputs, w4 to w7 by the hidden state."""

    def __init__(self, in_size, out_size, dropout):
        super().__init__()
        nn = self.nn
        for number in range(8):
            width = in_size if number < 4 else out_size
            weight = nn.Parameter((out_size, width), start.Normal(width**-0.5))
            setattr(self, f"w{number}", weight)
            setattr(self, f"b{number}", nn.Parameter((out_size,), start.ZEROS))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, h, c):
        nn = self.nn
        w, b = ([getattr(self, f"{one}{n}") for n in range(8)] for one in "wb")
        weights = nn.cat(w[:4]), nn.cat(w[4:]), nn.cat(b[:4]), nn.cat(b[4:])
        y, h, c = nn.lstm(nn.unsqueeze(x, 1), h, c, *weights)
        return nn.squeeze(y, 1), h, c


class SequencesLSTM(ModuleList):
    """An LSTM of several layers over a list of sequences, each of its own length."""

    def __init__(self, n_layers, in_size, out_size, dropout):
        sizes = [in_size, *[out_size] * (n_layers - 1)]
        super().__init__([LSTMWeights(size, out_size, dropout) for size in sizes])
        self.out_size = out_size

    def forward(self, hx, cx, xs):
        nn = self.nn
        xs = list(xs)
        ends = np.cumsum([len(x) for x in xs])[:-1].tolist()
        if hx is None:
            hx = nn.zeros((len(self), len(xs), self.out_size), like=xs[0])
        if cx is None:
            cx = nn.zeros_like(hx)
        hidden, cells = [], []
        for number, layer in enumerate(self):
            if number:
                xs = nn.tensor_split(layer.drop(nn.cat(xs, 0)), ends, 0)
            states = zip(xs, hx[number], cx[number])
            found = [layer(x, h[None], c[None]) for x, h, c in states]
            xs = [y for y, _, _ in found]
            hidden.append(nn.cat([h for _, h, _ in found], 0))
            cells.append(nn.cat([c for _, _, c in found], 0))
        return nn.stack(hidden, 0), nn.stack(cells, 0), xs'''
#: Layers that the port writes itself.
LAYER_SOURCES: dict[str, str] = {
    "SequencesLSTM": _STACKED_LSTM,
    **{f"HalfAffineBatchNorm{dims}d": _half_affine(dims) for dims in (1, 2, 3)},
    "IgnoringEmbedding": '''class IgnoringEmbedding(Embedding):
    """An embedding that is zero for one word."""

    def __init__(self, words, width, ignored):
        super().__init__(words, width)
        self.ignored = ignored

    def forward(self, x):
        nn = self.nn
        is_word = x != self.ignored
        embedded = super().forward(nn.where(is_word, x, 0))
        return nn.where(nn.unsqueeze(is_word, -1), embedded, 0.0)''',
    "LinearMaxout": '''class LinearMaxout(Network):
    """The largest of several linear functions. Source: Goodfellow et al. 2013."""

    def __init__(self, in_size, out_size, pool_size, bias=True):
        super().__init__()
        self.linear = self.nn.Linear(in_size, out_size * pool_size, bias=bias)
        self.pool_size = pool_size

    def forward(self, x):
        nn = self.nn
        y = nn.reshape(self.linear(x), (x.shape[0], -1, self.pool_size))
        return nn.amax(y, 2)''',
}
DRAWING = {"dropout": "Dropout"}
WITHOUT_EFFECT = ("report", "argument.check_unexpected_kwargs")
IMPORTS = {
    "math.": "import math",
    "np.": "import numpy as np",
    "(ModuleList)": "from deliralike.nn.layers.containers import ModuleList",
    "start.": "from deliralike import start",
    "(Embedding)": "from deliralike.nn.layers.linear import Embedding",
    **{
        f"(BatchNorm{dims}d)": (
            f"from deliralike.nn.layers.normalization import BatchNorm{dims}d"
        )
        for dims in (1, 2, 3)
    },
}


NAMES = Names(_MODULES)


def masking(call: Call) -> dict[str, str]:
    """The arguments of a function that draws a mask."""
    given = _given(call, "x", "ratio")
    return {
        "input": given["x"],
        "p": given.get("ratio", "0.5"),
        "training": "self.training",
    }


def in_numpy(call: Call) -> str:
    """A function while a network is created: an initializer, that of a parameter.

    Raises:
        NeedsHand: It is another one: a chain computes with NumPy itself there.
    """
    if call.name.startswith("init."):
        return f"{call.name.removeprefix('init.')}({joined(call.args, call.kwargs)})"
    raise NeedsHand(f"{call.name} while the network is created: compute it with NumPy")


# Links
# -------------------------------------------------------------------------------------------------


def _given(call: Call, *names: str) -> dict[str, str]:
    """The arguments by name.

    Raises:
        NeedsHand: There is another one.
    """
    given = call.bound(*names)
    if unknown := given.keys() - {*names}:
        raise NeedsHand(f"{call.name} with {', '.join(sorted(unknown))}")
    return given


def _find_size(
    call: Call, given: dict[str, str], name: str, attribute: str, axis: int = 0
) -> None:
    """Put a size that the links of a call have found out in the run where none was given."""
    if given.get(name, "None") == "None":
        links = [link for link, _ in call.returned]
        sizes = [(link, getattr(link, attribute).shape[axis]) for link in links]
        given[name] = call.by_instance(name, sizes)


_SHARED = ("nobias", "initialW", "initial_bias")
_STARTS = ("initial_gamma", "initial_beta")


def _bias(given: dict[str, str]) -> str | None:
    nobias = given.get("nobias", "False")
    return {"False": None, "True": "False"}.get(nobias, f"not {nobias}")


def _linear(call: Call) -> str:
    given = _given(call, "in_size", "out_size", "nobias", *_SHARED[1:])
    if "out_size" not in given:
        given |= {"in_size": "None", "out_size": given["in_size"]}
    _find_size(call, given, "in_size", "W", 1)
    return call_of_nn("Linear", given["in_size"], given["out_size"], bias=_bias(given))


_CONVOLUTION = ("in_channels", "out_channels", "ksize")


def _convolution(layer: str, settings: str, axis: int = 1) -> Callable[[Call], str]:
    """A link of convolution, with the axis of its weight that belongs to the inputs."""

    def written(call: Call) -> str:
        given = _given(call, *_CONVOLUTION, "stride", "pad", *settings.split())
        if given.get("ksize", "None") == "None":  # the first one may be left out
            sizes = ("None", given["in_channels"], given["out_channels"])
            given |= dict(zip(_CONVOLUTION, sizes, strict=True))
        if given.get("outsize", "None") != "None":
            raise NeedsHand(
                f"{call.name} with outsize: give output_padding to nn.{layer}"
            )
        if given["in_channels"] in call.missing:
            raise NeedsHand(
                f"{call.name}: {given['in_channels']} was None, and is found out in the run: write "
                "the number of channels where the block is created"
            )
        if given.get("groups", "1") != "1" and given["in_channels"] == "None":
            raise NeedsHand(f"{call.name} in groups: write the number of channels")
        _find_size(call, given, "in_channels", "W", axis)
        return call_of_nn(
            layer,
            *(given[name] for name in _CONVOLUTION),
            stride=given.get("stride"),
            padding=given.get("pad"),
            dilation=given.get("dilate"),
            groups=given.get("groups"),
            bias=_bias(given),
        )

    return written


def _batch_norm(call: Call) -> str:
    names = ("size", "decay", "eps", "dtype", "use_gamma", "use_beta", *_STARTS, "axis")
    given = _given(_with_options(call, decay="0.9", eps="2e-5"), *names)
    scales = [given.get(f"use_{name}", "True") for name in ("gamma", "beta")]
    if given.get("axis", "None") != "None":
        raise NeedsHand(
            f"{call.name} with axis: nn.BatchNorm keeps axis 1, the channels"
        )
    _find_size(call, given, "size", "avg_mean")
    axes = {count for _, count in call.returned if count}
    if len(axes) != 1:
        raise NeedsHand(
            f"{call.name}: nn.BatchNorm1d, 2d or 3d, by the axes of its input"
        )
    dims = max(axes.pop() - 2, 1)
    settings = {"eps": given.get("eps", "2e-5")}
    if "decay" in given:
        settings["momentum"] = _of_new(given["decay"])
    if scales == ["False", "False"]:
        settings["affine"] = "False"
    name = f"BatchNorm{dims}d"
    if scales[0] == scales[1]:
        return call_of_nn(name, given["size"], **settings)
    if {*scales} != {"True", "False"}:
        raise NeedsHand(f"{call.name} with use_gamma={scales[0]}, use_beta={scales[1]}")
    kept = '"weight"' if scales[0] == "True" else '"bias"'
    return f"HalfAffine{name}({joined((given['size'], kept), settings)})"


def _with_options(call: Call, **defaults: str) -> Call:
    """``f(x, **options)`` is ``f(x, eps=options.get("eps", 2e-5))``."""
    options = [arg[2:] for arg in call.args if arg.startswith("**")]
    if len(options) != 1:
        return call
    args = tuple(arg for arg in call.args if not arg.startswith("**"))
    read = {
        name: f'{options[0]}.get("{name}", {value})' for name, value in defaults.items()
    }
    return replace(call, args=args, kwargs={**read, **call.kwargs})


def _of_new(decay: str) -> str:
    """The weight of the new value, for that of the old one."""
    try:
        return f"{1 - float(decay):.10g}"
    except ValueError:
        return f"1 - {decay}"


def _embedding(call: Call) -> str:
    given = _given(call, "in_size", "out_size", "initialW", "ignore_label")
    sizes = given["in_size"], given["out_size"]
    ignored = given.get("ignore_label", "None")
    if ignored != "None":
        return f"IgnoringEmbedding({joined(sizes, {'ignored': ignored})})"
    return call_of_nn("Embedding", *sizes)


def _linear_maxout(call: Call) -> str:
    sizes = ("in_size", "out_size", "pool_size")
    given = _given(call, *sizes, "initialW", "initial_bias")
    if given["in_size"] == "None":
        raise NeedsHand(f"{call.name}: write the number of inputs")
    bias = {"bias": "False"} if given.get("initial_bias") == "None" else {}
    return f"LinearMaxout({joined([given[one] for one in sizes], bias)})"


def _sequences_lstm(call: Call) -> str:
    names = ("n_layers", "in_size", "out_size", "dropout")
    given = _given(call, *names)
    return f"SequencesLSTM({joined([given[one] for one in names], {})})"


def _layer_norm(call: Call) -> str:
    given = _given(call, "size", "eps", *_STARTS)
    _find_size(call, given, "size", "gamma")
    return call_of_nn("LayerNorm", given["size"], eps=given.get("eps", "1e-6"))


def _group_norm(call: Call) -> str:
    given = _given(call, "groups", "size", "eps", *_STARTS)
    _find_size(call, given, "size", "gamma")
    return call_of_nn("GroupNorm", given["groups"], given["size"], eps=given.get("eps"))


#: Functions as members of a sequence, and the layers that compute the same.
_AS_LAYERS = {
    "relu": "ReLU()",
    "sigmoid": "Sigmoid()",
    "tanh": "Tanh()",
    "elu": "ELU()",
    "selu": "SELU()",
    "softplus": "Softplus()",
    "leaky_relu": "LeakyReLU(0.2)",
    "relu6": "ReLU6()",
    "dropout": "Dropout(0.5)",
    "softmax": "Softmax(1)",
    "log_softmax": "LogSoftmax(1)",
}


def _sequence(call: Call) -> str:
    return call_of_nn("Sequential", *map(_member, call.args))


def _member(arg: str) -> str:
    name = arg.rpartition(".")[2]
    if arg.startswith(f"{NN}.") and "(" not in arg and name in _AS_LAYERS:
        return f"{NN}.{_AS_LAYERS[name]}"
    if "(" not in arg and not arg.startswith("*"):
        raise NeedsHand(
            f"{arg} as a member of a sequence: write a class with a forward"
        )
    return arg


def parameter(call: Call, value: cst.BaseExpression) -> str:
    """``chainer.Parameter(initializer, shape)``."""
    del value  # which the call has, too
    given = _given(call, "initializer", "shape")
    if "shape" not in given:
        values = given["initializer"]
        return f"{NN}.Parameter(np.shape({values}), np.asarray({values}))"
    return _started(given)


def _started(given: dict[str, str]) -> str:
    """A parameter with a shape and an initializer."""
    begin = _start(given.get("initializer", "None"))
    return f"{NN}.Parameter({given['shape']}, {begin})"


def _start(initializer: str) -> str:
    """A start value for an initializer."""
    if initializer.replace(".", "").isdigit():
        return f"start.Constant({initializer})"
    name, _, rest = initializer.partition("(")
    name, scale = name.rpartition(".")[2], rest.removesuffix(")")
    match name:
        case "Normal" | "Uniform":
            return f"start.{name}({scale or '0.05'})"
        case "Constant":
            return f"start.Constant({scale})"
        case "Zero":
            return "start.ZEROS"
        case "One":
            return "start.ONES"
    raise NeedsHand(
        f"a parameter that starts as {initializer}: one of deliralike.start"
    )


#: What has no counterpart, by what to write.
_UNLIKE = {
    "it keeps its state between calls: nn.LSTM and nn.GRU take it and return it": (
        "LSTM StatefulGRU StatefulZoneoutLSTM StatefulPeepholeLSTM"
    ),
    "nn.LSTM and nn.GRU take a padded batch, and name their weights as PyTorch does": (
        "NStepBiLSTM NStepGRU NStepBiGRU StatelessLSTM StatelessGRU"
    ),
    "nn.Conv2d(..., groups=in_channels), whose weight has other axes": (
        "DepthwiseConvolution2D"
    ),
    "nn.PReLU has one axis where this has none: reshape its weight": "PReLU",
    "nn.pixel_shuffle orders the channels differently": "depth2space",
    "there is none in nn": "local_convolution_2d",
    "port its predictor, and give the loss to the trainer": "Classifier",
}


_OF_CONVOLUTION = "nobias initialW initial_bias dilate groups"
_OF_DECONVOLUTION = f"nobias outsize {_OF_CONVOLUTION}"
LINKS: dict[str, Entry] = {
    "Linear": _linear,
    "DilatedConvolution2D": _convolution("Conv2d", f"dilate {_OF_CONVOLUTION}"),
    "BatchNormalization": _batch_norm,
    "EmbedID": _embedding,
    "Maxout": _linear_maxout,
    "NStepLSTM": _sequences_lstm,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "Sequential": _sequence,
}
for _n in (1, 2, 3):
    _transposed = f"ConvTranspose{_n}d"
    LINKS[f"Convolution{_n}D"] = _convolution(f"Conv{_n}d", _OF_CONVOLUTION)
    LINKS[f"Deconvolution{_n}D"] = _convolution(_transposed, _OF_DECONVOLUTION, axis=0)
for _reason, _links in _UNLIKE.items():
    LINKS |= dict.fromkeys(_links.split(), refused(_reason))
_OF_PYTHON = ("get_dtype", "get_array_types", "argument.parse_kwargs")
IN_BOTH = (*LINKS, *_OF_PYTHON)


# Functions
# -------------------------------------------------------------------------------------------------

#: The functions that `nn` has by the same name with the same arguments.
SAME = (
    "relu sigmoid tanh selu relu6 exp expm1 log log1p log2 log10 sqrt rsqrt square sin cos tan "
    "sinh cosh floor ceil sign maximum minimum erf erfc where broadcast_to"
)
#: Chainer's name, that of `nn`, and Chainer's arguments, the array first: ``axis=1:dim`` is 1 where
#: it is not given, and called ``dim`` there.
_ARGUMENTS = """
    absolute abs x
    leaky_relu leaky_relu x slope=0.2:negative_slope
    elu elu x alpha
    softplus softplus x beta
    clip clip x x_min:min x_max:max
    softmax softmax x axis=1:dim
    log_softmax log_softmax x axis=1:dim
    logsumexp logsumexp x axis:dim
    sum sum x axis:dim keepdims:keepdim
    mean mean x axis:dim keepdims:keepdim
    average mean x axis:dim keepdims:keepdim
    max amax x axis:dim keepdims:keepdim
    min amin x axis:dim keepdims:keepdim
    argmax argmax x axis:dim
    concat cat xs axis=1:dim
    stack stack xs axis=0:dim
    hstack hstack xs
    vstack vstack xs
    expand_dims unsqueeze x axis:dim
    squeeze squeeze x axis:dim
    cumsum cumsum x axis:dim
    separate unbind x axis=0:dim
    split_axis tensor_split x indices_or_sections:indices_or_sections axis:dim
    softmax_cross_entropy cross_entropy x t:target ignore_label=-1:ignore_index
    max_pooling_1d max_pool1d x ksize:kernel_size stride pad:padding cover_all=True:ceil_mode
    max_pooling_2d max_pool2d x ksize:kernel_size stride pad:padding cover_all=True:ceil_mode
    max_pooling_3d max_pool3d x ksize:kernel_size stride pad:padding cover_all=True:ceil_mode
    average_pooling_1d avg_pool1d x ksize:kernel_size stride pad:padding
    average_pooling_2d avg_pool2d x ksize:kernel_size stride pad:padding
    average_pooling_3d avg_pool3d x ksize:kernel_size stride pad:padding
"""
_ARGUMENT = re.compile(r"(\w+)(?:=([\w.-]+))?(?::(\w+))?")


def _by_arguments(line: str) -> tuple[str, Entry]:
    """An entry for a line of `_ARGUMENTS`."""
    own, name, first, *others = line.split()
    arguments = [_ARGUMENT.findall(one)[0] for one in others]

    names = [first, *(one for one, _, _ in arguments)]

    def written(call: Call) -> str:
        given = _given(call, *names)
        kwargs = {}
        for one, default, new in arguments:
            kwargs[new or one] = given.get(one, default) or None
        return call_of_nn(name, given[first], **kwargs)

    return own, written


def _permuted(call: Call) -> str:
    """``F.transpose(x, (0, 2, 1))``, ``x.transpose(0, 2, 1)``, and all axes in reverse."""
    x, *given = call.given
    axes = call.kwargs.get("axes") or ", ".join(given)
    if not axes or axes == "None":
        raise NeedsHand("transpose of all axes: nn.permute(x, axes) with the axes")
    return call_of_nn("permute", x, f"({axes})" if len(given) > 1 else axes)


def _product(call: Call) -> str:
    given = _given(call, "a", "b", "transa", "transb")
    for name in ("a", "b"):
        if given.get(f"trans{name}") == "True":
            given[name] = call_of_nn("swapaxes", given[name], "-2", "-1")
    return call_of_nn("matmul", given["a"], given["b"])


def _response_norm(call: Call) -> str:
    """Chainer multiplies alpha with the sum, PyTorch with the mean."""
    given = _given(call, "x", "n", "k", "alpha", "beta")
    count = given.get("n", "5")
    alpha = f"{given.get('alpha', '1e-4')} * {count}"
    k, beta = given.get("k", "2"), given.get("beta", "0.75")
    return call_of_nn(
        "local_response_norm", given["x"], count, alpha=alpha, beta=beta, k=k
    )


def _resized(call: Call) -> str:
    given = _given(call, "x", "output_shape", "mode", "align_corners")
    mode = given.get("mode", '"bilinear"').strip("'\"")
    corners = None
    if mode == "bilinear":
        corners = given.get("align_corners", "True")
    return call_of_nn(
        "interpolate",
        given["x"],
        size=given["output_shape"],
        mode=f'"{mode}"',
        align_corners=corners,
    )


def _unpooled(call: Call) -> str:
    given = _given(call, "x", "ksize", "stride", "pad", "outsize", "cover_all")
    size = given["ksize"]
    if (
        given.get("stride", size) != size
        or given.get("pad", "0") != "0"
        or not size.isdigit()
    ):
        raise NeedsHand(f"{call.name} of windows that overlap, or are padded: by hand")
    large = call_of_nn("interpolate", given["x"], scale_factor=size, mode='"nearest"')
    if given.get("outsize", "None") != "None":
        height, width = (f"{given['outsize']}[{axis}]" for axis in (0, 1))
        return f"{large}[:, :, :{height}, :{width}]"
    if given.get("cover_all", "True") == "False":
        return large
    return f"{large}[:, :, :{1 - int(size)}, :{1 - int(size)}]"


def _options(call: Call) -> str:
    """``a, b = parse_kwargs(options, ("a", 1), ("b", 2))``."""
    options, *pairs = call.args
    return tuple_of([f"{options}.get{pair}" for pair in pairs])


def _maxout(call: Call) -> str:
    given = _given(call, "x", "pool_size", "axis")
    x, size = given["x"], given["pool_size"]
    if given.get("axis", "1") != "1":
        raise NeedsHand("maxout along another axis than 1: nn.reshape and nn.amax")
    shape = f"({x}.shape[0], -1, {size}, *{x}.shape[2:])"
    return call_of_nn("amax", call_of_nn("reshape", x, shape), "2")


FUNCTIONS: dict[str, Entry] = {
    **LINKS,
    "get_dtype": "None",
    "get_array_types": "()",
    "argument.parse_kwargs": _options,
    "maxout": _maxout,
    **dict(map(_by_arguments, _ARGUMENTS.strip().splitlines())),
    "identity": "{a}",
    "hard_sigmoid": "nn.clip(0.2 * {a} + 0.5, 0.0, 1.0)",
    "clipped_relu": lambda call: call_of_nn(
        "clip", call.args[0], "0.0", (*call.args, "20.0")[1]
    ),
    "swapaxes": "nn.swapaxes({args})",
    "tile": "nn.tile({args})",
    "flip": "nn.flip({args})",
    "reshape": "nn.reshape({args})",
    "flatten": "nn.reshape({a}, (-1,))",
    "transpose": _permuted,
    "matmul": _product,
    "batch_matmul": _product,
    "local_response_normalization": _response_norm,
    "resize_images": _resized,
    "unpooling_2d": _unpooled,
    "mean_squared_error": "nn.mse_loss({args})",
}


def plain(call: Call) -> str:
    """The function of this name, whose first argument is the array."""
    return call_of_nn(call.name, *call.given, **call.kwargs)


METHODS: dict[str, Entry] = {
    "reshape": "nn.reshape({x}, {many})",
    "transpose": _permuted,
    "astype": "{x}",
    "flatten": "nn.reshape({x}, (-1,))",
    "sum": FUNCTIONS["sum"],
    "mean": FUNCTIONS["mean"],
    "max": FUNCTIONS["max"],
    "min": FUNCTIONS["min"],
    "argmax": FUNCTIONS["argmax"],
}
#: Attributes of attributes that are the same for all networks.
KNOWN_ATTRIBUTES = dict.fromkeys(
    ("config.train", "global_config.train"), "self.training"
)
#: Attributes of networks that others do not have, and what to write.
UNLIKE_ATTRIBUTES = {
    "xp": "arrays are made by functions of nn, random numbers by layers such as nn.Dropout"
}
ATTRIBUTES: dict[str, Entry] = {
    "array": "{x}",
    "data": "{x}",
    "size": "math.prod({x}.shape)",
    "T": "nn.t({x})",
}


def _link_added(call: Call) -> str:
    """``chain.add_link(name, link)``, ``chain_list.add_link(link)``."""
    if len(call.args) == 1:
        return f"{call.x}.append({call.args[0]})"
    return f"setattr({call.x}, {joined(call.args, {})})"


def _param_added(call: Call) -> str:
    given = _given(call, "self", "name", "shape", "dtype", "initializer")
    return f"setattr({call.x}, {given['name']}, {_started(given)})"


def _persistent(call: Call) -> str:
    given = _given(call, "self", "name", "value")
    return f"setattr({call.x}, {given['name']}, {NN}.Buffer({given['value']}))"


def _children(call: Call) -> str:
    if call.value is None or call.value.kind != "container":
        raise NeedsHand(
            "children of a chain: name them, or keep them in an nn.ModuleList"
        )
    return call.x


SETTERS: dict[str, Entry] = {
    "add_link": _link_added,
    "add_param": _param_added,
    "add_persistent": _persistent,
    "children": _children,
}
