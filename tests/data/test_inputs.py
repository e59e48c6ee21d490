"""What arrays of any type become, or are refused with: one table for all backends, as in
docs/reference/array_types.md."""

import importlib
from functools import cache

import jax
import numpy as np
import optax
import pytest
import torch

from deliralike import Network, backends, data
from deliralike.errors import (
    ArgumentError,
    BatchError,
    DtypeError,
    IndexRangeError,
    SettingError,
    ShapeError,
)
from deliralike.optim import rules
from deliralike.training import Trainer

BACKENDS = pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
WHOLE = np.arange(21).reshape(7, 3) * 5 % 6
CLASSES = np.array([0, 1, 1, 0, 1, 2, 1])


class Scores(Network):
    """A linear classifier."""

    def __init__(self):
        super().__init__()
        self.to_scores = self.nn.Linear(3, 3)

    def forward(self, values):
        return self.to_scores(values)


def trainer_of(backend, **options):
    return Trainer(Scores.on(backend, seed=3)(), rules.rule("sgd", lr=0.0), **options)


@cache
def unchanging(backend):
    """A trainer whose weights stay as they are, for all tests that need no other: JAX compiles its
    step once."""
    trainer = trainer_of(backend)
    return trainer, {
        name: value.copy() for name, value in trainer.network.neutral_state().items()
    }


def fit(trainer, inputs, labels, batch_size=7):
    """The losses of an epoch, and the loss of the validation before it."""
    loader = data.Loader(data.Samples(inputs, labels), batch_size, shuffle=False)
    history = trainer.fit(loader, data.Samples(inputs, labels), epochs=1)
    return [float(loss) for loss in history.losses], history.epochs[0].held_out["loss"]


def entropy(weights, inputs, labels):
    """The mean cross-entropy in NumPy; −100 does not count."""
    scores = (
        inputs.astype(np.float64) @ weights["to_scores.weight"].T
        + weights["to_scores.bias"]
    )
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return -np.mean(
        [row[label] for row, label in zip(log_p, labels, strict=True) if label != -100]
    )


INPUTS = {
    "float16": WHOLE.astype("f2"),
    "float64": WHOLE.astype("f8"),
    "longdouble": WHOLE.astype("g"),
    "big-endian float32": WHOLE.astype(">f4"),
    "big-endian float64": WHOLE.astype(">f8"),
    "nothing masked": np.ma.masked_array(WHOLE.astype("f4")),
    "tensor": torch.tensor(WHOLE.astype("f4")),
    "JAX array": jax.numpy.asarray(WHOLE.astype("f4")),
    "not contiguous": np.asfortranarray(WHOLE.astype("f4"))[::1],
}
LABELS = {
    **{
        kind: CLASSES.astype(kind)
        for kind in (
            "i1",
            "u1",
            "i2",
            "u2",
            "i4",
            "u4",
            "i8",
            "u8",
            ">i2",
            ">i8",
            ">u4",
        )
    },
    "nothing masked": np.ma.masked_array(CLASSES),
    "tensor": torch.tensor(CLASSES),
    "ignored": np.where(CLASSES == 2, -100, CLASSES),
}


@BACKENDS
def test_inputs_that_are_taken_are_those_numbers(backend, subtests):
    for kind, inputs in INPUTS.items():
        with subtests.test(kind=kind):
            assert_losses(backend, inputs, CLASSES, WHOLE, CLASSES)


@BACKENDS
def test_labels_that_are_taken_are_those_classes(backend, subtests):
    for kind, labels in LABELS.items():
        with subtests.test(kind=kind):
            assert_losses(
                backend, WHOLE.astype("f4"), labels, WHOLE, np.asarray(labels)
            )


def assert_losses(backend, inputs, labels, numbers, classes):
    """Training and validation give the loss of those numbers and classes, and change no weight."""
    trainer, weights = unchanging(backend)
    (loss,), validated = fit(trainer, inputs, labels)
    wanted = entropy(weights, numbers, classes)
    assert loss == pytest.approx(wanted, rel=1e-5) and validated == pytest.approx(
        wanted, rel=1e-5
    )
    assert all(
        np.array_equal(value, weights[name])
        for name, value in trainer.network.neutral_state().items()
    )


