"""The table of PyTorch's names: what is compared with PyTorch of each, or why there is none.

Of functions that are the calls of `drawn_calls`, of layers the rows here; `ABSENT` has the reasons.
``python -m tests.nn.vocabulary`` measures them all and writes the page of the docs.
"""

import math
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from deliralike import backends
from tests.nn.agreement import TOGETHER, LayerCase, deviations
from tests.nn.drawn_calls import COUNT, SEED, TABLE
from tests.nn.drawn_runs import deviation_of, drawn, filled, leaves, outcomes

F = torch.nn.functional


# Arrays: away from kinks (X), at kinks (KINKS), positive (P), in the unit interval (U)
# -----------------------------------------------------------------------------

_rng = np.random.default_rng(0)


def normal(*shape):
    return _rng.normal(size=shape)


X, Y, Z = normal(3, 5), normal(3, 5), normal(3, 5)
CUBE = normal(2, 3, 5)
P, U = _rng.uniform(0.5, 3.0, (3, 5)), _rng.uniform(0.05, 0.95, (3, 5))
KINKS = np.array([-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 25.0])
FLAGS = X > 0
INDEX = np.array([2, 0, 2, 1])
SQUARE = normal(4, 4)
PIXELS = normal(2, 4, 6, 5)
LINE, VOLUME = normal(2, 3, 7), normal(1, 2, 4, 5, 6)
LABELS = np.array([2, 0, 4])
SHARES = _rng.dirichlet(np.ones(5), 3)
LOG_SHARES = np.log(_rng.dirichlet(np.ones(5), 3))
SIGNS = np.sign(Y)
LISTS = np.array([[3, 0, -1, 1, 1], [-1, 2, 2, 2, 2], [4, 1, 0, 2, 3]])
BAGS = np.array([[0, 2], [1, 1], [2, 1]])
SPEECH = normal(7, 2, 5)  # (time, batch, classes)
WEIGHT = _rng.uniform(0.5, 2.0, 5)
HARD = "PyTorch has its slope of 1/6 rounded to float32, also in float64: 2e-8 apart"

CELU = (
    "PyTorch has the factor of 1/alpha rounded to float32, also in float64: 1e-8 apart"
)


def hardsigmoid(x):
    return F.relu6(x + 3.0) / 6.0


EVEN = (LINE[..., :6], PIXELS[..., :4], VOLUME[..., :4, :])


def pooled(n, x, *window):
    """Maxima and their positions."""
    pool = getattr(F, f"max_pool{n}d")
    values, positions = pool(torch.tensor(x), *window or (2,), return_indices=True)
    return values.numpy(), positions.numpy()


class Function(torch.nn.Module):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


def celu(x, alpha):
    return torch.where(x > 0, x, alpha * torch.expm1(x / alpha))


# torch.nn
# -----------------------------------------------------------------------------


@dataclass
class LayerRow:
    """A layer made and called as PyTorch's of the same name.

    Attributes:
        name: Of the layer, on both sides.
        args, kwargs: What it is made with; arrays are tensors on PyTorch's side.
        inputs: What it is called with.
        training: The mode.
        call: How it is called on both sides.
        note: How the two differ.
        oracle: What makes PyTorch's layer, where it is not that of the same name and arguments.
    """

    name: str
    args: tuple
    kwargs: dict
    inputs: list
    training: bool = True
    call: Any = lambda layer, *inputs: layer(*inputs)
    note: str = ""
    oracle: Any = None

    def case(self):
        def oracle(*args, **kwargs):
            args, kwargs = _tensors((args, kwargs))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # remarks on PyTorch's own speed
                return getattr(torch.nn, self.name)(*args, **kwargs)

        made = self.oracle or partial(oracle, *self.args, **self.kwargs)
        return LayerCase(
            self.name,
            {"args": self.args, **self.kwargs},
            self.inputs,
            self.training,
            call=self.call,
            oracle=made,
        )


