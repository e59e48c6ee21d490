"""Chainer's names: what stands in their place in a network written once.

Only names that are here are taken: Chainer's functions share names with `nn` and have other
arguments. Sizes that a link finds out by itself, and the number of axes that it normalises, are
those of the run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from deliralike.port import chainer_links
from deliralike.port.calls import (
    NN,
    Call,
    Entry,
    NeedsHand,
    call_of_nn,
    detached,
    elements,
    filled,
    joined,
    plain,
    refused,
    written,
)
from deliralike.port.framework import Framework, Names
from deliralike.port.values import UNKNOWN
from deliralike.weights.chainer_names import LEAVES

_MODULES = {
    "chainer": "",
    "chainer.links": "",
    "chainer.functions": "",
    "chainer.reporter": "",
    "chainer.initializers": "init.",
    "chainer.backend": "backend.",
    "chainer.backends.cuda": "cuda.",
    "chainer.utils.argument": "argument.",
}
#: Links that are bases of classes, whose ``__init__`` has other arguments here.
LINK_BASES = {
    "Linear": "Linear",
    "Convolution2D": "Conv2d",
    "Deconvolution2D": "ConvTranspose2d",
}
#: The links that are layers of `nn`, under other names of their weights.
LAYERS = (
    "Linear",
    "Convolution2D",
    "ConvolutionND",
    "Deconvolution2D",
    "DeconvolutionND",
    "EmbedID",
    "PReLU",
    "LayerNormalization",
    "GroupNormalization",
    "BatchNormalization",
)


def _shift_alone(dims: int) -> str:
    return f'''class ShiftingBatchNorm{dims}d(BatchNorm{dims}d):
    """Batch normalisation with a shift and no factor."""

    def __init__(self, features, eps, momentum=0.1):
        super().__init__(features, eps, momentum, affine=False)
        self.bias = self.nn.Parameter((features,), start.ZEROS)'''


def _sources_of_links() -> dict[str, str]:
    """The sources of the links and functions that are written for ports."""
    found = {}
    for name, value in vars(chainer_links).items():
        if getattr(value, "__module__", None) == chainer_links.__name__:
            found[name] = inspect.getsource(value).rstrip()
    return found


#: Layers and functions that become a part of the port.
LAYER_SOURCES: dict[str, str] = {
    **{f"ShiftingBatchNorm{dims}d": _shift_alone(dims) for dims in (1, 2, 3)},
    **_sources_of_links(),
}


# Links
# -------------------------------------------------------------------------------------------------


def _find_size(
    call: Call, given: dict[str, str], name: str, attribute: str, axis: int = 0
) -> None:
    """Put a size that the links of a call have found out in the run where none was given."""
    size = given.get(name, "None")
    is_argument = size in call.missing
    if is_argument or size == "None":
        shape = attrgetter(f"{attribute}.shape")
        sizes = [(link, shape(link)[axis]) for link, _ in call.returned]
        given[name] = call.by_instance(f"found_{name}" if is_argument else name, sizes)


#: Arguments of links that give start values: a port has the original's weights.
_STARTS = (
    "initialW initial_bias initial_gamma initial_beta lateral_init upward_init bias_init "
    "forget_bias_init init inner_init"
)


def _link(
    entry: str, late: tuple[str, str, int] | None = None
) -> Callable[[Call], str]:
    """A link in whose place a layer stands.

    Args:
        entry: See `written`. Its ``{bias?}`` is what ``nobias`` says.
        late: The size that the link may find out in the run, see `_find_size`.
    """
    signature, _, text = entry.partition(" -> ")

    def written(call: Call) -> str:
        given = call.only(f"{signature} {_STARTS}")
        _shift_sizes(given)
        if late is not None:
            _find_size(call, given, *late)
        nobias = given.get("nobias", "False")
        if nobias != "False":
            given["bias"] = "False" if nobias == "True" else f"not {nobias}"
        return filled(text, given)

    return written


def _shift_sizes(given: dict[str, str]) -> None:
    """``L.Linear(5)`` has outputs; it finds out how many inputs."""
    for sizes in (("in_size", "out_size"), ("in_channels", "out_channels", "ksize")):
        if sizes[0] in given and given.get(sizes[-1], "None") == "None":
            values = ["None", *(given[name] for name in sizes[:-1])]
            given |= dict(zip(sizes, values, strict=True))


_LINEAR = _link(
    "in_size out_size nobias -> nn.Linear({in_size}, {out_size}{bias?})",
    late=("in_size", "W", 1),
)


def _linear(call: Call) -> str:
    layer = _LINEAR(call)
    if any(axes > 2 for _, axes in call.returned):
        return layer.replace(f"{NN}.Linear", "FlatLinear")
    return layer


def _convolution(
    layer: str, settings: str = "", axis: int = 1
) -> Callable[[Call], str]:
    """A link of convolution, with the axis of its weight that belongs to the inputs."""
    signature = (
        "in_channels out_channels ksize=None stride pad "
        f"{settings} initialW initial_bias dilate groups"
    )
    entry = _link(
        f"{signature} -> nn.{layer}({{in_channels}}, {{out_channels}}, {{ksize}}{{stride?}}"
        "{pad?padding}{dilate?dilation}{groups?}{bias?})",
        late=("in_channels", "W", axis),
    )

    def written(call: Call) -> str:
        given = call.only(signature)
        if given.get("outsize", "None") != "None":
            raise NeedsHand(
                f"{call.name} with outsize: give output_padding to nn.{layer}"
            )
        is_missing = "None" in (given["ksize"], given["in_channels"])
        is_missing |= given["in_channels"] in call.missing
        if given.get("groups", "1") != "1" and is_missing:
            raise NeedsHand(f"{call.name} in groups: write the number of channels")
        return entry(call)

    return written


#: Layers of batch normalisation, by whether there are gamma and beta.
_NORMS = {
    ("True", "True"): "nn.BatchNorm{dims}d({size}, eps={eps}{momentum?})",
    ("True", "False"): "nn.BatchNorm{dims}d({size}, eps={eps}{momentum?}, bias=False)",
    ("False", "True"): "ShiftingBatchNorm{dims}d({size}, eps={eps}{momentum?})",
    (
        "False",
        "False",
    ): "nn.BatchNorm{dims}d({size}, eps={eps}{momentum?}, affine=False)",
}


def _batch_norm(call: Call) -> str:
    given = _with_options(call, decay="0.9", eps="2e-5").only(
        "size decay eps=2e-5 dtype use_gamma=True use_beta=True "
        "initial_gamma initial_beta axis=None"
    )
    scales = given["use_gamma"], given["use_beta"]
    if scales not in _NORMS:
        raise NeedsHand(f"{call.name} with use_gamma={scales[0]}, use_beta={scales[1]}")
    if given["axis"] != "None":
        raise NeedsHand(
            f"{call.name} with axis: nn.BatchNorm keeps axis 1, the channels"
        )
    _find_size(call, given, "size", "avg_mean")
    axes = {count for _, count in call.returned if count}
    if len(axes) != 1:
        raise NeedsHand(
            f"{call.name}: nn.BatchNorm1d, 2d or 3d, by the axes of its input"
        )
    given["dims"] = str(max(axes.pop() - 2, 1))
    if "decay" in given:
        given["momentum"] = _of_new(given["decay"])
    return filled(_NORMS[scales], given)


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
    given = call.only("in_size out_size initialW ignore_label=None")
    text = "nn.Embedding({in_size}, {out_size})"
    if given["ignore_label"] != "None":
        text = "IgnoringEmbedding({in_size}, {out_size}, ignored={ignore_label})"
    return filled(text, given)


def _prelu(call: Call) -> str:
    count = elements(call.only("shape=() init")["shape"])
    if count is None or len(count) > 1:
        raise NeedsHand(f"{call.name} with a slope for more than each channel")
    return call_of_nn("PReLU", *count)


def _convolution_nd(layer: str, settings: str = "nobias", axis: int = 1) -> Entry:
    """A convolution whose number of axes is given."""

    def written(call: Call) -> str:
        dims, *args = call.args
        if not dims.isdigit():
            raise NeedsHand(f"{call.name} of {dims} axes: nn.{layer}1d, 2d or 3d")
        return _convolution(f"{layer}{dims}d", settings, axis)(
            replace(call, args=tuple(args))
        )

    return written


#: Functions as members of a sequence, and the layers that compute the same.
_AS_LAYERS = {
    "relu": "ReLU()",
    "sigmoid": "Sigmoid()",
    "tanh": "Tanh()",
    "selu": "SELU()",
    "relu6": "ReLU6()",
}


def _sequence(call: Call) -> str:
    return call_of_nn("Sequential", *map(_member, call.args))


def _list(call: Call) -> str:
    return call_of_nn("ModuleList", f"[{joined(call.args)}]")


def _member(arg: str) -> str:
    if arg.startswith(("lambda", "(lambda")):
        return f"FunctionOfOne({arg})"
    name = arg.rpartition(".")[2]
    if arg.startswith(f"{NN}.") and "(" not in arg and name in _AS_LAYERS:
        return f"{NN}.{_AS_LAYERS[name]}"
    if "(" not in arg and not arg.startswith("*"):
        raise NeedsHand(
            f"{arg} as a member of a sequence: write a class with a forward"
        )
    return arg


def _parameter(call: Call) -> str:
    """``chainer.Parameter(initializer, shape)``."""
    given = call.only("initializer=None shape")
    if "shape" not in given:
        values = given["initializer"]
        return call_of_nn("Parameter", f"np.shape({values})", f"np.asarray({values})")
    return _started(call, given)


def _started(call: Call, given: dict[str, str]) -> str:
    """A parameter with a shape, which may be a number, and an initializer."""
    shape = call.as_sequence(given["shape"])
    initializer = given["initializer"]
    kinds = {one.kind for one in call.values}
    if "function" not in kinds and initializer.isidentifier():
        return call_of_nn("Parameter", shape, f"start.Constant({initializer})")
    return call_of_nn("Parameter", shape, _start(initializer))


_STARTING = {
    "HeNormal": "start.HeNormal()",
    "HeUniform": "start.HeUniform()",
    "GlorotNormal": "start.XavierNormal()",
    "GlorotUniform": "start.XavierUniform()",
    "LeCunNormal": "start.HeNormal(slope=1.0)",
    "Zero": "start.ZEROS",
    "One": "start.ONES",
}


def _start(initializer: str) -> str:
    """A start value for an initializer."""
    if re.fullmatch(r"-?[\d.e-]+", initializer):
        return f"start.Constant({initializer})"
    name, _, rest = initializer.partition("(")
    name, scale = name.rpartition(".")[2], rest.removesuffix(")")
    if name in _STARTING and not scale:
        return _STARTING[name]
    if name in ("Normal", "Uniform"):
        return f"start.{name}({scale or '0.05'})"
    if name == "Constant":
        return f"start.Constant({scale})"
    raise NeedsHand(
        f"a parameter that starts as {initializer}: one of deliralike.start"
    )


#: What has no counterpart, by what to write.
_UNLIKE = {
    "it draws random numbers: layers of nn that do are nn.Dropout and its kind": (
        "StatefulZoneoutLSTM SimplifiedDropconnect NegativeSampling zoneout "
        "gumbel_softmax rrelu simplified_dropconnect negative_sampling"
    ),
    "port its predictor, and give the loss to the trainer": "Classifier",
    "nn.affine_grid and nn.grid_sample, with align_corners=True": (
        "spatial_transformer_grid spatial_transformer_sampler"
    ),
    "nn.cat([nn.relu(x), nn.relu(-x)], 1)": "crelu",
    "nn.movedim(x, axis, place)": "rollaxis",
    "nn.permute of an array with more axes": "space2depth depth2space",
    "nn.matmul, of arrays with three axes": "batch_matmul",
    "nn.conv2d, with as many groups as channels": (
        "DepthwiseConvolution2D depthwise_convolution_2d"
    ),
    "pad the sequences to one array, and call outputs(x, lengths) of an nn.LSTM or nn.GRU": (
        "NStepLSTM NStepBiLSTM NStepGRU NStepBiGRU NStepRNNTanh NStepBiRNNTanh NStepRNNReLU "
        "NStepBiRNNReLU pad_sequence"
    ),
    "a class of one's own: a GRU that resets the state before its product, of six nn.Linear": (
        "StatelessGRU StatefulGRU"
    ),
    'nn.einsum("bi,bj,ijk->bk", a, b, self.W) of an nn.Parameter': "Bilinear bilinear",
    "nn.amax over an axis of nn.reshape": "Maxout maxout",
    "the gates by nn.split, nn.sigmoid and nn.tanh": "tree_lstm ChildSumTreeLSTM NaryTreeLSTM",
    "x * nn.sigmoid(beta * x)": "Swish swish",
    "the loss as a formula, of nn.softplus, nn.exp and nn.mean": (
        "sigmoid_cross_entropy gaussian_kl_divergence bernoulli_nll"
    ),
    "nn.max_pool2d for each level, and nn.cat": "spatial_pyramid_pooling_2d",
}


LINKS: dict[str, Entry] = {
    "Linear": _linear,
    "DilatedConvolution2D": _convolution("Conv2d", "dilate nobias"),
    "BatchNormalization": _batch_norm,
    "EmbedID": _embedding,
    "PReLU": _prelu,
    "Sequential": _sequence,
    "ChainList": _list,
    "LayerNormalization": _link(
        "size=None eps=1e-6 -> nn.LayerNorm({size}{eps?})", late=("size", "gamma", 0)
    ),
    "GroupNormalization": _link(
        "groups size=None eps -> nn.GroupNorm({groups}, {size}{eps?})",
        late=("size", "gamma", 0),
    ),
}
for _name, _layer in (("LSTM", "StatefulLSTM"), ("StatelessLSTM", "StatelessLSTM")):
    LINKS[_name] = _link(
        f"in_size out_size -> {_layer}({{in_size}}, {{out_size}})",
        late=("in_size", "upward.W", 1),
    )
for _n in (1, 2, 3):
    _transposed = f"ConvTranspose{_n}d"
    LINKS[f"Convolution{_n}D"] = _convolution(f"Conv{_n}d", "nobias")
    LINKS[f"Deconvolution{_n}D"] = _convolution(_transposed, "nobias outsize", axis=0)
LINKS["ConvolutionND"] = _convolution_nd("Conv")
LINKS["DeconvolutionND"] = _convolution_nd("ConvTranspose", "nobias outsize", axis=0)
for _reason, _links in _UNLIKE.items():
    LINKS |= dict.fromkeys(_links.split(), refused(_reason))
_OF_PYTHON = ("get_dtype", "get_array_types", "is_debug")
_MODULE_OF_ARRAYS = ("cuda.get_array_module", "backend.get_array_module")


# Functions
# -------------------------------------------------------------------------------------------------

#: The functions that `nn` has by the same name with the same arguments.
_SAME = (
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
    argmin argmin x axis:dim
    prod prod x axis:dim keepdims:keepdim
    cumprod cumprod x axis:dim
    arcsin asin x
    arccos acos x
    arctan atan x
    arctan2 atan2 x1 x2:other
    arctanh atanh x
    fix trunc x
    fmod fmod x divisor:other
    prelu prelu x W:weight
    flip flip x axis:dims
    fliplr fliplr a
    flipud flipud a
    dstack dstack xs
    repeat repeat_interleave x repeats axis:dim
    moveaxis movedim x source destination
    diagonal diagonal x offset axis1=0:dim1 axis2=1:dim2
    tensordot tensordot a b axes:dims
    linear linear x W:weight b:bias
    concat cat xs axis=1:dim
    stack stack xs axis=0:dim
    hstack hstack xs
    vstack vstack xs
    expand_dims unsqueeze x axis:dim
    squeeze squeeze x axis:dim
    cumsum cumsum x axis:dim
    separate unbind x axis=0:dim
    split_axis tensor_split x indices_or_sections:indices_or_sections axis:dim
"""
_MAXIMA = "ksize:kernel_size stride pad:padding cover_all=True:ceil_mode return_indices"
_AVERAGES = "ksize:kernel_size stride pad:padding"
_PRODUCTS = "W:weight b:bias stride pad:padding dilate:dilation groups"
for _axes, _new in (("1d", "1d"), ("2d", "2d"), ("3d", "3d"), ("nd", "")):
    _ARGUMENTS += f"""
    max_pooling_{_axes} max_pool{_new} x {_MAXIMA}
    average_pooling_{_axes} avg_pool{_new} x {_AVERAGES}
    convolution_{_axes} conv{_new} x {_PRODUCTS}
    dilated_convolution_{_axes} conv{_new} x {_PRODUCTS}
    deconvolution_{_axes} conv_transpose{_new} x {_PRODUCTS}"""


