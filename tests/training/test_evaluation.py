"""Evaluation: figures from any source of batches, no trace in the network, flat memory."""

import gc
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.metrics

from deliralike import Network, backends, data
from deliralike.errors import BatchError, SettingError, UnknownName
from deliralike.training import evaluate, metrics, predict
from deliralike.training.evaluation import Turns
from tests.parallel.networks import devices


class Small(Network):
    """Norm, dropout, linear: running statistics, chance, and a mode in every block."""

    def __init__(self):
        super().__init__()
        self.bn = self.nn.BatchNorm1d(5)
        self.dropout = self.nn.Dropout(0.5)
        self.fc = self.nn.Linear(5, 3)
        self.seen = []

    def forward(self, x):
        return self.fc(self.dropout(self.bn(x)))


class Failing(Small):
    def forward(self, x):
        raise RuntimeError("broken on purpose")


class Pixels(Network):
    """Three scores for every pixel."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(1, 3, 1)

    def forward(self, x):
        return self.conv(x)


X = np.random.default_rng(0).normal(size=(23, 5))
LABELS = np.random.default_rng(1).integers(0, 3, 23)


def built(backend, network=Small):
    return network.on(backend.name, seed=1, dtype="float64")()


def replicated(backend, network=Small):
    return backends.DataParallel(built(backend, network), devices(backend, 2))


@pytest.fixture(params=["single", "replicated"])
def network(request, backend):
    """A network in training mode with one block that is not, alone and as two replicas."""
    network = (built if request.param == "single" else replicated)(backend)
    network.train()
    dict(network.named_blocks())["dropout"].eval()
    return network


def scores_by_hand(network, x=X):
    """Batch norm with the running statistics, then the linear layer, in NumPy."""
    state = network.neutral_state()
    x = (x - state["bn.running_mean"]) / np.sqrt(
        state["bn.running_var"] + 1e-5
    ) * state["bn.weight"] + state["bn.bias"]
    return x @ state["fc.weight"].T + state["fc.bias"]


# Figures
# -----------------------------------------------------------------------------


def test_figures_are_those_of_the_scores_worked_out_by_hand(network):
    scores = scores_by_hand(network)
    found = evaluate(network, (X, LABELS), batch_size=7)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert found["accuracy"] == (scores.argmax(1) == LABELS).mean()
    assert found["loss"] == pytest.approx(
        sklearn.metrics.log_loss(LABELS, p), rel=1e-12
    )


class Rows:
    """An indexable dataset."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], LABELS[i]


class Plain:
    """A loader of someone else's: it can be iterated, and that is all."""

    def __iter__(self):
        return ((X[i : i + 6], LABELS[i : i + 6]) for i in range(0, 23, 6))


def sources():
    pairs = [(X[:9], LABELS[:9]), (X[9:], LABELS[9:])]
    return {
        "samples": data.Samples(X, LABELS),
        "tuple": (X, LABELS),
        "dict": {"data": X, "label": LABELS},
        "batches": iter(pairs),
        "lists": iter([list(pair) for pair in pairs]),
        "dicts": iter([{"data": x, "label": y, "name": "n"} for x, y in pairs]),
        "list of samples": list(zip(X, LABELS, strict=True)),
        "list of dicts": [
            {"image": x, "label": y} for x, y in zip(X, LABELS, strict=True)
        ],
        "generator": (pair for pair in pairs),
        "dataset": Rows(),
        "loader": data.Loader((X, LABELS), 4, shuffle=True, drop_last=True, prefetch=2),
        "loader in order": data.Loader((X, LABELS), 4, shuffle=False, drop_last=True),
        "foreign loader": Plain(),
    }


@pytest.mark.parametrize("source", sources())
def test_any_source_of_batches_gives_the_same_figures(source):
    network = built(backends.get("torch"))
    wanted = evaluate(network, (X, LABELS))
    assert evaluate(network, sources()[source], batch_size=5) == pytest.approx(
        wanted, rel=1e-12
    )


def test_batches_of_the_backends_own_arrays_are_judged_on_the_host(backend):
    network = built(backend)
    batch = (backend.array(X), backend.array(LABELS))
    assert evaluate(network, iter([batch])) == pytest.approx(
        evaluate(network, (X, LABELS)), rel=1e-12
    )