def _tensors(nest):
    arrays = [torch.tensor(np.array(x)) for x in leaves(nest)]
    return filled(nest, iter(arrays))


def layer(name, *args, on=X, training=True, call=None, note="", oracle=None, **kwargs):
    inputs = on if isinstance(on, list) else [on]
    more = {} if call is None else {"call": call}
    return LayerRow(
        name, args, kwargs, inputs, training, note=note, oracle=oracle, **more
    )


def layers(name, *args, on=(LINE, PIXELS, VOLUME), **kwargs):
    """A layer for inputs of 1 to 3 dimensions."""
    return [
        layer(f"{name}{n}d", *args, on=x, **kwargs) for n, x in enumerate(on, start=1)
    ]


def first(layer, *inputs):
    return layer(*inputs)[0]


def spoken_loss(layer, x):
    """Of two samples with fixed labels."""
    nn = F if isinstance(x, torch.Tensor) else layer.nn
    labels = _like(layer, np.array([[0, 0, 2], [4, 2, 0]]), x)
    return layer(nn.log_softmax(x, -1), labels, (7, 5), (3, 2))


def with_masks(layer, *inputs):
    causal = _like(layer, np.triu(np.full((3, 3), -np.inf), 1), inputs[0])
    return layer(*inputs, causal)


def _like(layer, array, x):
    """A constant beside an input, on both sides."""
    if not isinstance(x, torch.Tensor):
        return layer.nn.constant(array, like=x)
    return torch.tensor(array, dtype=x.dtype if array.dtype.kind == "f" else None)


STEPS = normal(4, 2, 3)  # (time, batch, width)
WORDS = normal(3, 2, 6)  # (tokens, batch, width)
MEMORY = normal(4, 2, 6)
STATE, CELL = normal(2, 5), normal(2, 5)
IN_EVALUATION = "in evaluation: masks in training are drawn otherwise"