def _by_arguments(line: str) -> tuple[str, Entry]:
    """An entry for a line of `_ARGUMENTS`."""
    chainer_name, name, first, *others = line.split()
    signature, text = first, f"{{{first}}}"
    for one in others:
        argument, _, new = one.partition(":")
        signature += f" {argument}"
        text += f"{{{argument.partition('=')[0]}?{new}}}"
    return chainer_name, f"{signature} -> nn.{name}({text})"


_LINES = [line for line in _ARGUMENTS.splitlines() if line.strip()]
_BY_ARGUMENTS = dict(map(_by_arguments, _LINES))


def _permuted(call: Call) -> str:
    """``F.transpose(x, (0, 2, 1))``, ``x.transpose(0, 2, 1)``, and all axes in reverse."""
    x, *given = call.given
    axes = call.kwargs.get("axes") or ", ".join(given)
    if not axes or axes == "None":
        raise NeedsHand("transpose of all axes: nn.permute(x, axes) with the axes")
    return call_of_nn("permute", x, f"({axes})" if len(given) > 1 else axes)


def _product(call: Call) -> str:
    given = call.only("a b transa=False transb=False")
    for name in ("a", "b"):
        if given[f"trans{name}"] == "True":
            given[name] = call_of_nn("swapaxes", given[name], "-2", "-1")
    return call_of_nn("matmul", given["a"], given["b"])


