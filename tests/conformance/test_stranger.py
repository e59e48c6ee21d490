"""The backend that was written from the guide passes what it declares; broken on purpose, it fails where it is broken."""

import ast
import re
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

from deliralike import backends, random, rules
from deliralike.conformance import suite
from deliralike.network import AbstractNetwork
from tests.conformance import stranger
from tests.conformance.stranger import BACKEND, optimizer

FOLDER = Path(stranger.__file__).parent
GUIDE = (Path(__file__).parents[2] / "docs" / "howto" / "backend.md").read_text()
Functions, Optimizer, Base = type(BACKEND.nn), optimizer.StrangerOptimizer, BACKEND.network_base
NN = BACKEND.nn
GAPS = {"replicas": 3, "weight files": 1, "random state": 1}


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """The stranger as an installed package would register it."""
    folder = tmp_path / "stranger-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[deliralike.backends]\nstranger = tests.conformance.stranger:BACKEND\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_it_passes_what_it_declares(registered):
    assert backends.get("stranger") is BACKEND
    report = suite.run("stranger")
    assert report.passed, report
    reasons = [result.message for result in report.results if result.outcome == "not declared"]
    assert {gap: reasons.count(f"not declared: {gap}") for gap in GAPS} == GAPS and len(reasons) == sum(GAPS.values())
    assert sum(result.seconds for result in report.results) < 60


def test_it_is_as_short_as_the_guide_says():
    lines = [line.strip() for file in FOLDER.glob("*.py") for line in file.read_text().splitlines()]
    counted = [line for line in lines if line and not line.startswith("#")]
    limit = int(
        re.search(r"fewer than (\d+) lines, blank ones and comments not counted", GUIDE.replace("\n", " ")).group(1)
    )
    assert limit <= 400 and 300 < len(counted) < limit


def test_it_uses_nothing_that_the_guide_does_not_name():
    """Every module of deliralike that it imports from, and every name, stands in the guide."""
    missing = set()
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deliralike"):
                missing |= {name.name for name in node.names if not re.search(rf"\b{name.name}\b", GUIDE)}
                missing |= {node.module} if node.module not in GUIDE else set()
    assert not missing


# Broken on purpose ---------------------------------------------------------------------------------------------------
# Each entry: what is wrong, a function that plants it, and the checks that are about it.

BROKEN = {}


def broken(*checks):
    def keep(plant):
        BROKEN[plant.__name__.replace("_", " ")] = plant, checks
        return plant

    return keep


def function(name, wrong):
    """A plant that puts a wrong function in the place of one of `nn`."""
    return lambda patch: patch.setattr(Functions, name, wrong, raising=True)


def add(title, name, wrong, *checks):
    BROKEN[title] = function(name, wrong), checks


RIGHT = {name: getattr(Functions, name) for name in dir(Functions) if not name.startswith("__")}
SPATIAL = ((0, 0), (0, 0))

add("relu with derivative 1 at 0", "relu", lambda self, x: x * (x >= 0), "functions/derivative of relu at 0")
add("abs with derivative 1 at 0", "abs", lambda self, x: self.where(x >= 0, x, -x), "functions/derivative of abs at 0")
add("clip with derivative 0 at its bounds", "clip", lambda self, x, low, high: anp.clip(x, low, high),
    "functions/derivative of clip at its bounds")  # fmt: skip
add("maxima that share the gradient", "max", lambda self, x, dim, keepdim=False: anp.max(x, dim, keepdims=keepdim),
    "functions/gradient of equal maxima", "windows/gradient of equal maxima in a window")  # fmt: skip
add("the last of equal maxima", "argmax", lambda self, x, dim: x.shape[dim] - 1 - np.argmax(np.flip(getval(x), dim), dim),
    "functions/first of equal maxima")  # fmt: skip
add("sigmoid by tanh", "sigmoid", lambda self, x: 0.5 * anp.tanh(0.5 * x) + 0.5, "functions/far tails")
add("softplus that is a relu far out", "softplus", lambda self, x: self.where(x > 15.0, x, self.where(
    x < -15.0, 0.0, RIGHT["softplus"](self, x))), "functions/far tails")  # fmt: skip