LAYERS = [
    *[
        layer(name, on=KINKS)
        for name in ("ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish",
                     "Softplus", "LogSigmoid", "Softsign", "Tanhshrink", "Hardtanh", "Hardswish",
                     "Hardshrink", "Softshrink", "Sigmoid", "Tanh")
    ],
    *[
        layer(name, inplace=True, on=X, call=lambda layer, x: layer(x * 1.0))
        for name in ("ReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardtanh", "LeakyReLU")
    ],
    layer("Hardsigmoid", on=KINKS, note=HARD, oracle=lambda: Function(hardsigmoid)),
    *layers("MaxPool", 2, return_indices=True, call=first),
    *layers("AdaptiveMaxPool", 3, return_indices=True, call=first),
    *[
        layer(f"MaxUnpool{n}d", 2, on=list(pooled(n, x)))
        for n, x in enumerate(EVEN, 1)
    ],
    layer("MaxUnpool2d", 2, on=list(pooled(2, PIXELS)),
          call=lambda layer, x, places: layer(x, places, output_size=(2, 4, 6, 5))),
    layer("EmbeddingBag", 3, 4, on=BAGS), layer("EmbeddingBag", 3, 4, mode="max", on=BAGS),
    layer("EmbeddingBag", 3, 4, mode="sum", padding_idx=1, on=[INDEX, np.array([0, 1])]),
    layer("MultiLabelMarginLoss", on=[X, LISTS]),
    layer("CTCLoss", 1, "sum", on=SPEECH, call=spoken_loss),
    layer("Softplus", 2.0, 5.0, on=KINKS), layer("Hardtanh", -3.0, 0.5, on=KINKS),
    layer("Hardshrink", 3.0, on=KINKS), layer("Softshrink", 3.0, on=KINKS),
    layer("CELU", 0.7, on=KINKS, note=CELU, oracle=lambda: Function(partial(celu, alpha=0.7))),
    layer("Threshold", 0.5, 7.0, on=KINKS), layer("GLU", 1, on=PIXELS), layer("PReLU", 5),
    layer("Softmax", 1), layer("Softmin", -1), layer("LogSoftmax", 1),
    layer("Softmax2d", on=PIXELS), layer("Identity", 54, unused=True), layer("Flatten", on=CUBE),
    layer("Unflatten", 1, (5, -1)), layer("Linear", 5, 4),
    layer("Bilinear", 5, 4, 6, on=[X, SQUARE[:3]]),
    layer("CosineSimilarity", on=[X, Y]), layer("PairwiseDistance", 3.0, on=[X, Y]),
    layer("Embedding", 3, 4, on=np.array([[0, 2], [1, 1]])),
    layer("Embedding", 3, 4, padding_idx=1, on=np.array(1)),
    layer("Embedding", 3, 4, 1, on=np.array([[0, 2], [1, 1]])),
    *[
        layer(f"Conv{n}d", x.shape[1], 4, 3, 2, 2, bias=n == 2, padding_mode=mode, on=x)
        for mode in ("zeros", "reflect", "replicate", "circular")
        for n, x in ((1, LINE), (2, PIXELS), (3, VOLUME))
    ],
    layer("Conv2d", 4, 4, (3, 2), padding="same", padding_mode="circular", on=PIXELS),
    *[
        layer(f"ConvTranspose{n}d", x.shape[1], 3, 3, 2, 1, 1, padding_mode="zeros", on=x)
        for n, x in ((1, LINE), (2, PIXELS), (3, VOLUME))
    ],
    layer("Unfold", (3, 2), 1, 1, 2, on=PIXELS),
    layer("Fold", (6, 5), (3, 2), on=normal(2, 12, 16)),
    *layers("MaxPool", 3, 2, 1, 1, False, True), *layers("AvgPool", 3, 2, 1, True, False),
    layer("AvgPool2d", 3, 2, 1, divisor_override=4, on=PIXELS),
    *layers("AdaptiveAvgPool", 3), *layers("AdaptiveMaxPool", 3),
    layer("AdaptiveAvgPool2d", (None, 7), on=PIXELS),
    *layers("LPPool", 2, 3, 2),
    layer("Upsample", scale_factor=2, on=PIXELS),
    layer("Upsample", (9, 4), mode="bicubic", align_corners=True, on=PIXELS),
    layer("UpsamplingNearest2d", 9, on=PIXELS), layer("UpsamplingBilinear2d", 9, on=PIXELS),
    layer("PixelShuffle", 2, on=PIXELS), layer("PixelUnshuffle", 2, on=normal(2, 3, 4, 6)),
    layer("ChannelShuffle", 2, on=PIXELS),
    *layers("ConstantPad", 2, 1.5), *layers("ZeroPad", 1), *layers("ReflectionPad", 2),
    *layers("ReplicationPad", 2), *layers("CircularPad", 2),
    layer("ReflectionPad2d", (1, 2, 0, 3), on=PIXELS),
    *layers("BatchNorm", 4, on=(normal(3, 4, 5), PIXELS, normal(2, 4, 3, 2, 2))),
    *layers("BatchNorm", 4, training=False, on=(normal(3, 4, 5), PIXELS)),
    layer("BatchNorm2d", 4, momentum=None, bias=False, on=PIXELS),
    *layers("InstanceNorm", 4, affine=True, on=(normal(3, 4, 5), PIXELS, normal(2, 4, 3, 2, 2))),
    layer("GroupNorm", 2, 4, on=PIXELS), layer("GroupNorm", 2, 4, bias=False, on=PIXELS),
    layer("LayerNorm", 5), layer("LayerNorm", (3, 5), 1e-3, True, False, on=CUBE),
    layer("RMSNorm", 5), layer("RMSNorm", (3, 5), 1e-3, False, on=CUBE),
    layer("LocalResponseNorm", 3, on=PIXELS),
    layer("LocalResponseNorm", 2, 0.1, 0.5, 2.0, on=LINE),
    *[
        layer(name, 0.3, True, on=x, training=False, note=IN_EVALUATION)
        for name, x in (("Dropout", X), ("Dropout1d", LINE), ("Dropout2d", PIXELS),
                        ("Dropout3d", VOLUME), ("AlphaDropout", X), ("FeatureAlphaDropout", PIXELS))
    ],
    layer("RNN", 3, 5, on=STEPS), layer("RNN", 3, 5, 2, "relu", bidirectional=True, on=STEPS),
    layer("LSTM", 3, 5, 2, bidirectional=True, on=STEPS),
    layer("LSTM", 3, 5, 2, proj_size=2, on=STEPS),
    layer("LSTM", 3, 5, 2, False, True, bidirectional=True, proj_size=4, on=STEPS),
    layer("GRU", 3, 5, 2, batch_first=True, on=STEPS),
    layer("RNNCell", 3, 5, on=[STEPS[0], STATE]),
    layer("RNNCell", 3, 5, False, "relu", on=STEPS[0]),
    layer("GRUCell", 3, 5, on=[STEPS[0], STATE]), layer("LSTMCell", 3, 5, on=STEPS[0]),
    layer("LSTMCell", 3, 5, on=[STEPS[0], STATE, CELL],
          call=lambda layer, x, h, c: layer(x, (h, c))),
    layer("MultiheadAttention", 6, 2, on=[WORDS, WORDS, WORDS]),
    layer("MultiheadAttention", 6, 3, kdim=4, vdim=5, on=[WORDS, normal(4, 2, 4), normal(4, 2, 5)]),
    layer("MultiheadAttention", 6, 2, add_bias_kv=True, add_zero_attn=True,
          on=[WORDS, MEMORY, MEMORY]),
    layer("MultiheadAttention", 6, 2, add_bias_kv=True, on=[WORDS],
          call=lambda layer, x: layer(
              x, x, x, attn_mask=_like(layer, np.triu(np.full((3, 3), -1e9), 1), x))),
    layer("TransformerEncoderLayer", 6, 2, 8, 0.0, on=WORDS, call=with_masks),
    layer("TransformerEncoderLayer", 6, 2, 8, 0.0, "gelu", 1e-3, True, True, False, on=WORDS),
    layer("TransformerDecoderLayer", 6, 2, 8, 0.0, on=[WORDS, MEMORY], call=with_masks),
    layer("TransformerDecoderLayer", 6, 2, 8, 0.0, "gelu", 1e-3, norm_first=True,
          on=[WORDS, MEMORY]),
    layer("Transformer", 6, 2, 1, 2, 8, 0.0, on=[WORDS, MEMORY]),
    layer("L1Loss", on=[X, Y]), layer("MSELoss", reduction="sum", on=[X, Y]),
    layer("SmoothL1Loss", beta=0.5, on=[X, Y]),
    layer("HuberLoss", "none", 0.5, on=[X, Y]), layer("CrossEntropyLoss", on=[X, LABELS]),
    layer("CrossEntropyLoss", WEIGHT, ignore_index=4, label_smoothing=0.1, on=[X, LABELS]),
    layer("NLLLoss", WEIGHT, on=[LOG_SHARES, LABELS]), layer("BCELoss", on=[U, SHARES]),
    layer("BCEWithLogitsLoss", pos_weight=WEIGHT, on=[X, SHARES]),
    layer("KLDivLoss", reduction="batchmean", log_target=True, on=[LOG_SHARES, np.log(SHARES)]),
    layer("PoissonNLLLoss", full=True, on=[X, P]), layer("GaussianNLLLoss", on=[X, Y, P]),
    layer("SoftMarginLoss", on=[X, FLAGS * 2 - 1]), layer("HingeEmbeddingLoss", 0.5, on=[X, SIGNS]),
    layer("MarginRankingLoss", 0.3, on=[X, Y, np.sign(Z)]),
    layer("CosineEmbeddingLoss", 0.1, on=[X, Y, np.array([1.0, -1.0, 1.0])]),
    layer("MultiMarginLoss", 2, 0.5, WEIGHT, on=[X, LABELS]),
    layer("MultiLabelSoftMarginLoss", on=[X, np.round(U)]),
    layer("TripletMarginLoss", 2.0, on=[X, Y, Z]),
    layer("TripletMarginWithDistanceLoss", margin=2.0, swap=True, on=[X, Y, Z]),
]  # fmt: skip