@pytest.mark.parametrize(
    ("together", "wanted"),
    [(True, [[0, 3], [1, 4], [2, 3]]), (False, [[0, 3], [1, 4], [2]])],
)
def test_processes_take_turns_at_batches_and_where_asked_make_the_same_number(
    together, wanted
):
    ranks = [SimpleNamespace(rank=rank, count=3) for rank in range(3)]
    assert [[*Turns(range(5), rank, together)] for rank in ranks] == wanted


def test_metrics_come_by_name_in_a_list_or_as_functions():
    network = built(backends.get("torch"))
    scores = scores_by_hand(network)

    def largest(outputs, targets):
        return outputs.max()

    found = evaluate(
        network,
        (X, LABELS),
        metrics=["roc-auc", metrics.TopK(k=2), largest],
        batch_size=4,
    )
    assert list(found) == ["roc-auc", "top-2", "largest"]
    assert found["largest"] == pytest.approx(scores.max(), rel=1e-12)
    named = evaluate(
        network,
        (X, LABELS),
        metrics={"area": metrics.RocAuc(), "first": "accuracy", "x": largest},
    )
    assert (named["area"], named["x"]) == pytest.approx(
        (found["roc-auc"], found["largest"]), rel=1e-12
    )


def test_a_metric_with_several_figures_adds_its_name_to_theirs():
    network = built(backends.get("torch"), Pixels)
    pictures, masks = (
        X[:, np.newaxis, np.newaxis],
        np.tile(LABELS[:, np.newaxis, np.newaxis], (1, 1, 5)),
    )
    found = evaluate(
        network,
        (pictures, masks),
        metrics={"overlap": metrics.Dice(classes=["bg", "gm", "wm"])},
    )
    assert list(found) == ["overlap/bg", "overlap/gm", "overlap/wm", "overlap/mean"]


def test_intervals_stand_beside_the_figures():
    network = built(backends.get("torch"))
    found = evaluate(network, (X, LABELS), intervals=True)
    assert list(found) == [
        "accuracy",
        "accuracy/low",
        "accuracy/high",
        "loss",
        "loss/low",
        "loss/high",
    ]
    assert found["accuracy/low"] < found["accuracy"] < found["accuracy/high"]
    evidence = metrics.Evidence(metrics.Accuracy())
    evidence.add(scores_by_hand(network), LABELS)
    options = {"level": 0.5, "resamples": 99}
    wanted = evidence.interval(**options)
    found = evaluate(
        network, (X, LABELS), metrics=["accuracy"], batch_size=4, intervals=options
    )
    assert (found["accuracy/low"], found["accuracy/high"]) == wanted


# Bad input
# -----------------------------------------------------------------------------


def test_what_holds_no_labelled_samples_is_refused():
    network = built(backends.get("torch"))
    for wrong, message in [
        ((X,), "a batch of 1 elements has no target"),
        (
            {"data": X, "lable": LABELS},
            "the batch has no 'label'. Did you mean 'lable'?",
        ),
        (X, "a batch is a dict, tuple or list, not a numpy.ndarray"),
        (3, "a dataset of such samples, or batches of them, not a int"),
        ([X, LABELS], "must agree in shape"),
        ([], "at least one sample"),
        ((X, LABELS[1:]), r"\[0\] has 23, .*\[1\] has 22"),
    ]:
        with pytest.raises(BatchError, match=message):
            evaluate(network, wrong)


def test_metrics_that_are_none_or_share_a_name_are_refused():
    network = built(backends.get("torch"))
    for wrong, message in [
        (["accuracy", metrics.Accuracy()], "two metrics are called 'accuracy'"),
        ("accuracy", "metrics are a list, or a dict by name, not 'accuracy'"),
        (metrics.Accuracy(), "metrics are a list, or a dict by name"),
        ([3], "a metric is a Metric or a function"),
    ]:
        with pytest.raises(SettingError, match=message):
            evaluate(network, (X, LABELS), metrics=wrong)
    with pytest.raises(UnknownName, match="Did you mean 'accuracy'?"):
        evaluate(network, (X, LABELS), metrics=["acuracy"])


# No trace
# -----------------------------------------------------------------------------


def modes(network):
    return {
        path: block.training
        for path, block in network.named_blocks()
        if hasattr(block, "training")
    }


