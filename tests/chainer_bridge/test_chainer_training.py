"""Optimizers, iterators, converters and the trainer of Chainer."""

import io
import json
import subprocess
import sys
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.training import extensions

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")

# Chainer's optimizer and torch's that makes the same steps.
OPTIMIZERS = {
    "SGD": (lambda: chainer.optimizers.SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "MomentumSGD": (
        lambda: chainer.optimizers.MomentumSGD(0.1, 0.9),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    ),
    "Adam": (
        lambda: chainer.optimizers.Adam(0.1, eps=1e-8),
        lambda p: torch.optim.Adam(p, 0.1, eps=1e-8),
    ),
    "AMSGrad": (
        lambda: chainer.optimizers.Adam(0.1, eps=1e-12, amsgrad=True),
        lambda p: torch.optim.Adam(p, 0.1, eps=1e-12, amsgrad=True),
    ),
    "AdamW": (
        lambda: chainer.optimizers.AdamW(0.1, eps=1e-8, weight_decay_rate=1e-3),
        lambda p: torch.optim.AdamW(p, 0.1, eps=1e-8, weight_decay=1e-2),
    ),
    "AdaGrad": (
        lambda: chainer.optimizers.AdaGrad(0.1, eps=1e-8),
        lambda p: torch.optim.Adagrad(p, 0.1, eps=1e-8),
    ),
    "AdaDelta": (
        lambda: chainer.optimizers.AdaDelta(0.95, 1e-6),
        lambda p: torch.optim.Adadelta(p, 1.0, rho=0.95, eps=1e-6),
    ),
    "RMSprop": (
        lambda: chainer.optimizers.RMSprop(0.01, 0.99, eps=1e-8),
        lambda p: torch.optim.RMSprop(p, 0.01, 0.99, eps=1e-8),
    ),
}


@pytest.fixture
def data(rng):
    """A problem with an answer: the label says in which half of the plane a point lies."""
    x = rng.normal(size=(23, 3)).astype("float32")
    return chainer.datasets.TupleDataset(x, (x[:, 0] > 0).astype("int32"))


def _linear(weight):
    with chainer.using_config("dtype", np.dtype("float64")):
        return L.Linear(3, 2, nobias=True, initialW=weight)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_makes_the_steps_of_torch(name, rng):
    x, weight = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    ours, theirs = OPTIMIZERS[name]
    link, tensor = _linear(weight.copy()), torch.tensor(weight.copy(), requires_grad=True)
    optimizer, expected = ours().setup(link), theirs([tensor])
    for _ in range(4):
        optimizer.update(lambda: F.sum(link(x) ** 2))
        expected.zero_grad()
        ((torch.tensor(x) @ tensor.T) ** 2).sum().backward()
        expected.step()
    np.testing.assert_allclose(link.W.array, tensor.detach(), rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["NesterovAG", "SMORMS3", "MSVAG", "RMSpropGraves", "CorrectedMomentumSGD"]
)
def test_a_few_steps_lower_the_loss(name, data):
    link = L.Classifier(L.Linear(3, 2))
    optimizer = getattr(chainer.optimizers, name)(lr=0.01).setup(link)
    batch = chainer.dataset.concat_examples(list(data))
    first = float(link(*batch).array)
    for _ in range(10):
        optimizer.update(link, *batch)
    assert float(link(*batch).array) < first


def _gradient_after(hook, weight, gradient):
    link = _linear(weight.copy())
    optimizer = chainer.optimizers.SGD(1.0).setup(link)
    optimizer.add_hook(hook)
    link.W.grad = gradient.copy()
    optimizer.update()
    return weight - link.W.array


HOOKS = {
    "WeightDecay": (chainer.optimizer_hooks.WeightDecay(0.1), lambda w, g: g + 0.1 * w),
    "Lasso": (chainer.optimizer_hooks.Lasso(0.1), lambda w, g: g + 0.1 * np.sign(w)),
    "GradientClipping": (
        chainer.optimizer_hooks.GradientClipping(0.5),
        lambda w, g: g * min(1, 0.5 / np.linalg.norm(g)),
    ),
    "GradientHardClipping": (
        chainer.optimizer_hooks.GradientHardClipping(-0.3, 0.2),
        lambda w, g: g.clip(-0.3, 0.2),
    ),
    "GradientLARS": (
        chainer.optimizer_hooks.GradientLARS(0.01, 0.1, eps=1e-9),
        lambda w, g: (
            np.linalg.norm(w) / (1e-9 + np.linalg.norm(g) + 0.1 * np.linalg.norm(w)) * (g + 0.1 * w)
        ),
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_changes_the_gradient_before_the_update(name, rng):
    hook, formula = HOOKS[name]
    weight, gradient = rng.normal(size=(2, 2, 3))
    np.testing.assert_allclose(
        _gradient_after(hook, weight, gradient), formula(weight, gradient), rtol=1e-9
    )


def test_gradient_noise_starts_with_the_square_root_of_eta_as_its_spread():
    np.random.seed(5)
    weight = np.zeros((2, 3))
    hook = chainer.optimizer_hooks.GradientNoise(4.0)
    steps = [_gradient_after(hook, weight, weight) for _ in range(300)]
    np.testing.assert_allclose(np.std(steps), 2, rtol=0.1)


def test_half_precision_trains_with_loss_scaling_and_float32_copies(rng):
    with chainer.using_config("dtype", chainer.mixed16):
        link = L.Classifier(L.Linear(3, 2))
    optimizer = chainer.optimizers.MomentumSGD(0.05).setup(link)
    optimizer.use_fp32_update()
    optimizer.loss_scaling(scale=16)
    x = rng.normal(size=(23, 3)).astype("float16")
    labels = (x[:, 0] > 0).astype("int32")
    first = float(link(x, labels).array)
    for _ in range(10):
        optimizer.update(link, x, labels)
    assert link.predictor.W.dtype == np.float16 and float(link(x, labels).array) < first


def test_the_state_of_an_optimizer_survives_a_file(data, tmp_path):
    batch = chainer.dataset.concat_examples(list(data))
    link = L.Classifier(L.Linear(3, 2))
    optimizer = chainer.optimizers.Adam().setup(link)
    optimizer.update(link, *batch)
    other = link.copy("copy")
    resumed = chainer.optimizers.Adam().setup(other)
    chainer.serializers.save_npz(tmp_path / "state.npz", optimizer)
    chainer.serializers.load_npz(tmp_path / "state.npz", resumed)
    optimizer.update(link, *batch)
    resumed.update(other, *batch)
    assert resumed.t == 2
    np.testing.assert_array_equal(link.predictor.W.array, other.predictor.W.array)


def _iterator(kind, data, **options):
    if kind == "MultithreadIterator":
        options["n_threads"] = 2
    return getattr(chainer.iterators, kind)(data, 5, **options)


ITERATORS = ["SerialIterator", "MultithreadIterator"]


@pytest.mark.parametrize("kind", ITERATORS)
def test_an_epoch_without_repetition_gives_each_sample_once_in_order(kind):
    iterator = _iterator(kind, np.arange(13), repeat=False, shuffle=False)
    batches = [[int(sample) for sample in batch] for batch in iterator]
    iterator.finalize()
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]]


@pytest.mark.parametrize("kind", ITERATORS)
def test_a_shuffled_epoch_gives_each_sample_once(kind):
    iterator = _iterator(kind, np.arange(15), shuffle=True)
    samples = [int(sample) for _ in range(3) for sample in iterator.next()]
    assert sorted(samples) == list(range(15)) and iterator.is_new_epoch and iterator.epoch == 1
    iterator.finalize()


# Chainer forks its workers, which is safe only in a process where no other test has started JAX's
# threads.
FORKED = """
from deliralike.backends import chainer_bridge as bridge
bridge.install()
import chainer, json, numpy as np
options = {"n_processes": 2}
ordered = chainer.iterators.MultiprocessIterator(
    np.arange(13), 5, repeat=False, shuffle=False, **options
)
batches = [[int(sample) for sample in batch] for batch in ordered]
ordered.finalize()
shuffled = chainer.iterators.MultiprocessIterator(np.arange(15), 5, shuffle=True, **options)
samples = sorted(int(sample) for _ in range(3) for sample in shuffled.next())
print(json.dumps([batches, samples, shuffled.epoch]))
shuffled.finalize()
"""


def test_the_iterator_with_processes_gives_each_sample_once(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    options = [
        "-W",
        "error",
        "-W",
        "ignore:This process:DeprecationWarning",
    ]  # of forking, from Python 3.12 on
    run = subprocess.run(
        [sys.executable, *options, "-c", FORKED], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    batches, samples, epoch = json.loads(run.stdout)
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]]
    assert samples == list(range(15))
    assert epoch == 1


@pytest.mark.parametrize("kind", ["SerialIterator", "MultithreadIterator"])
def test_an_iterator_goes_on_where_a_file_says(kind, tmp_path):
    iterator, other = (_iterator(kind, np.arange(13), shuffle=True) for _ in range(2))
    iterator.next()
    chainer.serializers.save_npz(tmp_path / "iterator.npz", iterator)
    chainer.serializers.load_npz(tmp_path / "iterator.npz", other)
    assert [int(s) for s in iterator.next()] == [int(s) for s in other.next()]
    iterator.finalize()
    other.finalize()


def test_examples_are_padded_to_the_largest_of_the_batch():
    batch = [(np.ones((1, 3)), 1), (np.ones((2, 1)), 0)]
    x, labels = chainer.dataset.concat_examples(batch, padding=(-1, None))
    np.testing.assert_array_equal(x, [[[1, 1, 1], [-1, -1, -1]], [[1, -1, -1], [1, -1, -1]]])
    np.testing.assert_array_equal(labels, [1, 0])


@pytest.mark.parametrize("batch", [[{"a": 1.5}, {"a": 2.5}], [(1.5,), (2.5,)], [1.5, 2.5]], ids=str)
def test_examples_of_any_kind_are_put_together(batch):
    joined = chainer.dataset.concat_examples(batch)
    (values,) = (
        joined.values()
        if isinstance(joined, dict)
        else joined
        if isinstance(joined, tuple)
        else (joined,)
    )
    np.testing.assert_array_equal(values, [1.5, 2.5])


def _trainer(data, directory, epochs=2, out=None):
    np.random.seed(1)  # Chainer draws start values and orders from NumPy's global generator
    model = L.Classifier(
        chainer.Sequential(L.Linear(3, 8), L.BatchNormalization(8), F.relu, L.Linear(8, 2))
    )
    optimizer = chainer.optimizers.Adam(0.05).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    updater = training.updaters.StandardUpdater(
        chainer.iterators.SerialIterator(data, 4), optimizer, device="@numpy"
    )
    trainer = training.Trainer(updater, (epochs, "epoch"), out=str(directory))
    evaluation = chainer.iterators.SerialIterator(data, 4, repeat=False, shuffle=False)
    trainer.extend(extensions.Evaluator(evaluation, model, device="@numpy"))
    trainer.extend(extensions.LogReport())
    trainer.extend(
        extensions.PrintReport(
            ["epoch", "main/loss", "validation/main/accuracy"], out=out or io.StringIO()
        )
    )
    trainer.extend(extensions.snapshot(filename="snapshot_{.updater.epoch}"), trigger=(1, "epoch"))
    trainer.extend(extensions.ExponentialShift("alpha", 0.5), trigger=(1, "epoch"))
    trainer.extend(extensions.FailOnNonNumber())
    return trainer


def test_a_trainer_runs_two_epochs_logs_them_and_lowers_the_loss(data, tmp_path):
    printed = io.StringIO()
    trainer = _trainer(data, tmp_path, out=printed)
    trainer.run()
    log = json.loads((tmp_path / "log").read_text())
    assert [entry["epoch"] for entry in log] == [1, 2]
    assert log[1]["main/loss"] < log[0]["main/loss"]
    assert "validation/main/accuracy" in printed.getvalue()
    assert trainer.updater.get_optimizer("main").alpha == 0.05 * 0.5**2


def test_a_trainer_resumes_from_its_snapshot(data, tmp_path):
    trainer = _trainer(data, tmp_path)
    trainer.run()
    resumed = _trainer(data, tmp_path / "resumed", epochs=3)
    chainer.serializers.load_npz(tmp_path / "snapshot_2", resumed)
    assert (resumed.updater.epoch, resumed.updater.iteration) == (2, trainer.updater.iteration)
    for (_, a), (_, b) in zip(
        trainer.updater.get_optimizer("main").target.namedparams(),
        resumed.updater.get_optimizer("main").target.namedparams(),
        strict=True,
    ):
        np.testing.assert_array_equal(a.array, b.array)
    resumed.run()
    assert [entry["epoch"] for entry in json.loads((tmp_path / "resumed" / "log").read_text())] == [
        1,
        2,
        3,
    ]


def test_a_parallel_updater_on_one_device_makes_the_steps_of_the_standard_one(data):
    weights = []
    for updater in (training.updaters.StandardUpdater, training.updaters.ParallelUpdater):
        model = L.Classifier(L.Linear(3, 2, initialW=np.ones((2, 3), "float32")))
        optimizer = chainer.optimizers.SGD(0.1).setup(model)
        options = (
            {"devices": {"main": "@numpy"}} if updater is training.updaters.ParallelUpdater else {}
        )
        iterator = chainer.iterators.SerialIterator(data, 4, shuffle=False)
        updater = updater(iterator, optimizer, **options)
        for _ in range(3):
            updater.update()
        weights.append(model.predictor.W.array)
    np.testing.assert_allclose(*weights, rtol=1e-6)


def test_what_is_reported_reaches_the_observer_of_its_thread():
    link = L.Classifier(L.Linear(3, 2))
    reporter = chainer.Reporter()
    reporter.add_observer("main", link)
    with reporter:
        link(np.ones((2, 3), "float32"), np.array([0, 1]))
    assert set(reporter.observation) == {"main/loss", "main/accuracy"}
