"""The stranger, broken on purpose: what is wrong, how it is planted, and the checks of the suite
that are about it."""

from dataclasses import replace
from functools import partial

import numpy as np
from autograd import numpy as anp
from autograd.extend import defvjp, primitive
from autograd.tracer import getval, isbox

from deliralike import random
from deliralike.conformance import suite
from deliralike.conformance.suite.rows import Row
from deliralike.network import AbstractNetwork
from deliralike.nn.layers import LAYERS
from deliralike.optim import rules
from tests.conformance import stranger
from tests.conformance.stranger import BACKEND, optimizer

Functions, Optimizer, Base = (
    type(BACKEND.nn),
    optimizer.StrangerOptimizer,
    BACKEND.network_base,
)
NN = BACKEND.nn

# By what is wrong: a function that plants it with a monkeypatch, and the names of checks.
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


RIGHT = {
    name: getattr(Functions, name)
    for name in dir(Functions)
    if not name.startswith("__")
}
SPATIAL = ((0, 0), (0, 0))

add(
    "relu with derivative 1 at 0",
    "relu",
    lambda self, x: x * (x >= 0),
    "functions/derivative of relu at 0",
)
add(
    "relu as a product",
    "relu",
    lambda self, x: x * (x > 0),
    "functions/relu under gradients of NaN",
)
add(
    "relu6 as a product",
    "relu6",
    lambda self, x: x * (x > 0) * (x < 6) + 6.0 * (x >= 6),
    "functions/relu6 under gradients of NaN",
)
add(
    "abs with derivative 1 at 0",
    "abs",
    lambda self, x: self.where(x >= 0, x, -x),
    "functions/derivative of abs at 0",
)
add(
    "clamp with derivative 0 at its bounds",
    "clamp",
    lambda self, x, min, max: anp.clip(x, min, max),
    "functions/derivative of clamp at its bounds",
)
add(
    "maxima that share the gradient",
    "max_along",
    lambda self, x, dim, keepdim=False: anp.max(x, dim, keepdims=keepdim),
    "functions/gradient of equal maxima",
)
add(
    "maxima of windows that share the gradient",
    "max_windows",
    lambda self, x, kernel, stride, pads, dilation: anp.max(
        anp.stack(self._taps(x, kernel, stride, dilation)), 0
    ),
    "windows/gradient of equal maxima in a window",
    "windows/maxima under gradients of NaN",
)


def windows_with_padding(self, x, kernel, stride, pads, dilation):
    padded = self.pad_constant(x, ((0, 0), (0, 0), *pads), -np.inf)
    return self.max_along(anp.stack(self._taps(padded, kernel, stride, dilation)), 0)


add(
    "padding that takes gradients",
    "max_windows",
    windows_with_padding,
    "windows/maxima of minus infinity beside padding",
)
add(
    "the last of equal maxima",
    "argmax",
    lambda self, x, dim: x.shape[dim] - 1 - np.argmax(np.flip(getval(x), dim), dim),
    "functions/argmax of equal maxima",
)
add(
    "the largest first",
    "argsort_along",
    lambda self, x, dim: np.argsort(-getval(x), dim, kind="stable"),
    "functions/argsort_along",
    "functions/argsort_along of equal elements",
)
add(
    "the last of equal elements first",
    "argsort_along",
    lambda self, x, dim: (
        x.shape[dim] - 1 - np.argsort(np.flip(getval(x), dim), dim, kind="stable")
    ),
    "functions/argsort_along of equal elements",
)
add(
    "sigmoid by tanh",
    "sigmoid",
    lambda self, x: 0.5 * anp.tanh(0.5 * x) + 0.5,
    "functions/sigmoid at -20.0",
)
add(
    "a variance in one pass",
    "var",
    lambda self, x, dim, keepdim=False, correction=0: (
        self.mean(x * x, dim, keepdim) - self.mean(x, dim, keepdim) ** 2
    ),
    "functions/var of large means",
)
add(
    "indices that wrap",
    "concrete",
    lambda self, x: np.abs(getval(x)),
    "functions/positions out of range",
)
add(
    "flags that count as numbers",
    "cast",
    lambda self, x, dtype: (
        getval(x).astype(float) if dtype == "bool" else RIGHT["cast"](self, x, dtype)
    ),
    "functions/cast to flags",
)
add(
    "casts that round",
    "cast",
    lambda self, x, dtype: RIGHT["cast"](self, np.round(getval(x)), dtype),
    "functions/cast to whole numbers",
)
add(
    "constants that are always floating",
    "constant",
    lambda self, value, like: np.array(value, "float64"),
    "functions/constant of whole numbers",
)
add(
    "constants that share memory",
    "constant",
    lambda self, value, like: np.asarray(value),
    "functions/constants of any layout",
)