LAYER = (
    r"^Linear at 'to_scores': got an input of {}, wanted floating numbers: convert it"
)
REFUSED = {
    **{
        kind: (WHOLE.astype(kind), DtypeError, LAYER.format(kind))
        for kind in ("uint8", "int16", "int32", "bool")
    },
    "int64": (WHOLE, DtypeError, LAYER.format("int(64|32)")),
    "complex": (WHOLE.astype("c8"), DtypeError, LAYER.format("complex64")),
    "object": (
        WHOLE.astype(object),
        DtypeError,
        r"^batch\[0\] is an array of object, wanted numbers or truth values",
    ),
    "text": (
        WHOLE.astype(str),
        DtypeError,
        r"^batch\[0\] is an array of <U21, wanted numbers",
    ),
    "records": (
        np.zeros(7, [("a", "f4")]),
        DtypeError,
        r"^batch\[0\] is an array of \[\('a', '<f4'\)\]",
    ),
    "masked": (
        np.ma.masked_array(WHOLE.astype("f4"), WHOLE == 5),
        DtypeError,
        r"^batch\[0\] has 4 masked elements",
    ),
    "tensor in bfloat16": (
        torch.zeros(7, 3).bfloat16(),
        ArgumentError,
        r"^samples.inputs is a Tensor .* BFloat16",
    ),
    "tensor of a graph": (
        torch.zeros(7, 3, requires_grad=True),
        ArgumentError,
        "^samples.inputs is a Tensor .*grad",
    ),
    "list": (
        WHOLE.tolist(),
        ArgumentError,
        r"^samples.inputs is a list of 7, wanted an array .*: np.asarray\(samples.inputs\)",
    ),
}


@BACKENDS
def test_inputs_that_are_refused_are_so_with_one_error(backend, subtests):
    for kind, (inputs, error, message) in REFUSED.items():
        with subtests.test(kind=kind), pytest.raises(error, match=message):
            fit(unchanging(backend)[0], inputs, CLASSES)


OUTSIDE = (
    "cross_entropy: target: {} is out of range, "
    "wanted whole numbers from 0 to 2 .or -100, which is ignored"
)
FIT = "|^the whole number {} does not fit int32, which backend 'jax' computes in"
REFUSED_LABELS = {
    "one more": (CLASSES + 1, IndexRangeError, OUTSIDE.format(3)),
    "below zero": (CLASSES - 1, IndexRangeError, OUTSIDE.format(-1)),
    "ignored by others": (
        np.where(CLASSES == 2, 255, CLASSES).astype("u1"),
        IndexRangeError,
        OUTSIDE.format(255),
    ),
    "2**32+1": (
        np.where(CLASSES == 2, 2**32 + 1, CLASSES),
        IndexRangeError,
        (OUTSIDE + FIT).format(*[2**32 + 1] * 2),
    ),
    "bool": (
        CLASSES > 0,
        SettingError,
        "cross_entropy: target: got an array of .*bool, wanted whole numbers",
    ),
    "float": (
        CLASSES.astype("f4"),
        ShapeError,
        r"floating numbers of shape \(7,\), .* \(7, 3\).*labels.astype\('int64'\)",
    ),
    "one-hot": (
        np.eye(3)[CLASSES],
        BatchError,
        r"floating numbers of shape \(7, 3\), are one-hot rows.*labels.argmax\(1\)",
    ),
    "one-hot int": (
        np.eye(3, dtype=int)[CLASSES],
        ShapeError,
        r"want \(7,\): one-hot rows become class numbers by labels.argmax\(1\)",
    ),
    "column": (
        CLASSES[:, None],
        ShapeError,
        r"leave out the axis of size 1, labels\[:, 0\]",
    ),
    "object": (
        CLASSES.astype(object),
        DtypeError,
        r"^batch\[1\] is an array of object",
    ),
    "masked": (
        np.ma.masked_equal(CLASSES, 2),
        DtypeError,
        r"^batch\[1\] has 1 masked elements",
    ),
    "list": (CLASSES.tolist(), ArgumentError, r"^samples.labels is a list of 7"),
}


@BACKENDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_measured_targets_that_nearly_add_up_to_one_are_trained(backend, dtype):
    measured = np.full((7, 3), 1.004 / 3, dtype)
    assert fit(unchanging(backend)[0], WHOLE.astype("f4"), measured) is not None


@BACKENDS
def test_labels_that_are_refused_are_so_with_one_error(backend, subtests):
    for kind, (labels, error, message) in REFUSED_LABELS.items():
        with subtests.test(kind=kind), pytest.raises(error, match=message):
            fit(unchanging(backend)[0], WHOLE.astype("f4"), labels)