# What there is not, and what is compared elsewhere
# -----------------------------------------------------------------------------

_RANDOM = "random numbers belong to layers, which draw the same ones on every backend"
_MASKS = "layers draw masks: `Dropout` and its like"
_LAZY = "shapes are given, since start values are drawn by them"
_VALUES = "its shape depends on values, which a compiled program does not know"
_OLD = "PyTorch has deprecated it"
_KERNEL = "a kernel for some GPUs"

# How functions differ from PyTorch's.
NOTES = {
    **dict.fromkeys(("clamp", "clip"),
                    "derivative 1 at the bounds, where PyTorch has 0 since 2.14"),
    **dict.fromkeys(("cross_entropy", "nll_loss"),
                    "0 where all labels are ignored, not NaN; with a batch axis"),
    **dict.fromkeys(("sum", "mean", "any", "all"), "`dim=()` are no axes, where PyTorch takes all"),
    **{f"lp_pool{n}d": "0 where the sum of the powers is not positive, where PyTorch gives NaN"
       for n in (1, 2, 3)},
    "celu": CELU,
    "hardsigmoid": HARD,
    "binary_cross_entropy": "PyTorch has the least divisor of its derivative, 1e-12, in float32",
    "cosine_embedding_loss": "PyTorch adds 1e-12 to norms in float32",
    "multi_margin_loss": "with a batch axis",
    "norm": "no nuclear norm",
    "quantile": "`q` is a number or several; linear",
    "squeeze": "an axis of another length is an error",
    "flatten": "begins with axis 1 by default",
    "sort": "always stable",
    "batch_norm": "with given statistics; `eps` is the sixth argument, and layers do the training",
    "ctc_loss": "behind `log_softmax`; PyTorch's own derivative takes it for granted",
    **dict.fromkeys(("zeros", "ones", "full", "eye", "linspace", "arange"),
                    "`like=x` takes the place of `dtype` and `device`"),
}  # fmt: skip