add("sigmoid whose derivative at 0 is lost", "sigmoid", lambda self, x: self.where(x >= 0, 1.0, anp.exp(-anp.abs(x))) / (1.0 + anp.exp(-anp.abs(x))),
    "functions/derivative of sigmoid at 0")  # fmt: skip
add("gelu by tanh", "gelu", lambda self, x: RIGHT["gelu"](self, x, "tanh"), "functions/gelu")
add(
    "a slope of 0.2", "leaky_relu", lambda self, x, slope=0.2: RIGHT["leaky_relu"](self, x, 0.2), "functions/leaky_relu"
)
add("softmax over axis 1", "softmax", lambda self, x, dim: RIGHT["softmax"](self, x, 1), "functions/softmax")
add("unbiased variances", "var", lambda self, x, dim, keepdim=False, correction=0: RIGHT["var"](self, x, dim, keepdim, 1),
    "functions/var", "functions/batch_norm_train")  # fmt: skip
add("a variance in one pass", "var", lambda self, x, dim, keepdim=False, correction=0:
    self.mean(x * x, dim, keepdim) - self.mean(x, dim, keepdim) ** 2, "functions/large means")  # fmt: skip
add("layer norm with eps=1e-6", "layer_norm", lambda self, x, shape, weight=None, bias=None, eps=1e-5:
    RIGHT["layer_norm"](self, x, shape, weight, bias, 1e-6), "functions/layer_norm", "layers/LayerNorm")  # fmt: skip
add("batch norm with eps=2e-5", "batch_norm", lambda self, x, mean, var, weight=None, bias=None, eps=1e-5:
    RIGHT["batch_norm"](self, x, mean, var, weight, bias, 2 * eps), "functions/batch_norm", "functions/batch_norm_train",
    "layers/BatchNorm2d", "layers/batch norm in evaluation")  # fmt: skip
add("normalisation with an epsilon beside the norm", "normalize", lambda self, x, dim=1, eps=1e-12:
    x / (self.sqrt(self.sum(x * x, dim, keepdim=True)) + 1e-5), "functions/normalize")  # fmt: skip
add("indices that wrap", "concrete", lambda self, x: np.abs(getval(x)), "functions/positions out of range")
add("flags that count as numbers", "cast", lambda self, x, dtype: getval(x).astype(float) if dtype == "bool" else
    RIGHT["cast"](self, x, dtype), "functions/types of results")  # fmt: skip
add("stop_gradient that stops nothing", "stop_gradient", lambda self, x: x, "functions/stop gradient")
add("attention without a scale", "attention", lambda self, q, k, v, bias=None, weights_mask=None, scale=None,
    need_weights=True: RIGHT["attention"](self, q, k, v, bias, weights_mask, 1.0, need_weights),
    "functions/attention", "layers/MultiheadAttention")  # fmt: skip


@primitive
def _spread(x, shape):
    return np.broadcast_to(x, shape)


defvjp(_spread, lambda y, x, shape: lambda g: anp.reshape(anp.mean(g) * anp.ones(x.shape), x.shape))
add("broadcasting whose gradient is averaged", "broadcast_to", lambda self, x, shape: _spread(x, tuple(shape)),
    "functions/broadcast_to")  # fmt: skip


@primitive
def _rows(x, index):
    return x[index]


def _last_row_wins(y, x, index):
    def backward(g):
        gradient = np.zeros_like(x)
        gradient[index] = g
        return gradient

    return backward


defvjp(_rows, _last_row_wins)
add("repeated positions whose last gradient wins", "select", lambda self, x, index, dim: _rows(x, getval(index)) if dim == 0
    else RIGHT["select"](self, x, index, dim), "functions/repeated positions", "layers/Embedding")  # fmt: skip


def conv(**changes):
    """A convolution with other settings."""
    names = ("x", "weight", "stride", "pads", "dilation", "groups")

    def wrong(self, *arguments):
        given = dict(zip(names, arguments, strict=True))
        return RIGHT["convolve"](self, *(given | {name: change(given) for name, change in changes.items()}).values())

    return wrong


def ones(given):
    return (1,) * len(given["stride"])