def _resized(call: Call) -> str:
    given = call.only("x output_shape mode='bilinear' align_corners=True")
    if given["mode"][1:-1] != "bilinear":
        del given["align_corners"]
    return filled(
        "nn.interpolate({x}, size={output_shape}, mode={mode}{align_corners?})", given
    )


def _unpooled(call: Call) -> str:
    """Windows that do not overlap; the last one is cut off where all elements are covered."""
    given = call.only("x ksize stride pad=0 outsize=None cover_all=True")
    size = given["ksize"]
    is_apart = given.get("stride", size) == size and given["pad"] == "0"
    if not is_apart or not size.isdigit():
        raise NeedsHand(f"{call.name} of windows that overlap, or are padded: by hand")
    large = call_of_nn("interpolate", given["x"], scale_factor=size, mode='"nearest"')
    height = width = str(1 - int(size))
    if given["outsize"] != "None":
        height, width = (f"{given['outsize']}[{axis}]" for axis in (0, 1))
    elif given["cover_all"] == "False":
        return large
    return f"{large}[:, :, :{height}, :{width}]"


def _cross_entropy(call: Call) -> str:
    given = call.only("x t ignore_label=-1 reduce='mean'")
    if given["reduce"][1:-1] == "no":
        given["reduction"] = '"none"'
    return filled(
        "nn.cross_entropy({x}, {t}, ignore_index={ignore_label}{reduction?})", given
    )