# Compared by other tests: what the docs say of them.
ELSEWHERE = {
    "Sequential": "of blocks, or of a dict of them",
    "ModuleList": "with `append` and `extend`",
    "ModuleDict": "",
    "ParameterList": "",
    "ParameterDict": "",
    "TransformerEncoder": "layers draw start values of their own",
    "TransformerDecoder": "layers draw start values of their own",
}

ABSENT_LAYERS = {
    "Module": "`deliralike.Network`",
    "DataParallel": "`deliralike.DataParallel`",
    "SyncBatchNorm": "a setting of `deliralike.DataParallel`",
    "AdaptiveLogSoftmaxWithLoss": _VALUES,
    "LinearCrossEntropyLoss": "a fused kernel: `Linear` and `CrossEntropyLoss`",
    "RReLU": _RANDOM,
    **{f"FractionalMaxPool{n}d": _RANDOM for n in (2, 3)},
    **{f"Lazy{kind}{n}d": _LAZY for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
       for n in (1, 2, 3)},
    "LazyLinear": _LAZY,
    **dict.fromkeys(("Container", "NLLLoss2d", "CrossMapLRN2d"), _OLD),
    **dict.fromkeys(("RNNBase", "RNNCellBase"), "a base, not a layer"),
}  # fmt: skip

