"""Early stopping: a table of sequences worked out by hand, and runs that follow it."""

import math

import pytest

from deliralike.errors import SettingError, UnknownName
from deliralike.training import (
    Callback,
    Checkpoint,
    Checkpoints,
    EarlyStopping,
    ReduceLROnPlateau,
)
from tests.training.small_runs import Do, fail, samples, scripted, trainer

NAN, INF = math.nan, math.inf

# (name, values by epoch, options, epoch after which the run ends (None: it goes on), best epoch)
TABLE = [
    ("falling", [3, 2, 1, 0.5], {"patience": 1}, None, 3),
    ("rising is worse in min", [1, 2, 3, 4], {"patience": 2}, 2, 0),
    (
        "patience 0 ends at the first that is not better",
        [3, 2, 2.5, 1],
        {"patience": 0},
        2,
        1,
    ),
    ("a better one resets the count", [3, 4, 4, 2, 3, 3, 3], {"patience": 3}, 6, 3),
    ("a plateau is not better", [2, 2, 2, 2], {"patience": 3}, 3, 0),
    ("ties keep the first as best", [2, 1, 1, 1.5], {"patience": 3}, None, 1),
    ("across zero", [0.5, 0.0, -0.5, 0.0], {"patience": 1}, 3, 2),
    (
        "min_delta in max, below zero",
        [-3.0, -2.95, -1.0, -0.95, -2.0],
        {"patience": 2, "min_delta": 0.125, "mode": "max"},
        4,
        2,
    ),
    ("NaN at the start counts as waiting", [NAN, NAN, 1], {"patience": 2}, 1, None),
    ("NaN in the middle", [2, NAN, 1, NAN, NAN], {"patience": 2}, 4, 2),
    ("NaN alone", [NAN, NAN, NAN], {"patience": 3}, 2, None),
    ("infinity, then a number", [INF, 5, INF, INF], {"patience": 2}, 3, 1),
    (
        "min_delta: too little is not better",
        [1.0, 0.95, 0.91, 0.5],
        {"patience": 2, "min_delta": 0.1},
        2,
        0,
    ),
    (
        "min_delta counts from the best",
        [1.0, 0.95, 0.89, 0.85],
        {"patience": 2, "min_delta": 0.1},
        None,
        2,
    ),
    (
        "exactly min_delta is not more than it",
        [1.0, 0.75, 0.75],
        {"patience": 2, "min_delta": 0.25},
        2,
        0,
    ),
]


def ends_after(stopping, values, first=0):
    return next(
        (
            epoch
            for epoch, value in enumerate(values, first)
            if stopping.observe(epoch, value)
        ),
        None,
    )


def test_the_end_and_the_best_epoch_are_those_of_the_table():
    found = {}
    for name, values, options, _, _ in TABLE:
        stopping = EarlyStopping("score", **options)
        found[name] = (ends_after(stopping, values), stopping.best_epoch)
    assert found == {name: (end, best) for name, _, _, end, best in TABLE}


@pytest.mark.parametrize("cut", [1, 2])
def test_a_run_that_is_resumed_ends_at_the_same_epoch(cut):
    found = {}
    for name, values, options, _, _ in TABLE:
        before, after = (
            EarlyStopping("score", **options),
            EarlyStopping("score", **options),
        )
        early = ends_after(before, values[:cut])
        after.load_state(before.state())
        late = (
            early if early is not None else ends_after(after, values[cut:], first=cut)
        )
        found[name] = (late, after.best_epoch)
    assert found == {name: (end, best) for name, _, _, end, best in TABLE}


def fitted(backend, values, epochs=None, **options):
    stopping = EarlyStopping("score", **options)
    each = trainer(backend, [stopping], metrics={"score": scripted(*values)})
    return (
        each,
        stopping,
        each.fit(samples(), samples(3), epochs=epochs or len(values), batch_size=4),
    )


def test_a_run_ends_after_the_epoch_and_says_why(backend):
    _, _, history = fitted(backend.name, [3.0, 2.0, 2.5, 2.25, 1.0], patience=2)
    assert (len(history.epochs), len(history.steps)) == (4, 8)
    assert history.stopped == "score has not been better than 2 for 2 epochs"


def test_a_run_of_nan_says_so():
    assert (
        fitted("torch", [NAN, NAN], patience=1)[2].stopped
        == "score has been NaN for 1 epoch"
    )


def test_a_run_that_goes_on_to_its_end_was_not_stopped():
    assert fitted("torch", [3.0, 2.0], patience=1)[2].stopped == ""