@broken("arrays/any layout of the host", "arrays/there and back")
def arrays_in_the_order_of_memory(patch):
    right = type(BACKEND).array
    patch.setattr(
        type(BACKEND),
        "array",
        lambda self, x, *rest, **options: right(
            np.ravel(x, order="K").reshape(np.shape(x)), *rest, **options
        ),
    )


add(
    "zeros that are not",
    "zeros",
    lambda self, shape, like: RIGHT["zeros"](self, shape, like) + 1e-9,
    "functions/zeros",
)
add(
    "sigmoid that goes on",
    "sigmoid",
    lambda self, x: RIGHT["sigmoid"](x) + 1e-3 * x,
    "functions/derivative of sigmoid far out",
)
add(
    "softplus whose slope is less than one",
    "softplus",
    lambda self, x: RIGHT["softplus"](self, x) - 1e-3 * x,
    "functions/derivative of softplus far out",
)
add(
    "stop_gradient that stops nothing",
    "stop_gradient",
    lambda self, x: x,
    "functions/stop gradient",
)


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
add(
    "repeated positions whose last gradient wins",
    "select",
    lambda self, x, index, dim: (
        _rows(x, getval(index)) if dim == 0 else RIGHT["select"](self, x, index, dim)
    ),
    "functions/repeated positions",
    "layers/Embedding",
)


def conv(**changes):
    """A convolution with other settings."""
    names = ("x", "weight", "stride", "pads", "dilation", "groups")

    def wrong(self, *arguments):
        given = dict(zip(names, arguments, strict=True))
        return RIGHT["convolve"](
            self,
            *(
                given | {name: change(given) for name, change in changes.items()}
            ).values(),
        )

    return wrong


def not_negative(pads):
    return tuple((max(0, before), max(0, after)) for before, after in pads)


add(
    "negative padding of a convolution that counts as none",
    "convolve",
    conv(pads=lambda given: not_negative(given["pads"])),
    "windows/convolve with padding that crops",
    "windows/convolve_transposed with padding beyond the kernel",
)
add(
    "negative padding of maxima that counts as none",
    "max_windows",
    lambda self, x, kernel, stride, pads, dilation: RIGHT["max_windows"](
        self, x, kernel, stride, not_negative(pads), dilation
    ),
    "windows/max_windows with padding that crops",
)
add(
    "negative padding of sums that counts as none",
    "sum_windows",
    lambda self, x, kernel, stride, pads: RIGHT["sum_windows"](
        self, x, kernel, stride, not_negative(pads)
    ),
    "windows/sum_windows with padding that crops",
)
add(
    "max pooling padded with zeros",
    "max_windows",
    lambda self, x, kernel, stride, pads, dilation: RIGHT["max_windows"](
        self,
        self.pad_constant(x, (*SPATIAL, *pads)),
        kernel,
        stride,
        ((0, 0),) * len(pads),
        dilation,
    ),
    "windows/max_windows of negative numbers",
)


# Losses
add(
    "a mean over nothing that is not a number",
    "_reduce_labels",
    lambda self, loss, weight, reduction: (
        self.sum(loss)
        * (1.0 / getval(self.sum(weight)) if getval(self.sum(weight)) else np.nan)
        if reduction == "mean"
        else self._reduce(loss, reduction)
    ),
    "losses/all labels ignored",
)

# Chance
add(
    "dropping with the probability of keeping",
    "draw",
    lambda self, layer, shape, like, kind, p=0.0: RIGHT["draw"](
        self, layer, shape, like, kind, 1.0 - p
    ),
    "chance/portable masks",
    "chance/native masks",
)