def test_weights_buffers_and_the_mode_of_every_block_are_as_before(network):
    state, before = network.neutral_state(), modes(network)
    evaluate(network, (X, LABELS), batch_size=7)
    list(predict(network, X, batch_size=7))
    assert modes(network) == before
    assert not before["dropout"] and before["bn"]
    for each in getattr(network, "replicas", [network]):
        assert all(
            (value == state[name]).all() for name, value in each.neutral_state().items()
        )


def test_the_modes_are_restored_when_the_network_raises(backend):
    for network in (built(backend, Failing), replicated(backend, Failing)):
        network.train()
        dict(network.named_blocks())["bn"].eval()
        before = modes(network)
        with pytest.raises(RuntimeError, match="broken on purpose"):
            evaluate(network, (X, LABELS))
        with pytest.raises(RuntimeError, match="broken on purpose"):
            next(predict(network, X))
        assert modes(network) == before


def test_the_modes_are_restored_when_a_metric_or_the_data_raise_and_when_predictions_are_left_early(
    network,
):
    before = modes(network)

    def failing(*_):
        raise ZeroDivisionError

    def broken():
        yield X, LABELS
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(network, (X, LABELS), metrics={"failing": failing})
    with pytest.raises(ZeroDivisionError):
        evaluate(network, broken())
    predictions = predict(network, X, batch_size=5)
    next(predictions)
    assert modes(network) == before
    predictions.close()
    assert modes(network) == before


def test_the_random_state_is_as_before(backend, network):
    """Masks drawn after an evaluation are those drawn without one."""
    dict(network.named_blocks())["dropout"].train()
    masks = []
    for judged in (False, True):
        gc.collect()  # JAX seeds every stream alive by its place among them
        backend.seed(3)
        if judged:
            evaluate(network, (X, LABELS), batch_size=7)
        masks.append(backend.to_numpy(network(backend.prepare(X, network))))
    assert (masks[0] == masks[1]).all()
    assert (masks[0] != backend.to_numpy(network(backend.prepare(X, network)))).any()


def test_gradients_are_as_before(backend):
    network = built(backend)
    if backend.name == "jax":
        assert not hasattr(network.fc.weight, "grad")  # there are none to keep
        return
    parameter = network.fc.bias
    parameter.grad = backend.array(np.arange(3.0))
    held = parameter.grad
    evaluate(network, (X, LABELS))
    assert parameter.grad is held
    assert backend.numpy(parameter.grad).tolist() == [0.0, 1.0, 2.0]


def test_no_graph_is_built(backend):
    seen = []

    class Watched(Small):
        def forward(self, x):
            seen.append(super().forward(x))
            return seen[-1]

    network = built(backend, Watched)
    evaluate(network, (X, LABELS))
    next(predict(network, X))
    for output in seen:
        assert getattr(output, "grad_fn", None) is None
        assert getattr(output, "creator_node", None) is None
        assert not getattr(output, "requires_grad", False) or backend.name == "chainer"
    assert len(seen) == (1 if backend.name == "jax" else 2)  # a program is traced once


# Memory
# -----------------------------------------------------------------------------


def peak(function):
    """The most bytes that Python and NumPy held beyond those at the start."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_stays_flat_over_many_batches(backend):
    """Outputs of one batch take 384 kB; those of all batches would take 23 MB."""
    network = built(backend, Pixels)
    pictures, masks = np.zeros((4, 1, 64, 64)), np.zeros((4, 64, 64), np.int64)
    one_batch = 4 * 3 * 64 * 64 * 8

    def predicted():
        for _ in predict(
            network, np.broadcast_to(pictures[:1], (240, 1, 64, 64)), batch_size=4
        ):
            pass

    def judged():
        evaluate(
            network,
            ((pictures, masks) for _ in range(60)),
            metrics=["accuracy", "loss", "dice"],
        )

    predicted(), judged()  # what is made once, such as compiled programs
    assert peak(predicted) < 6 * one_batch
    assert peak(judged) < 12 * one_batch


def test_predictions_leave_out_the_targets_of_whatever_evaluation_takes():
    """Several datasets are data classes, which are nests of arrays otherwise."""
    network = built(backends.get("torch"))
    rows = list(zip(X, LABELS, strict=True))
    wanted = np.concatenate(list(predict(network, X)))
    for source in (
        data.Samples(X, LABELS),
        rows,
        data.Subset(rows, np.arange(len(rows))),
    ):
        np.testing.assert_array_equal(
            np.concatenate(list(predict(network, source))), wanted
        )