add("a stride that is ignored", "convolve", conv(stride=ones), "windows/convolve with a stride", "layers/Conv2d")
add("a dilation that is ignored", "convolve", conv(dilation=ones), "windows/convolve with dilation")
add("a kernel that is flipped", "convolve", conv(weight=lambda given: given["weight"][:, :, ::-1]), "windows/convolve")
add("padding on the other side", "convolve", conv(pads=lambda given: tuple((b, a) for a, b in given["pads"])),
    "windows/convolve with unequal padding", "windows/conv with padding 'same'")  # fmt: skip
add("symmetric padding alone", "convolve", conv(pads=lambda given: tuple((a, a) for a, _ in given["pads"])),
    "windows/convolve with unequal padding")  # fmt: skip
add("groups in the order of a shuffle", "convolve", conv(x=lambda given: given["x"][:, ::-1] if given["groups"] > 1 else given["x"]),
    "windows/convolve in groups")  # fmt: skip
add("a transposed kernel that is not flipped", "convolve_transposed", lambda self, x, w, *rest:
    RIGHT["convolve_transposed"](self, x, w[:, :, ::-1, ::-1], *rest), "windows/convolve_transposed",
    "layers/ConvTranspose2d")  # fmt: skip
add("padding of the output that is forgotten", "convolve_transposed", lambda self, x, w, s, p, extra, d, g:
    RIGHT["convolve_transposed"](self, x, w, s, p, (0,) * len(s), d, g), "windows/convolve_transposed with padding")  # fmt: skip
add("max pooling padded with zeros", "max_windows", lambda self, x, kernel, stride, pads, dilation: RIGHT["max_windows"](
    self, self.pad_constant(x, (*SPATIAL, *pads)), kernel, stride, ((0, 0),) * len(pads), dilation),
    "windows/max_windows of negative numbers")  # fmt: skip
add("averages without the padding", "avg_pool", lambda self, x, kernel, stride=None, padding=0, ceil_mode=False,
    count_include_pad=True: RIGHT["avg_pool"](self, x, kernel, stride, padding, ceil_mode, False), "windows/avg_pool")  # fmt: skip
add("aligned corners", "interpolate", lambda self, x, size=None, scale_factor=None, mode="nearest", align_corners=False:
    RIGHT["interpolate"](self, x, size, scale_factor, mode, mode != "nearest"), "windows/interpolate, linear")  # fmt: skip
add("features flattened with the channels last", "flatten", lambda self, x, start_dim=1, end_dim=-1:
    RIGHT["flatten"](self, self.permute(x, (0, 2, 3, 1)) if x.ndim == 4 else x, start_dim, end_dim), "layers/Flatten")  # fmt: skip