@broken("chance/portable masks of samples")
def masks_by_the_place_in_the_share(patch):
    def wrong(self, layer, shape, like, kind, p=0.0):
        stream = random.current()._replace(first_sample=0)
        path, number = layer.block_path, stream.next_draw(layer.block_path)
        numbers = random.numbers(stream, path, tuple(shape), kind, p, number)
        return numbers.astype(like.dtype)

    patch.setattr(Functions, "draw", wrong)


add(
    "uniform noise in the place of normal noise",
    "draw",
    lambda self, layer, shape, like, kind, p=0.0: RIGHT["draw"](
        self, layer, shape, like, "uniform" if kind == "normal" else kind, p
    ),
    "chance/portable noise",
    "chance/native noise",
)


@broken("chance/several draws")
def one_mask_for_all_draws_of_a_layer(patch):
    def wrong(self, layer, shape, like, kind, p=0.0):
        stream, path = random.current(), layer.block_path
        return random.numbers(stream, path, tuple(shape), kind, p, 0).astype(like.dtype)

    patch.setattr(Functions, "draw", wrong)


@broken("chance/seeds")
def a_seed_that_does_nothing(patch):
    patch.setattr(type(BACKEND), "seed", lambda self, seed: None)


# Layers and networks


@broken("layers/running statistics")
def a_biased_running_variance(patch):
    right = NN.BatchNorm2d._update
    patch.setattr(
        NN.BatchNorm2d,
        "_update",
        lambda self, mean, var, count: right(
            self, mean, var * ((count - 1) / count), count
        ),
    )


@broken("layers/running statistics", "networks/buffers follow assignments")
def buffers_that_ignore_assignments(patch):
    right = Base.__setattr__
    patch.setattr(
        Base,
        "__setattr__",
        lambda self, name, value: (
            None
            if name in ("running_mean", "running_var", "calls", "num_batches_tracked")
            and name in vars(self)
            else right(self, name, value)
        ),
    )


@broken("networks/states outlive calls")
def states_that_are_forgotten(patch):
    right = Base.__setattr__

    def wrong(self, name, value):
        if name != "last" or name not in vars(self):
            right(self, name, value)

    patch.setattr(Base, "__setattr__", wrong)


@broken("networks/buffers keep no graph")
def buffers_that_keep_their_graph(patch):
    right = stranger.network.Variable.write

    def wrong(self, value):
        right(self, value)
        if not self.is_parameter and isbox(value):
            self._value = value

    patch.setattr(stranger.network.Variable, "write", wrong)


@broken("layers/batch norm in evaluation", "networks/training mode")
def evaluation_that_does_not_reach_the_layers(patch):
    patch.setattr(
        Base, "train", lambda self, mode=True: vars(self).update(top=mode) or self
    )


@broken("networks/names order and shapes")
def names_in_the_order_of_the_alphabet(patch):
    right = Base.neutral_slots
    patch.setattr(Base, "neutral_slots", lambda self: dict(sorted(right(self).items())))


@broken("networks/reading and loading the state")
def a_state_that_is_the_networks_own(patch):
    patch.setattr(stranger.network.Variable, "read", lambda self: self._value)


@broken("networks/reading and loading the state")
def weights_that_are_kept_without_a_copy(patch):
    patch.setattr(
        stranger.network.Variable,
        "write",
        lambda self, value: setattr(self, "_value", value),
    )


@broken("networks/tied parameters")
def ties_that_are_copies(patch):
    right = Base.__setattr__

    def wrong(self, name, value):
        if isinstance(value, stranger.network.Variable) and isinstance(
            vars(self).get(name), stranger.network.Variable
        ):
            value = stranger.network.Variable(value.read(), is_parameter=True)
        right(self, name, value)

    patch.setattr(Base, "__setattr__", wrong)


# Arrays


@broken("arrays/storage of its own")
def arrays_that_share_the_callers_storage(patch):
    patch.setattr(
        type(BACKEND),
        "array",
        lambda self, value, dtype=None, device=None: np.asarray(
            getval(value), dtype=dtype
        ),
    )


@broken("arrays/storage of its own")
def arrays_that_are_handed_out(patch):
    patch.setattr(type(BACKEND), "numpy", lambda self, value: np.asarray(getval(value)))


@broken("arrays/split concatenate and stack")
def pieces_in_reverse_order(patch):
    patch.setattr(
        type(BACKEND),
        "concatenate",
        lambda self, values, dim, device=None: np.concatenate(values[::-1], dim),
    )