ABSENT_FUNCTIONS = {
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), _MASKS),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout"), _MASKS),
    **dict.fromkeys(("gumbel_softmax", "rrelu"), _RANDOM),
    **{f"fractional_max_pool{n}d": _RANDOM for n in (2, 3)},
    "linear_cross_entropy": "a fused kernel: `linear` and `cross_entropy`",
    "multi_head_attention_forward": "the layer `MultiheadAttention`",
    "conv_tbc": "`conv1d` after `permute`",
    **dict.fromkeys(("grouped_mm", "scaled_mm", "scaled_grouped_mm"), _KERNEL),
    **dict.fromkeys(("upsample_bilinear", "upsample_nearest"), _OLD),
}
_INTERNAL = {"assert_int_or_pair", "boolean_dispatch", "native_channel_shuffle"}

ABSENT_TENSORS = {
    **dict.fromkeys(("masked_select", "nonzero", "unique", "bincount"), _VALUES),
    **dict.fromkeys(("randint", "bernoulli", "multinomial"), _RANDOM),
    **dict.fromkeys(("randn", "normal"), "`NormalNoise`, a layer, draws the same on every backend"),
    "rand": "`UniformNoise`, a layer, draws the same on every backend",
    "tensor": "`nn.constant`",
    "empty": "`zeros`", "item": "`nn.concrete`, outside of compiled programs",
    "take": "ours has an axis, `take(x, index, dim)`; without one there is `take_along_dim`",
    "select": "ours takes an array of positions, `select(x, index, dim)`; else there is `x[...]`",
    **dict.fromkeys(("complex", "fft", "stft"), "complex numbers are not portable"),
}  # fmt: skip


def layers_of_pytorch():
    """The names of all layers in `torch.nn`."""
    classes = {
        name: value for name, value in vars(torch.nn).items() if isinstance(value, type)
    }
    return {
        name for name, value in classes.items() if issubclass(value, torch.nn.Module)
    }


def functions_of_pytorch():
    """The names of all functions in `torch.nn.functional` that return something new."""
    found = set()
    for name in dir(F):
        is_public = (
            name[0].islower() and callable(getattr(F, name)) and not name.endswith("_")
        )
        is_own = "torch_function" not in name and not name.endswith("_with_indices")
        if is_public and is_own and name not in _INTERNAL:
            found.add(name)
    return found


# The page of the docs
# -----------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pytorch.md"
_INTRODUCTION = """# PyTorch's names

What `torch.nn`, `torch.nn.functional` and PyTorch's functions of tensors are called is what they
are called here, with the same arguments in the same order and with the same defaults. A few
conventions hold for all of them:

- Arrays are given by position. Arguments that name memory or a device (`out`, `dtype`, `device`),
  and those that PyTorch has deprecated (`size_average`, `reduce`), are not taken. `inplace` of
  functions and layers is taken and has no effect: nothing writes over its input, which may be read
  again.
- Functions with several results give tuples. No function changes its arguments.
- Functions of real numbers (`exp`, `mean`, `softmax`, losses) take floating arrays alone;
  arithmetic, order and running sums take no truth values. Of two arrays the one of the lesser type
  (truth values, whole, floating numbers) is converted. Whole numbers with a number that is not
  whole, or their quotient without `rounding_mode`, are refused, where PyTorch makes float32 of
  them. So is a number that their type does not have, such as 300 beside uint8, which PyTorch wraps
  around; comparisons take it as it is.
- An array without axes has no axis 0 or -1. Inputs of convolutions and pooling have a batch axis.
- What is refused is refused by an error of `deliralike.errors` on every backend, with what the
  function was called with: `OperationError` where it is the framework that refuses. Where
  PyTorch's derivative is NaN at an edge, ours may be a number.
- Resizing by `linear`, `bicubic` and `area`, and `adaptive_avg_pool` to more than one element, are
  products of matrices on Chainer and JAX: an infinite element or NaN makes NaN of its whole row and
  column there, where on PyTorch it stays beside its place. Weights that are gathered would cost
  three times as much.
- PyTorch 2.13's own batch and instance norm on CPUs may give wrong gradients for a batch of one
  image whose gradient lies with channels last, such as that of a permuted output, or with an axis
  of length one. The layers and functions here do not. A module of your own that has PyTorch's
  layers does, also as a replica whose share is one sample.
- Older names stay: `concatenate`, `expand_dims`, `bce_with_logits`, `kl_divergence`, `attention`,
  and `pad` with pairs.

*Agrees to* is the largest deviation from PyTorch {version} in float64, of values and of gradients
with respect to inputs and parameters, relative to the largest element, over all calls that are
compared, on PyTorch, Chainer and JAX: of each function {count} that are drawn (seed {seed}), with
arrays that broadcast, without elements or axes, ties, zeros, bounds, numbers, negative axes; on JAX
each third one.
`python -m tests.nn.vocabulary` measures it and writes this page.

Of {layers} layers in `torch.nn` {have_layers} are here, and of {functions} functions
in `torch.nn.functional` {have_functions}.
"""