def test_a_run_resumed_after_its_last_epoch_trains_no_further(tmp_path):
    values = [3.0, 2.0, 2.5, 2.25, 1.0]
    first = trainer(
        "torch",
        [EarlyStopping("score", patience=2), Checkpoint(tmp_path / "saved")],
        metrics={"score": scripted(*values)},
    )
    assert first.fit(samples(), samples(3), epochs=5, batch_size=4).stopped
    again = trainer(
        "torch",
        [EarlyStopping("score", patience=2), Checkpoint(tmp_path / "saved")],
        metrics={"score": scripted(*values)},
    )
    history = again.fit(
        samples(),
        samples(3),
        epochs=5,
        batch_size=4,
        resume=Checkpoints.latest(tmp_path / "saved"),
    )
    assert (len(history.steps), len(history.epochs)) == (0, 4)
    assert history.stopped == "score has not been better than 2 for 2 epochs"


class Weights(Callback):
    """Keeps the weights after each epoch."""

    def __init__(self):
        self.seen = []

    def on_epoch(self, run, epoch):
        self.seen.append(run.network.neutral_state())


@pytest.mark.parametrize("devices", [None, 2])
def test_the_best_weights_come_back_at_the_end(backend, devices):
    stopping, weights = EarlyStopping("score", patience=2, restore_best=True), Weights()
    places = (
        None
        if devices is None
        else backend.devices()[:1] * 2
        if backend.name != "jax"
        else backend.devices()[:2]
    )
    each = trainer(
        backend.name,
        [weights, stopping],
        metrics={"score": scripted(3.0, 1.0, 2.0, 2.0)},
        devices=places,
    )
    each.fit(samples(10), samples(3), epochs=9, batch_size=5)
    state = each.network.neutral_state()
    assert all((state[name] == value).all() for name, value in weights.seen[1].items())
    assert any((state[name] != value).any() for name, value in weights.seen[3].items())


def test_the_best_weights_come_back_when_all_epochs_are_over_too():
    stopping, weights = EarlyStopping("score", restore_best=True), Weights()
    each = trainer("torch", [weights, stopping], metrics={"score": scripted(1.0, 2.0)})
    each.fit(samples(), samples(3), epochs=2)
    assert all(
        (each.network.neutral_state()[name] == value).all()
        for name, value in weights.seen[0].items()
    )


@pytest.mark.parametrize(
    "error", [fail, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)]
)
def test_weights_stay_for_a_resume_when_an_error_or_ctrl_c_ends_the_run(error):
    stopping, weights = EarlyStopping("score", restore_best=True), Weights()
    stop = Do("on_epoch", lambda run, epoch: error() if epoch.epoch == 1 else None)
    each = trainer(
        "torch", [weights, stopping, stop], metrics={"score": scripted(1.0, 2.0, 3.0)}
    )
    with pytest.raises((RuntimeError, KeyboardInterrupt)):
        each.fit(samples(), samples(3), epochs=3)
    assert all(
        (each.network.neutral_state()[name] == value).all()
        for name, value in weights.seen[1].items()
    )


def test_the_best_weights_are_in_the_state_that_a_checkpoint_keeps():
    _, stopping, _ = fitted("torch", [1.0, 2.0], patience=3, restore_best=True)
    state = stopping.state()
    assert (state["best"], state["best_epoch"], state["waited"]) == (1.0, 0, 1)
    other = EarlyStopping("score", patience=3, restore_best=True)
    other.load_state(state)
    assert all(
        (other.state()["weights"][name] == value).all()
        for name, value in state["weights"].items()
    )


@pytest.mark.parametrize("watching", [EarlyStopping, ReduceLROnPlateau])
def test_a_metric_that_is_not_there_is_an_error_with_those_that_are(watching):
    each = trainer("torch", [watching("acuracy")], metrics=["accuracy", "loss"])
    with pytest.raises(
        UnknownName,
        match="no metric 'acuracy' on validation data. Did you mean 'accuracy'.*will give: acc",
    ):
        each.fit(samples(), samples(3))


def test_a_run_without_validation_data_is_told_what_it_lacks():
    with pytest.raises(
        UnknownName,
        match="no metric 'loss': nothing was validated. Give fit.. validation data",
    ):
        trainer("torch", [EarlyStopping()]).fit(samples())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mode": "lower"},
            "mode='lower' is unknown: 'min' where less is better, 'max' where more is",
        ),
        ({"patience": -1}, "patience=-1 must be a whole number of at least 0"),
        ({"patience": 1.5}, "patience=1.5 must be a whole number"),
        ({"min_delta": -0.1}, "min_delta=-0.1 must be a number of at least 0"),
        ({"min_delta": NAN}, "min_delta=nan must be a number"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        EarlyStopping("loss", **options)