@broken("arrays/sums of gradients")
def everything_is_finite(patch):
    patch.setattr(type(BACKEND), "all_finite", lambda self, values: True)


@broken("arrays/there and back")
def whole_numbers_of_32_bits(patch):
    right = stranger.arrays.array
    patch.setattr(
        type(BACKEND),
        "array",
        lambda self, value, dtype=None, device=None: right(
            value, "int32" if dtype == "int64" else dtype
        ),
    )


# Gradients


@broken(
    "gradients/none where unused",
    "optimizers/unused parameters",
    "optimizers/hooks",
    "optimizers/adamw",
)
def zeros_where_there_is_no_gradient(patch):
    right = optimizer.differentiated

    def wrong(function, arrays):
        result, found = right(function, arrays)
        return result, [
            np.zeros_like(array) if g is None else g
            for array, g in zip(arrays, found, strict=True)
        ]

    patch.setattr(optimizer, "differentiated", wrong)
    patch.setattr(stranger, "differentiated", wrong)


@broken("gradients/none where unused", "optimizers/frozen parameters")
def frozen_parameters_with_gradients(patch):
    def wrong(network, owns=lambda name: True):
        return {
            name: slot
            for name, slot in network.neutral_slots().items()
            if slot.is_parameter and owns(name)
        }

    patch.setattr(optimizer, "trainable", wrong)
    patch.setattr(stranger, "trainable", wrong)


@broken(
    "second derivatives/gradient within a loss",
    "second derivatives/gradient through a network",
)
def gradients_that_are_constants(patch):
    patch.setattr(
        Functions,
        "gradient",
        lambda self, function, x: getval(RIGHT["gradient"](self, function, x)),
    )


# Optimizers


def arithmetic(patch, kind, name, wrong):
    """Let the stranger compute rules of this kind with another method in the place of one."""
    right = Optimizer.__init__

    def broken_rule(rule):
        if not isinstance(rule, kind):
            return rule
        changed = type(type(rule).__name__, (type(rule),), {name: wrong})
        return changed(**vars(rule))

    def start(self, network, groups, pattern=None):
        right(
            self,
            network,
            replace(groups, rules=tuple(map(broken_rule, groups.rules))),
            pattern,
        )

    patch.setattr(Optimizer, "__init__", start)


@broken("optimizers/sgd with momentum")
def the_learning_rate_inside_the_velocity(patch):
    def wrong(self, p, g, state, scalars, xp):
        velocity = self.momentum * state.get("momentum_buffer", 0.0) + scalars[
            "lr"
        ] * self._decayed(p, g)
        return p - velocity, {"momentum_buffer": velocity}

    arithmetic(patch, rules.SGD, "update", wrong)


@broken("optimizers/sgd", "optimizers/adam")
def a_learning_rate_one_update_late(patch):
    def set_late(self, value):
        self.groups, self._next = (
            self.groups.with_lr(getattr(self, "_next", self.lr)),
            value,
        )

    patch.setattr(Optimizer, "lr", property(lambda self: self.groups.lr, set_late))


@broken("optimizers/clipping by norm")
def decay_before_clipping(patch):
    right = Optimizer.update_with

    def wrong(self, gradients):
        slots, rule = self.network.neutral_slots(), self.groups.rules[0]
        decayed = {
            name: g if g is None else g + rule.weight_decay * slots[name].value
            for name, g in gradients.items()
        }
        self.groups = type(self.groups).of(type(rule)(lr=rule.lr))
        right(self, decayed)

    patch.setattr(Optimizer, "update_with", wrong)


@broken("optimizers/hooks")
def hooks_in_reverse_order(patch):
    right = Optimizer.update_with

    def wrong(self, gradients):
        self.pre_update_hooks = self.pre_update_hooks[::-1]
        right(self, gradients)

    patch.setattr(Optimizer, "update_with", wrong)


@broken("optimizers/groups and patterns")
def groups_that_are_ignored(patch):
    patch.setattr(
        stranger.Groups, "indices", lambda self, slots: dict.fromkeys(slots, 0)
    )