def blocks(weight, order):
    """Rows of gates in another order."""
    return anp.concatenate([weight[i * len(weight) // len(order) : (i + 1) * len(weight) // len(order)] for i in order])


add("LSTM gates in the order i, g, f, o", "lstm", lambda self, x, h, c, *weights: RIGHT["lstm"](self, x, h, c, *(
    blocks(w, (0, 2, 1, 3)) for w in weights)), "functions/lstm", "layers/LSTM")  # fmt: skip
add("a forget bias of 1", "lstm", lambda self, x, h, c, wi, wh, bi, bh: RIGHT["lstm"](self, x, h, c, wi, wh,
    bi + np.repeat([0.0, 1.0, 0.0, 0.0], len(bi) // 4), bh), "functions/lstm", "layers/LSTM")  # fmt: skip
add("GRU gates the other way round", "gru", lambda self, x, h, *weights: RIGHT["gru"](self, x, h, *(
    blocks(w, (1, 0, 2)) for w in weights)), "functions/gru", "layers/GRU")  # fmt: skip

# Losses
add("class weights by the count of labels", "_reduce_labels", lambda self, loss, weight, reduction: self.sum(loss) * (
    1.0 / max(1, int((getval(weight) > 0).sum()))) if reduction == "mean" else self._reduce(loss, reduction),
    "losses/cross_entropy with class weights")  # fmt: skip
add("ignored labels in the denominator", "_reduce_labels", lambda self, loss, weight, reduction:
    self._reduce(loss, reduction), "losses/cross_entropy with ignored labels")  # fmt: skip
add("a mean over nothing that is not a number", "_reduce_labels", lambda self, loss, weight, reduction: self.sum(loss) * (
    1.0 / getval(self.sum(weight)) if getval(self.sum(weight)) else np.nan) if reduction == "mean" else
    self._reduce(loss, reduction), "losses/all labels ignored")  # fmt: skip
add("half of the squared error", "mse_loss", lambda self, x, y, reduction="mean": 0.5 * RIGHT["mse_loss"](self, x, y, reduction),
    "losses/mse_loss")  # fmt: skip
add("smoothed labels that are not", "cross_entropy", lambda self, x, y, weight=None, ignore_index=-100, label_smoothing=0.0,
    reduction="mean": RIGHT["cross_entropy"](self, x, y, weight, ignore_index, 0.0, reduction),
    "losses/cross_entropy with smoothed labels")  # fmt: skip

# Chance
add("dropout that is not scaled", "keep_mask", lambda self, layer, shape, p, like: RIGHT["keep_mask"](self, layer, shape, p, like) * (1.0 - p),
    "chance/portable masks", "chance/native masks", "chance/gradient of dropout")  # fmt: skip
add("dropping with the probability of keeping", "keep_mask", lambda self, layer, shape, p, like: RIGHT["keep_mask"](self,
    layer, shape, 1.0 - p, like), "chance/portable masks", "chance/native masks")  # fmt: skip


@broken("chance/portable masks of samples")
def masks_by_the_place_in_the_share(patch):
    def wrong(self, layer, shape, p, like):
        stream = random.current()
        return random.keep_mask(stream.seed, layer.block_path, stream.step, 0, tuple(shape), p).astype(like.dtype)

    patch.setattr(Functions, "keep_mask", wrong)


@broken("chance/seeds")
def a_seed_that_does_nothing(patch):
    patch.setattr(type(BACKEND), "seed", lambda self, seed: None)


# Layers and networks


@broken("layers/running statistics")
def a_biased_running_variance(patch):
    right = NN.BatchNorm2d._update
    patch.setattr(
        NN.BatchNorm2d, "_update", lambda self, mean, var, count: right(self, mean, var * ((count - 1) / count), count)
    )


@broken("layers/running statistics")
def momentum_of_the_old_value(patch):
    patch.setattr(NN.BatchNorm2d, "_share", lambda self, mean: 0.9)


@broken("layers/running statistics", "networks/buffers follow assignments")
def buffers_that_ignore_assignments(patch):
    right = Base.__setattr__
    patch.setattr(Base, "__setattr__", lambda self, name, value: None if name in ("running_mean", "running_var", "calls",
                  "num_batches_tracked") and name in vars(self) else right(self, name, value))  # fmt: skip


@broken("layers/batch norm in evaluation", "networks/training mode")
def evaluation_that_does_not_reach_the_layers(patch):
    patch.setattr(Base, "train", lambda self, mode=True: vars(self).update(top=mode) or self)


@broken("layers/padding of embeddings")
def padding_with_a_gradient(patch):
    patch.setattr(NN.Embedding, "forward", lambda self, index: self.nn.embedding(index, self.weight))


@broken("networks/names order and shapes")
def names_in_the_order_of_the_alphabet(patch):
    right = Base.neutral_slots
    patch.setattr(Base, "neutral_slots", lambda self: dict(sorted(right(self).items())))


@broken("networks/start values")
def start_values_that_are_drawn_elsewhere(patch):
    right = Functions.Parameter
    rng = np.random.default_rng(0)
    patch.setattr(Functions, "Parameter", lambda self, shape, start: right(self, shape, start if isinstance(start, np.ndarray)
                  else rng.normal(size=tuple(shape))))  # fmt: skip


@broken("networks/reading and loading the state")
def a_state_that_is_the_networks_own(patch):
    patch.setattr(stranger.network.Variable, "read", lambda self: self._value)


@broken("networks/reading and loading the state")
def weights_that_are_kept_without_a_copy(patch):
    patch.setattr(stranger.network.Variable, "write", lambda self, value: setattr(self, "_value", value))


@broken("networks/weights that do not fit")
def weights_that_do_not_fit_and_are_taken(patch):
    right = AbstractNetwork.load_neutral_state
    patch.setattr(Base, "load_neutral_state", lambda self, state, strict=True: right(self, state, False))


@broken("networks/tied parameters")
def ties_that_are_copies(patch):
    right = Base.__setattr__

    def wrong(self, name, value):
        if isinstance(value, stranger.network.Variable) and isinstance(vars(self).get(name), stranger.network.Variable):
            value = stranger.network.Variable(value.read(), is_parameter=True)
        right(self, name, value)

    patch.setattr(Base, "__setattr__", wrong)


@broken("networks/types of networks")
def float64_in_name_only(patch):
    right = Functions.matmul
    patch.setattr(
        Functions, "matmul", lambda self, x, y: right(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
    )


# Arrays


@broken("arrays/storage of its own")
def arrays_that_share_the_callers_storage(patch):
    patch.setattr(
        type(BACKEND), "array", lambda self, value, dtype=None, device=None: np.asarray(getval(value), dtype=dtype)
    )


@broken("arrays/storage of its own")
def arrays_that_are_handed_out(patch):
    patch.setattr(type(BACKEND), "numpy", lambda self, value: np.asarray(getval(value)))


@broken("arrays/split concatenate and stack")
def pieces_in_reverse_order(patch):
    patch.setattr(
        type(BACKEND), "concatenate", lambda self, values, dim, device=None: np.concatenate(values[::-1], dim)
    )


@broken("arrays/sums of gradients")
def everything_is_finite(patch):
    patch.setattr(type(BACKEND), "all_finite", lambda self, values: True)


@broken("arrays/there and back")
def whole_numbers_of_32_bits(patch):
    right = stranger.arrays.array
    patch.setattr(type(BACKEND), "array", lambda self, value, dtype=None, device=None:
                  right(value, "int32" if dtype == "int64" else dtype))  # fmt: skip


# Gradients


@broken("gradients/none where unused", "optimizers/unused parameters", "optimizers/hooks", "optimizers/adamw")
def zeros_where_there_is_no_gradient(patch):
    right = optimizer.differentiated

    def wrong(function, arrays):
        result, found = right(function, arrays)
        return result, [np.zeros_like(array) if g is None else g for array, g in zip(arrays, found, strict=True)]

    patch.setattr(optimizer, "differentiated", wrong)
    patch.setattr(stranger, "differentiated", wrong)


@broken("gradients/none where unused", "optimizers/frozen parameters")
def frozen_parameters_with_gradients(patch):
    def wrong(network, owns=lambda name: True):
        return {name: slot for name, slot in network.neutral_slots().items() if slot.is_parameter and owns(name)}

    patch.setattr(optimizer, "trainable", wrong)
    patch.setattr(stranger, "trainable", wrong)


@broken("second derivatives/gradient within a loss", "second derivatives/gradient through a network")
def gradients_that_are_constants(patch):
    patch.setattr(Functions, "gradient", lambda self, function, x: getval(RIGHT["gradient"](self, function, x)))


# Optimizers


def update(patch, rule, wrong):
    patch.setattr(rule, "update", wrong)


@broken("optimizers/sgd with momentum", "optimizers/a hundred updates by sgd")
def the_learning_rate_inside_the_velocity(patch):
    def wrong(self, p, g, state, scalars, xp):
        velocity = self.momentum * state.get("momentum_buffer", 0.0) + scalars["lr"] * self._decayed(p, g)
        return p - velocity, {"momentum_buffer": velocity}

    update(patch, rules.SGD, wrong)


@broken("optimizers/sgd with Nesterov's momentum")
def nesterov_that_is_lost(patch):
    right = rules.SGD.update
    update(patch, rules.SGD, lambda self, *args: right(rules.SGD(lr=self.lr, momentum=self.momentum), *args))


@broken("optimizers/adam", "optimizers/amsgrad")
def adam_without_bias_correction(patch):
    patch.setattr(rules.Adam, "scalars", lambda self, step: {"lr": self.lr, "step_size": self.lr, "scale": 1.0})


@broken("optimizers/adam", "optimizers/a hundred updates by adamw")
def a_step_number_that_starts_at_two(patch):
    right = rules.Moments.scalars
    patch.setattr(rules.Moments, "scalars", lambda self, step: right(self, step + 1))


@broken("optimizers/adamw", "optimizers/lion")
def decay_without_the_learning_rate(patch):
    patch.setattr(rules.Rule, "_shrunk", lambda self, p, scalars: p * (1.0 - self.weight_decay))


@broken("optimizers/rmsprop")
def the_epsilon_of_rmsprop_inside_the_root(patch):
    def wrong(self, p, g, state, scalars, xp):
        square = self.alpha * state["square_avg"] + (1.0 - self.alpha) * g * g
        return p - scalars["lr"] * g / (square + self.eps) ** 0.5, {"square_avg": square}

    update(patch, rules.RMSprop, wrong)


@broken("optimizers/sgd", "optimizers/adam", "optimizers/a hundred updates by sgd")
def a_learning_rate_one_update_late(patch):
    def set_late(self, value):
        self._groups, self._next = self._groups.with_lr(getattr(self, "_next", self.lr)), value

    patch.setattr(Optimizer, "lr", property(lambda self: self._groups.lr, set_late))


@broken("optimizers/clipping by norm")
def decay_before_clipping(patch):
    right = Optimizer._finish

    def wrong(self, gradients):
        slots, rule = self.network.neutral_slots(), self._groups.rules[0]
        decayed = {name: g if g is None else g + rule.weight_decay * slots[name].value for name, g in gradients.items()}
        self._groups = type(self._groups).of(type(rule)(lr=rule.lr))
        right(self, decayed)

    patch.setattr(Optimizer, "_finish", wrong)


@broken("optimizers/hooks")
def hooks_in_reverse_order(patch):
    right = Optimizer._finish

    def wrong(self, gradients):
        self.pre_update_hooks = self.pre_update_hooks[::-1]
        right(self, gradients)

    patch.setattr(Optimizer, "_finish", wrong)


@broken("optimizers/groups and patterns")
def groups_that_are_ignored(patch):
    patch.setattr(stranger.Groups, "assigned",
                  lambda self, slots: dict.fromkeys(slots, 0))  # fmt: skip


@broken("optimizers/state of an optimizer")
def a_state_without_its_counts(patch):
    right = Optimizer.load_neutral_state

    def wrong(self, state):
        right(self, state)
        self._counts = {}

    patch.setattr(Optimizer, "load_neutral_state", wrong)


@broken("zoo/gradient of transformer_classifier", "zoo/gradient of unet", "gradients/of arrays used twice")
def gradients_of_branches_that_are_not_added(patch):
    patch.setattr(optimizer, "add_outgrads", lambda known, new: (new, False))


def test_it_is_broken_in_many_ways():
    assert len(BROKEN) >= 60
    names = {str(check) for check in suite.CHECKS}
    assert {check for _, checks in BROKEN.values() for check in checks} <= names


@pytest.mark.parametrize("title", BROKEN)
def test_a_broken_backend_fails_in_the_check_that_is_about_it(title, monkeypatch):
    plant, checks = BROKEN[title]
    assert suite.run(BACKEND, checks).passed
    with monkeypatch.context() as patch:
        plant(patch)
        report = suite.run(BACKEND, checks)
    assert [result.check for result in report.results if result.outcome != "failed"] == []
    messages = [result.message for result in report.results]
    # It is a difference that they name, not an accident of how it was broken.
    accidents = [
        text for text in messages if re.match(r"(TypeError|AttributeError|NameError|KeyError|IndexError):", text)
    ]
    assert not accidents, messages
    assert suite.run(BACKEND, checks).passed  # nothing of it is left behind


def test_gradients_of_autograd_itself_follow_other_conventions():
    """Why the stranger has its own: what a thin backend would have got wrong."""
    assert grad(lambda x: anp.sum(anp.clip(x, 0.0, 1.0)))(np.array([0.0]))[0] == 0.0
    np.testing.assert_array_equal(grad(lambda x: anp.max(x))(np.array([1.0, 1.0])), [0.5, 0.5])