def _tiled(call: Call) -> str:
    given = call.only("x reps")
    return call_of_nn("tile", given["x"], call.as_sequence(given["reps"]))


def _of_type(call: Call) -> str:
    """Floating numbers stay of the network's type; others become of it."""
    x, before, after = call.given[0], call.value.dtype, call.result.dtype
    if not call.x:
        before = call.first.dtype
    if not before or not after or before == after:
        return x
    if not call.result.is_floating:
        return call_of_nn("cast", x, f'"{after}"')
    if "float" in before:
        return x
    return call_of_nn("cast", x, call.like())


def _variable(call: Call) -> str:
    """``chainer.Variable(x)``: an array stays, one of NumPy's becomes one."""
    x = call.args[0]
    if x.startswith("np."):
        return call_of_nn("constant", x, like=call.like())
    return x


def _written_here(name: str) -> Entry:
    """A function that is written for ports, with Chainer's arguments."""

    def written(call: Call) -> str:
        return f"{name}({joined((NN, *call.args), call.kwargs)})"

    return written


_WRITTEN_HERE = [name for name in LAYER_SOURCES if name.islower()]


def _link_added(call: Call) -> str:
    """``chain.add_link(name, link)``, ``chain_list.add_link(link)``."""
    if len(call.args) == 1:
        return f"{call.x}.append({call.args[0]})"
    return f"setattr({call.x}, {joined(call.args)})"