@broken("optimizers/state of an optimizer")
def a_state_without_its_counts(patch):
    right = Optimizer.load_neutral_state

    def wrong(self, state):
        right(self, state)
        self._counts = {}

    patch.setattr(Optimizer, "load_neutral_state", wrong)


@broken(
    "functions/operators",
    "functions/operators that broadcast a row",
)
def gradients_of_branches_that_are_not_added(patch):
    patch.setattr(optimizer, "add_outgrads", lambda known, new: (new, False))


# What else may go wrong
# -----------------------------------------------------------------------------


@broken("arrays/types are kept and converted")
def types_that_are_not_kept(patch):
    right = stranger.arrays.array
    patch.setattr(
        type(BACKEND),
        "array",
        lambda self, value, dtype=None, device=None: right(value, dtype or "float64"),
    )


@broken("arrays/what is there is named")
def a_backend_without_a_version(patch):
    patch.setattr(type(BACKEND), "version", lambda self: "")


@broken("arrays/batches are prepared")
def labels_that_become_floating(patch):
    patch.setattr(
        type(BACKEND),
        "prepare",
        lambda self, batch, network: stranger.nest.map(
            lambda leaf: (
                self.array(leaf, network.dtype_name)
                if isinstance(leaf, np.ndarray)
                else leaf
            ),
            batch,
        ),
    )


@broken("files/safetensors")
def buffers_that_are_not_loaded(patch):
    right = AbstractNetwork.load_neutral_state
    patch.setattr(
        Base,
        "load_neutral_state",
        lambda self, state, strict=True: right(
            self,
            state | {k: v for k, v in self.neutral_state().items() if "running" in k},
        ),
    )


@broken("networks/start values")
def weights_that_are_rounded(patch):
    right = stranger.network.Variable.write
    patch.setattr(
        stranger.network.Variable,
        "write",
        lambda self, value: right(self, np.float32(getval(value))),
    )


@broken("gradients/nests of inputs")
def results_beside_a_loss_that_are_lost(patch):
    right = stranger.Gradients
    patch.setattr(
        stranger,
        "Gradients",
        lambda loss, parameters, inputs, beside: right(loss, parameters, inputs),
    )


@broken("second derivatives/gradient of what does not depend")
def gradients_of_constants_that_are_not_zero(patch):
    patch.setattr(
        Functions,
        "gradient",
        lambda self, function, x: RIGHT["gradient"](self, function, x) + 1e-3,
    )


@broken("networks/parameters are not assigned to")
def parameters_that_take_any_array(patch):
    right = Base.__setattr__

    def wrong(self, name, value):
        held = vars(self).get(name)
        if isinstance(held, stranger.network.Variable) and held.is_parameter:
            held.write(value)
        else:
            right(self, name, value)

    patch.setattr(Base, "__setattr__", wrong)


@broken("networks/containers that change")
def blocks_that_stay(patch):
    patch.setattr(Base, "__delattr__", lambda self, name: None, raising=False)


@broken("networks/blocks and their paths")
def blocks_in_reverse_order(patch):
    right = Base.named_blocks
    patch.setattr(Base, "named_blocks", lambda self: reversed(list(right(self))))


@broken("networks/abstract and native", "networks/layers that would be overlooked")
def nothing_that_is_native(patch):
    patch.setattr(type(BACKEND), "is_native", lambda self, value: False)


@broken("networks/calls of blocks are followed")
def calls_that_pass_by_forward(patch):
    patch.setattr(
        Base,
        "__call__",
        lambda self, *args, **kwargs: type(self).forward(self, *args, **kwargs),
    )


@broken("networks/copies", "networks/pickles")
def copies_that_are_thawed(patch):
    patch.setattr(
        stranger.network.Variable,
        "__setstate__",
        lambda self, state: vars(self).update(
            state
            | {"trainable": self.is_parameter if vars(self) else state["is_parameter"]}
        ),
        raising=False,
    )


@broken("networks/copies in another type")
def counters_that_become_floating(patch):
    patch.setattr(
        type(BACKEND),
        "set_dtype",
        lambda self, network, dtype: [
            setattr(slot, "value", slot.value.astype(dtype))
            for slot in network.neutral_slots().values()
        ],
    )