@BACKENDS
def test_measured_targets_that_are_nearly_one_hot_rows_are_taken(backend):
    targets = np.eye(3)[CLASSES]
    targets[5, 1] = 0.5
    trainer, weights = unchanging(backend)
    scores = WHOLE @ weights["to_scores.weight"].T + weights["to_scores.bias"]
    losses, _ = fit(trainer, WHOLE.astype("f4"), targets)
    assert losses[0] == pytest.approx(np.mean((scores - targets) ** 2), rel=1e-5)


NATIVE_LOSSES = {
    "torch": lambda scores, labels: torch.nn.functional.cross_entropy(scores, labels),
    "chainer": lambda scores, labels: chainer_functions().softmax_cross_entropy(
        scores, labels
    ),
    "jax": lambda scores, labels: optax.softmax_cross_entropy_with_integer_labels(
        scores, labels
    ).mean(),
}


def chainer_functions():
    backends.get("chainer")
    return importlib.import_module("chainer.functions")


@BACKENDS
def test_labels_outside_the_classes_are_refused_for_a_loss_of_the_framework_too(
    backend,
):
    """By itself optax goes on with NaN."""
    trainer = trainer_of(backend, losses={"entropy": NATIVE_LOSSES[backend]})
    losses, _ = fit(trainer, WHOLE.astype("f4"), CLASSES)
    weights = trainer.network.neutral_state()
    assert losses[0] == pytest.approx(entropy(weights, WHOLE, CLASSES), rel=1e-5)
    with pytest.raises(
        IndexRangeError, match="^loss 'entropy': target: 3 is out of range, .* 0 to 2"
    ):
        fit(trainer, WHOLE.astype("f4"), CLASSES + 1)


@BACKENDS
def test_labels_that_a_loss_ignores_by_convention_reach_it(backend):
    def entropy_but_255(scores, labels):
        nn = backends.get(backend).nn
        return nn.cross_entropy(scores, labels, ignore_index=255)

    trainer = trainer_of(backend, losses={"entropy": entropy_but_255})
    losses, _ = fit(trainer, WHOLE.astype("f4"), np.where(CLASSES == 2, 255, CLASSES))
    kept = CLASSES != 2
    wanted = entropy(trainer.network.neutral_state(), WHOLE[kept], CLASSES[kept])
    assert losses[0] == pytest.approx(wanted, rel=1e-5)


@BACKENDS
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_label_is_looked_at_in_every_step(backend, devices, accumulate):
    """Compiled programs as well, which were made for earlier batches; the replicated ones too."""
    home = "@numpy" if backend == "chainer" else "cpu"
    options = {"devices": [home] * devices} if devices > 1 else {}
    inputs, labels = np.ones((12, 3), "f4"), np.arange(12) % 3
    seen = []

    class Watch:
        runs_last, main_only = False, False

        def __getattr__(self, name):
            return lambda *what: seen.append(name)

    labels[10] = 3
    with pytest.raises(IndexRangeError, match=OUTSIDE.format(3)):
        trainer = trainer_of(
            backend, accumulate=accumulate, callbacks=[Watch()], **options
        )
        trainer.fit(
            data.Loader(data.Samples(inputs, labels), 3, shuffle=False), epochs=1
        )
    assert seen.count("on_step") == (3 if accumulate == 1 else 1)


@BACKENDS
def test_arrays_of_another_framework_are_refused_by_an_update(backend):
    other = torch.ones(7, 3) if backend == "jax" else jax.numpy.ones((7, 3))
    network = Scores.on(backend)()
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
    with pytest.raises(
        DtypeError,
        match=r"^batch\[0\] is an? .* of shape \(7, 3\), which this backend does not compute",
    ):
        network.train_step((other, CLASSES), optimizer)


@BACKENDS
def test_predictions_and_dictionaries_take_any_byte_order(backend):
    trainer = unchanging(backend)[0]
    wanted = next(trainer.predict(WHOLE.astype("f4")))
    for kind in (">f4", ">f8"):
        swapped = WHOLE.astype(kind)
        assert np.array_equal(next(trainer.predict(swapped)), wanted), kind
        prepared = trainer.network.prepare_batch({"data": swapped}, None, None)["data"]
        assert np.array_equal(trainer.network.backend.numpy(prepared), WHOLE), kind


def test_masked_samples_are_not_stacked():
    rows = [np.ma.masked_array([1.0, 2.0], [False, row == 3]) for row in range(5)]
    with pytest.raises(
        BatchError, match="a sample has masked elements, which a batch cannot keep"
    ):
        list(data.Loader(rows, 2).batches())