def entries():
    """The rows of the page by section: name, whether it is here, and a remark."""
    rows = {}
    for row in LAYERS:
        rows.setdefault(row.name, row.note)
    layers = {**ELSEWHERE, **ABSENT_LAYERS, **rows}
    layers |= {row.name: row.note for row in LAYERS if row.note}
    have = {name: NOTES.get(name, "") for name in TABLE}
    functions = {name: remark for name, remark in have.items() if hasattr(F, name)}
    tensors = {name: remark for name, remark in have.items() if hasattr(torch, name)}
    return {
        "Layers": _sorted(layers, ABSENT_LAYERS),
        "Functions": _sorted({**functions, **ABSENT_FUNCTIONS}, ABSENT_FUNCTIONS),
        "Functions of tensors": _sorted(
            {
                **{name: tensors[name] for name in tensors.keys() - functions},
                **ABSENT_TENSORS,
            },
            ABSENT_TENSORS,
        ),
    }


def _sorted(remarks, absent):
    return [(name, name not in absent, remarks[name]) for name in sorted(remarks)]


def page(measured):
    """The text of the page, with the deviation of each name."""
    sections = entries()
    counts = {"count": COUNT, "seed": SEED}
    for key, title in (("layers", "Layers"), ("functions", "Functions")):
        counts[key] = len(sections[title])
        counts[f"have_{key}"] = sum(is_here for _, is_here, _ in sections[title])
    lines = [
        _INTRODUCTION.format(version=torch.__version__.partition("+")[0], **counts)
    ]
    for title, rows in sections.items():
        lines += [
            f"## {title}",
            "",
            "| PyTorch | here | agrees to | |",
            "|---|---|---|---|",
        ]
        for name, is_here, remark in rows:
            here = f"`{name}`" if is_here else "–"
            far = _power_of_ten(measured[name]) if name in measured else ""
            lines.append(f"| `{name}` | {here} | {far} | {remark} |")
        lines.append("")
    return "\n".join(lines)


def _power_of_ten(deviation):
    if deviation <= 1e-16:
        return "1e-16"
    return f"1e{math.ceil(math.log10(deviation)):+03d}"


def main():
    """Measure all calls and layers on all backends, and write the page."""
    measured = {}

    def note(name, deviation):
        measured[name] = max(measured.get(name, 0.0), deviation)

    for backend in backends.known():
        for begin in range(0, len(LAYERS), TOGETHER):
            part = LAYERS[begin : begin + TOGETHER]
            far = deviations(
                backend, {str(i): row.case() for i, row in enumerate(part)}
            )
            for row, deviation in zip(part, far.values(), strict=True):
                note(row.name, deviation)
        rows = drawn()[:: 3 if backend == "jax" else 1]
        for (name, *_, wanted), found in zip(
            rows, outcomes(backend, rows), strict=True
        ):
            note(name, deviation_of(found, wanted))
    PAGE.write_text(page(measured))


if __name__ == "__main__":
    main()