@broken(
    "gradients/of parameters and inputs",
    "gradients/evaluating",
)
def linear_maps_that_remember(patch):
    calls = iter(range(10**6))
    patch.setattr(
        Functions,
        "linear",
        lambda self, x, w, b=None: RIGHT["linear"](self, x, w, b) + 1e-3 * next(calls),
    )


@broken(
    "networks/containers",
)
def biases_that_are_forgotten(patch):
    right = Base.neutral_slots
    patch.setattr(
        Base,
        "neutral_slots",
        lambda self: {k: v for k, v in right(self).items() if not k.endswith("bias")},
    )


@broken("functions/concrete")
def values_at_hand_that_are_others(patch):
    patch.setattr(Functions, "concrete", lambda self, x: getval(x)[::-1])


@broken("functions/argmax", "functions/argmax of equal maxima")
def positions_of_minima(patch):
    patch.setattr(Functions, "argmax", lambda self, x, dim: np.argmin(getval(x), dim))


@broken("losses/labels out of range")
def labels_that_are_not_checked(patch):
    patch.setattr(Functions, "checked", lambda self, *args: None)


@broken("layers/running statistics")
def statistics_that_move_twice(patch):
    right = type(BACKEND).gradients

    def wrong(self, loss, network, *inputs):
        loss(network, *self.prepare(inputs, network))
        return right(self, loss, network, *inputs)

    patch.setattr(type(BACKEND), "gradients", wrong)


@broken("chance/evaluation draws nothing")
def dropout_in_evaluation(patch):
    patch.setattr(
        NN.Dropout,
        "training",
        property(lambda self: True, lambda self, value: None),
        raising=False,
    )


RULES = [
    "sgd",
    "sgd with momentum",
    "sgd with Nesterov's momentum",
    "sgd with dampening",
    "adam",
    "amsgrad",
    "rmsprop",
    "rmsprop with centered squares",
    "rmsprop with momentum",
    "adagrad",
    "adadelta",
    "adamw",
    "lion",
    "lamb",
    "radam",
    "adafactor",
    "muon",
]


@broken(*(f"optimizers/{name}" for name in RULES))
def learning_rates_that_are_rounded(patch):
    patch.setattr(
        Optimizer,
        "lr",
        property(
            lambda self: self.groups.lr,
            lambda self, lr: setattr(
                self, "groups", self.groups.with_lr(float(np.float32(lr)))
            ),
        ),
    )


@broken(
    "optimizers/sgd with weight decay",
    "optimizers/adam with weight decay",
    "optimizers/radam with weight decay",
)
def decay_that_is_left_out(patch):
    arithmetic(patch, rules.Rule, "_decayed", lambda self, p, g: g)


# Every function and layer with a check of its own, wrong by little
# -----------------------------------------------------------------------------


def slightly(result, how):
    """Outputs that are off by a millionth, or that are right but have gradients that are off by a
    ten-thousandth."""
    if isinstance(result, tuple | list):
        return type(result)(slightly(each, how) for each in result)
    if result is None or result.dtype.kind != "f":
        return result
    return (
        result * (1.0 + 1e-6)
        if how == "values"
        else result + 1e-4 * (result - getval(result))
    )


SLIGHTLY = {}  # by name of a check: the class that has the function, and the function's name


def _own_checks():
    for check in suite.CHECKS:
        capability, word = check.capability, check.name.split()[0].rstrip(",")
        row = check.function
        row = row.args[0] if isinstance(row, partial) else row
        if not isinstance(row, Row):
            continue
        if not row.once and not all(
            y.dtype.kind == "f" and y.any() for y in row.answers
        ):
            continue
        if capability in ("functions", "windows", "losses") and hasattr(
            Functions, word
        ):
            SLIGHTLY[str(check)] = Functions, word
        elif capability == "layers" and word in LAYERS:
            SLIGHTLY[str(check)] = getattr(NN, word), "forward"


_own_checks()


def plant_slightly(patch, check, how):
    """Make the function that a check is named after slightly wrong."""
    kind, name = SLIGHTLY[check]
    right = vars(kind).get(name) or getattr(kind, name)
    called = right.__get__ if hasattr(right, "__get__") else lambda self, kind: right
    patch.setattr(
        kind,
        name,
        lambda self, *args, **kwargs: slightly(
            called(self, kind)(*args, **kwargs), how
        ),
    )