def _param_added(call: Call) -> str:
    given = call.only("self name shape dtype initializer=None")
    return f"setattr({call.x}, {given['name']}, {_started(call, given)})"


def _children(call: Call) -> str:
    if call.value.kind != "container":
        raise NeedsHand(
            "children of a chain: name them, or keep them in an nn.ModuleList"
        )
    return call.x


# The tables
# -------------------------------------------------------------------------------------------------


class ChainerCalls(Framework):
    """What stands for Chainer's calls."""

    layer_sources = LAYER_SOURCES
    link_bases = LINK_BASES
    names = Names(_MODULES)
    drawing = {"dropout": "Dropout"}
    without_effect = ("report", "argument.check_unexpected_kwargs")
    same_names = _SAME.split()
    functions = {
        **LINKS,
        "Parameter": _parameter,
        "get_dtype": "None",
        "get_array_types": "()",
        **{name: _written_here(name) for name in _WRITTEN_HERE},
        "squared_error": "x0 x1 -> nn.square({x0} - {x1})",
        "squared_difference": "x0 x1 -> nn.square({x0} - {x1})",
        "gaussian": "mean ln_var -> ({mean} + {normal}({mean}) * nn.exp(({ln_var}) * 0.5))",
        "upsampling_2d": "x indexes ksize stride pad outsize cover_all -> nn.max_unpool2d("
        "{x}, {indexes}, {ksize}{stride?}{pad?padding}, output_size={outsize})",
        "linear_interpolate": "p x y -> nn.lerp({y}, {x}, {p})",
        "cast": _of_type,
        "copy": "{a}",
        "get_item": "{a}[{b}]",
        "broadcast": "nn.broadcast_tensors({args})",
        "einsum": "nn.einsum({args})",
        "mean_absolute_error": "nn.l1_loss({args})",
        "Variable": _variable,
        "as_variable": _variable,
        "cuda.to_cpu": "{a}",
        "cuda.to_gpu": "{a}",
        **dict.fromkeys(_MODULE_OF_ARRAYS, "np"),
        "is_debug": "False",
        **_BY_ARGUMENTS,
        "identity": "{a}",
        "hard_sigmoid": "nn.clip(0.2 * {a} + 0.5, 0.0, 1.0)",
        "clipped_relu": "x z=20.0 -> nn.clip({x}, 0.0, {z})",
        "swapaxes": "nn.swapaxes({args})",
        "tile": _tiled,
        "softmax_cross_entropy": _cross_entropy,
        "flip": "nn.flip({args})",
        "reshape": "nn.reshape({args})",
        "flatten": "nn.reshape({a}, (-1,))",
        "transpose": _permuted,
        "matmul": _product,
        "batch_normalization": "x gamma beta eps=2e-5 -> "
        "nn.batch_norm_train({x}, {gamma}, {beta}, {eps})[0]",
        "select_item": "x t -> nn.squeeze(nn.gather({x}, 1, nn.unsqueeze({t}, 1)), 1)",
        # Chainer multiplies alpha with the sum, PyTorch with the mean.
        "local_response_normalization": "x n=5 k=2 alpha=1e-4 beta=0.75 -> "
        "nn.local_response_norm({x}, {n}, alpha={alpha} * {n}, beta={beta}, k={k})",
        "resize_images": _resized,
        "unpooling_2d": _unpooled,
        "mean_squared_error": "nn.mse_loss({args})",
    }
    #: Functions that are written otherwise where they are handed on.
    values = (
        *("leaky_relu", "softmax", "log_softmax", "hard_sigmoid", "elu", "softplus"),
        *("identity", "dropout"),
    )
    methods = {
        "reshape": "nn.reshape({x}, {many})",
        "astype": _of_type,
    }
    attributes = {
        "array": detached,
        "data": detached,
        "size": "math.prod({x}.shape)",
        "T": "nn.t({x})",
    }
    #: Attributes of attributes that are the same for all networks.
    known_attributes = dict.fromkeys(
        ("config.train", "global_config.train"), "self.training"
    )
    #: Attributes of networks that others do not have, and what stands for them.
    unlike_attributes = {"xp": "np"}
    #: The weights and settings of links that have PyTorch's names here.
    other_names = {
        **LEAVES,
        "ksize": "kernel_size",
        "pad": "padding",
        "dilate": "dilation",
    }
    setters = {
        "add_link": _link_added,
        "add_param": _param_added,
        "add_persistent": "self name value -> setattr({x}, {name}, nn.Buffer({value}))",
        # An array that is an attribute becomes one that is saved.
        "register_persistent": "setattr({x}, {a}, nn.Buffer(vars({x}).pop({a})))",
        "children": _children,
        "repeat": refused("write its members out, or a loop over nn.Sequential"),
    }
    in_both = (*LINKS, "Parameter", *_OF_PYTHON, *_MODULE_OF_ARRAYS)
    #: NumPy's functions that make floating arrays.
    _makers = {
        "zeros": "nn.zeros({a}, like={like})",
        "ones": "nn.ones({a}, like={like})",
        "full": "nn.full({a}, {b}, like={like})",
        "zeros_like": "nn.zeros_like({a})",
        "ones_like": "nn.ones_like({a})",
        "full_like": "nn.full_like({a}, {b})",
    }
    #: NumPy's functions of the network's arrays.
    _of_arrays = {
        "sum": functions["sum"],
        "mean": functions["mean"],
        "max": functions["max"],
        "argmax": functions["argmax"],
        "reshape": functions["reshape"],
        "transpose": functions["transpose"],
        "expand_dims": functions["expand_dims"],
        "isnan": "nn.isnan({a})",
        "concatenate": _by_arguments("concatenate cat xs axis=0:dim")[1],
        **dict.fromkeys(
            ("exp", "log", "sqrt", "maximum", "minimum", "where", "broadcast_to"), plain
        ),
    }

    def masking(self, call: Call) -> dict[str, str]:
        """The arguments of a function that draws a mask."""
        given = call.only("x ratio=0.5")
        return {"input": given["x"], "p": given["ratio"], "training": "self.training"}

    def in_numpy(self, call: Call) -> str:
        """A function while a network is created: an initializer, that of a parameter.

        Raises:
            NeedsHand: It is another one: a chain computes with NumPy itself there.
        """
        if call.name.startswith("init."):
            return (
                f"{call.name.removeprefix('init.')}({joined(call.args, call.kwargs)})"
            )
        raise NeedsHand(
            f"{call.name} while the network is created: compute it with NumPy"
        )

    def arguments_of_base(self, call: Call) -> str:
        """What ``super().__init__`` of a class that is a link is given."""
        text = written(LINKS[call.name], call)
        return text[text.index("(") + 1 : -1]

    def by_numpy(self, call: Call, module: str) -> str | None:
        """What stands for a function of NumPy that `forward` calls; None where it stays.

        Whole numbers stay NumPy's, unless they are made by the module of the network's arrays.

        Raises:
            NeedsHand: It computes with arrays of the network, or draws numbers.
        """
        if call.result == UNKNOWN:
            return None
        is_host = module in ("np", "numpy")
        is_array = call.first.kind in ("array", "arrays")
        if is_array and not is_host and call.name in self._of_arrays:
            return written(self._of_arrays[call.name], call)
        if call.name in ("asarray", "array", "ascontiguousarray") and is_array:
            return call.args[0]
        is_floating = call.result.is_floating
        if is_host and not is_floating:
            return None
        if is_floating and call.name in self._makers:
            return written(self._makers[call.name], call)
        is_of_arrays = any(one.is_floating for one in call.values)
        if is_floating and (is_of_arrays or module.endswith("random")):
            raise NeedsHand(
                f"{call.name} of NumPy: functions of nn compute with arrays, and layers such as "
                "nn.Dropout draw random numbers"
            )
        constant = f"np.{call.name}({joined(call.args, call.kwargs)})"
        return call_of_nn("constant", constant, like=call.like())
