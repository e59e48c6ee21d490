"""Profiles and statistics of gradients, against clocks that a test moves and against NumPy."""

import csv
import json

import numpy as np
import pytest

from deliralike import data
from deliralike.errors import SettingError
from deliralike.training import GradientStatistics, Profiler, StopOnNaN
from deliralike.training.callbacks.gradient_statistics import _statistics
from deliralike.training.callbacks.profiler import peak_memory
from tests.training.small_runs import Do, samples, trainer


def test_the_phases_of_a_run_are_those_that_a_clock_was_moved_in(tmp_path, monkeypatch):
    now = [0.0]

    def takes(seconds, result=None):
        def run(*_):
            now[0] += seconds
            return result

        return run

    def loss(network, inputs, target):
        now[0] += 3.0 * network.training
        return network.nn.cross_entropy(network(inputs), target)

    def make(batch):
        now[0] += 2.0
        return batch

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    profiler = Profiler(tmp_path / "profile")
    callbacks = [Do("on_step", takes(1.0)), profiler]
    each = trainer("torch", callbacks, losses=loss, metrics={"slow": takes(5.0, 0.0)})
    loader = data.Loader(samples(8), 4, batch_transform=make)
    each.fit(loader, samples(3), epochs=2)
    found = json.loads((tmp_path / "profile" / "profile.json").read_text())
    seconds = {
        name: (phase["count"], phase["seconds"])
        for name, phase in found["phases"].items()
    }
    assert seconds == {
        "data": (4, 8.0),
        "first step": (1, 3.0),
        "step": (3, 9.0),
        "evaluation": (2, 10.0),
        "rest": (1, 4.0),
    }
    assert found["seconds"] == 34.0
    assert found["samples_per_second"] == 16 / 34
    assert "evaluation" in (tmp_path / "profile" / "profile.txt").read_text()
    assert sum(phase["share"] for phase in found["phases"].values()) == pytest.approx(
        1.0
    )


def test_the_peak_of_memory_is_at_least_what_was_just_taken():
    before = peak_memory()
    block = np.ones(2**25)
    assert peak_memory() >= before
    assert peak_memory() > block.nbytes


# Gradients
# -----------------------------------------------------------------------------


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_statistics_are_those_of_the_gradients_by_numpy(backend, tmp_path):
    each = trainer(backend.name, [GradientStatistics(tmp_path / "g.csv")])
    reference = trainer(backend.name)
    net = reference.network
    inputs, labels = data.Loader(samples(), 7, seed=0).batches(0).__next__()
    batch = net.backend.prepare((inputs, labels), net)
    wanted = net.backend.gradients(
        lambda net, x, y: net.nn.cross_entropy(net(x), y), net.train(), *batch
    ).parameters
    each.fit(samples(), batch_size=7)
    found = rows(tmp_path / "g.csv")
    assert [row["parameter"] for row in found] == [*wanted, "(all)"]
    whole = np.concatenate([gradient.ravel() for gradient in wanted.values()])
    for row, gradient in zip(found, [*wanted.values(), whole], strict=True):
        assert float(row["norm"]) == pytest.approx(
            np.sqrt((gradient**2).sum()), rel=1e-9, abs=1e-15
        )
        assert float(row["largest"]) == pytest.approx(
            np.abs(gradient).max(), rel=1e-9, abs=1e-15
        )


def test_zeros_are_counted_and_norms_neither_overflow_nor_hide_nan():
    found = _statistics(np.array([[0.0, 3.0, 0.0], [-4.0, 0.0, 0.0]]))
    assert found == {"norm": 5.0, "largest": 4.0, "zeros": 4 / 6}
    assert _statistics(np.array([3e300, 4e300]))["norm"] == pytest.approx(5e300)
    assert _statistics(np.zeros(3)) == {"norm": 0.0, "largest": 0.0, "zeros": 1.0}
    assert np.isnan(_statistics(np.array([1.0, np.nan]))["norm"])
    assert _statistics(np.array([1.0, np.inf]))["norm"] == np.inf


def test_rows_come_every_few_steps_and_the_optimizer_is_as_before(tmp_path):
    each = trainer("torch", [GradientStatistics(tmp_path / "g.csv", every=3)])
    each.fit(samples(8), epochs=4, batch_size=4)
    assert sorted({int(row["step"]) for row in rows(tmp_path / "g.csv")}) == [0, 3, 6]
    assert not each.optimizers["default"].keep_gradients
    assert each.optimizers["default"].latest_gradients == {}


@pytest.mark.parametrize("kept", [True, False])
def test_two_callbacks_that_look_at_gradients_leave_the_optimizer_as_it_was(
    tmp_path, kept
):
    each = trainer(
        "torch", [StopOnNaN(), GradientStatistics(tmp_path / "g.csv"), StopOnNaN()]
    )
    each.optimizers["default"].keep_gradients = kept
    each.fit(samples(8))
    assert each.optimizers["default"].keep_gradients is kept
    assert bool(each.optimizers["default"].latest_gradients) is kept


def test_a_parameter_that_takes_no_part_has_empty_cells(tmp_path):
    def loss(network, inputs, target):
        return network.nn.mean(network.first(inputs) ** 2)

    trainer("torch", [GradientStatistics(tmp_path / "g.csv")], losses=loss).fit(
        samples()
    )
    found = {row["parameter"]: row["norm"] for row in rows(tmp_path / "g.csv")}
    assert found["last.weight"] == ""
    assert float(found["first.weight"]) == pytest.approx(float(found["(all)"]), rel=0.5)


def test_clipped_gradients_are_recorded_as_they_were_used(tmp_path):
    trainer("torch", [GradientStatistics(tmp_path / "g.csv")], clip_norm=0.01).fit(
        samples()
    )
    assert float(rows(tmp_path / "g.csv")[-1]["norm"]) == pytest.approx(0.01, rel=1e-9)


def test_the_table_is_cut_back_when_the_run_is_resumed(tmp_path):
    first = GradientStatistics(tmp_path / "g.csv")
    trainer("torch", [first]).fit(samples(8), batch_size=4)
    state, content = first.state(), (tmp_path / "g.csv").read_bytes()
    trainer("torch", [GradientStatistics(tmp_path / "g.csv")]).fit(
        samples(8), batch_size=4
    )
    again = GradientStatistics(tmp_path / "g.csv")
    again.load_state(state)
    trainer("torch", [again, Do("on_start", lambda run: run.stop("enough"))]).fit(
        samples(8)
    )
    assert (tmp_path / "g.csv").read_bytes() == content


def test_every_must_make_sense(tmp_path):
    with pytest.raises(
        SettingError, match="every=0 must be a whole number of at least 1"
    ):
        GradientStatistics(tmp_path / "g.csv", every=0)
