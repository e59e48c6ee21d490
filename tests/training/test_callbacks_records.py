"""What is recorded: JSON lines and TensorBoard's events, which are cut back on resume, and CSV
tables, read back by other readers."""

import csv
import json
import math
import struct
import time

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from deliralike.cli import predict
from deliralike.errors import DataUnavailable, StateError
from deliralike.tables import write_csv
from deliralike.training import Epoch, History, JsonLines, Run, Step, TensorBoard
from tests.training.small_runs import Do, fail, samples, trainer

STEPS = [
    Step(
        i,
        i // 2,
        1.0 / (i + 3),
        0.5,
        4,
        {"loss": 1.0 / (i + 3), "kl": 0.1 * i},
        0.1,
        0.25,
    )
    for i in range(6)
]
EPOCHS = [
    Epoch(0, 2, {"accuracy": 0.1}),
    Epoch(1, 4, {"accuracy": 0.2, "dice/mean": 0.3}),
    Epoch(2, 6, {"iou": 0.7}),
]


def a_run(step=0):
    return Run(trainer("torch"), 3, step=step)


def columns(path):
    """A table's columns, as another reader has them."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def numbers(texts):
    return [float(text) for text in texts]


def record(callback, first, last, run=None):
    """Steps `first` to `last`, with the epoch after each second one."""
    run = run or a_run()
    for step in STEPS[first:last]:
        callback.on_step(run, step)
        if step.step % 2:
            callback.on_epoch(run, EPOCHS[step.step // 2])


def written(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def make(folder):
    return JsonLines(folder / "run.jsonl", backend="torch")


@pytest.mark.parametrize(
    ("checkpoint", "killed"), [(1, 1), (1, 2), (2, 6), (3, 4), (3, 5), (4, 6), (0, 3)]
)
def test_a_resumed_run_leaves_the_files_of_one_that_was_not_interrupted(
    tmp_path, checkpoint, killed
):
    whole, first = make(tmp_path / "whole"), make(tmp_path / "resumed")
    whole.on_start(a_run())
    record(whole, 0, 6)
    first.on_start(a_run())
    record(first, 0, checkpoint)
    state = json.loads(json.dumps(first.state()))
    record(first, checkpoint, killed)
    again = make(tmp_path / "resumed")
    again.load_state(state)
    again.on_start(a_run())
    record(again, checkpoint, 6)
    assert written(tmp_path / "resumed") == written(tmp_path / "whole")


def test_a_line_that_was_not_finished_goes_when_the_run_is_resumed(tmp_path):
    whole, first = make(tmp_path / "whole"), make(tmp_path / "resumed")
    record(whole, 0, 5)
    record(first, 0, 3)
    state = first.state()
    for path in (tmp_path / "resumed").iterdir():
        path.write_bytes(path.read_bytes() + b'3,"1,0.2')
    again = make(tmp_path / "resumed")
    again.load_state(state)
    again.on_start(a_run())
    record(again, 3, 5)
    assert written(tmp_path / "resumed") == written(tmp_path / "whole")


def test_a_file_that_lost_its_end_in_a_power_cut_keeps_its_whole_lines(tmp_path):
    first = make(tmp_path)
    record(first, 0, 6)
    path = max(tmp_path.iterdir(), key=lambda each: each.stat().st_size)
    path.write_bytes(path.read_bytes()[:-5])
    whole_lines = path.read_bytes().rpartition(b"\n")[0] + b"\n"
    again = make(tmp_path)
    again.load_state(first.state())
    again.on_start(a_run())
    assert path.read_bytes() == whole_lines


def test_a_resumed_run_whose_files_are_gone_begins_new_ones(tmp_path):
    first = make(tmp_path / "run")
    record(first, 0, 2)
    again = make(tmp_path / "elsewhere")
    again.load_state(first.state())
    again.on_start(a_run())
    record(again, 2, 4)
    assert all(
        content.count(b"\n") >= 1
        for content in written(tmp_path / "elsewhere").values()
    )


def test_another_file_of_json_lines_is_left_as_it_is(tmp_path):
    log = JsonLines(tmp_path / "run.jsonl")
    log.path.write_text('{"another": "file"}\n')
    log.load_state({"bytes": 5})
    with pytest.raises(
        StateError,
        match="has no line that ends after 5 bytes.*it is another file. Move it away",
    ):
        log.on_start(a_run())
    assert log.path.read_text() == '{"another": "file"}\n'


def test_a_checkpoint_that_is_made_by_a_later_callback_has_the_step_in_it(tmp_path):
    log, states = JsonLines(tmp_path / "run.jsonl"), []
    trainer(
        "torch",
        [log, Do("on_step", lambda run, step: states.append(log.state()["bytes"]))],
    ).fit(samples(9), batch_size=3)
    lines = log.path.read_bytes().splitlines(keepends=True)
    assert states == np.cumsum([len(line) for line in lines])[:3].tolist()


# Tables
# -----------------------------------------------------------------------------


def test_tables_read_back_equal_and_later_columns_are_empty_before(tmp_path):
    History(STEPS, EPOCHS).write_csv(tmp_path)
    steps, epochs = (columns(tmp_path / f"{kind}.csv") for kind in ("steps", "epochs"))
    assert numbers(steps["loss"]) == [step.loss for step in STEPS]
    assert numbers(steps["loss/kl"]) == [step.losses["kl"] for step in STEPS]
    assert list(steps) == [
        "step",
        "epoch",
        "loss",
        "lr",
        "samples",
        "seconds",
        "data_seconds",
        "loss/kl",
    ]
    assert list(epochs)[4:] == [
        "held_out/accuracy",
        "loss/kl",
        "held_out/dice/mean",
        "held_out/iou",
    ]
    # by hand: 0.1 i for i = 0 and 1, 2 and 3, 4 and 5
    np.testing.assert_allclose(numbers(epochs["loss/kl"]), [0.05, 0.25, 0.45])
    assert epochs["held_out/dice/mean"] == ["", "0.3", ""]
    assert epochs["held_out/iou"] == ["", "", "0.7"]


def test_names_with_commas_quotes_and_line_ends_survive(tmp_path):
    name = 'a, "b"\nc'
    write_csv(tmp_path / "x.csv", [{name: 0.5}, {name: 0.25, "late": 1.0}])
    with (tmp_path / "x.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [[name, "late"], ["0.5", ""], ["0.25", "1.0"]]


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@A1", "\t=1", "\r=1"])
def test_no_cell_is_a_formula_for_a_spreadsheet(text, tmp_path):
    write_csv(
        tmp_path / "x.csv", [{text: text, "b": "-1.5"}, {text: text, "b": -math.inf}]
    )
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [[f"'{text}", "b"], [f"'{text}", "-1.5"], [f"'{text}", "-inf"]]


def test_the_names_of_classes_are_no_formulas_in_predictions(tmp_path):
    scores = np.log([[0.75, 0.25], [0.25, 0.75]])
    write_csv(
        tmp_path / "x.csv", predict._rows(np.array([0, 0]), scores, ("=1+1", "b"))
    )
    assert (tmp_path / "x.csv").read_text().splitlines() == [
        "sample,label,predicted,probability =1+1,probability b",
        "0,'=1+1,'=1+1,0.75,0.25",
        "1,'=1+1,b,0.25,0.75",
    ]


def test_nan_and_infinity_stand_in_a_table(tmp_path):
    step = Step(0, 0, math.nan, 1.0, 1, {"loss": math.nan, "b": math.inf}, None)
    History([step]).write_csv(tmp_path)
    assert (tmp_path / "steps.csv").read_text().splitlines()[
        1
    ] == "0,0,nan,,1,1.0,0.0,inf"


def test_several_learning_rates_have_a_column_each(tmp_path):
    History([Step(0, 0, 1.0, 1.0, 1, {}, {"generator": 0.1, "critic": 0.2})]).write_csv(
        tmp_path
    )
    found = columns(tmp_path / "steps.csv")
    assert (found["lr/generator"], found["lr/critic"]) == (["0.1"], ["0.2"])


# TensorBoard
# -----------------------------------------------------------------------------


def events(folder):
    """The events of each file, by TensorFlow's record format: length, its checksum, content, its
    checksum."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            found.append(Event.FromString(content[at + 12 : at + 12 + length]))
            at += length + 16
    return found


def scalars(folder):
    return {
        (value.tag, event.step): value.simple_value
        for event in events(folder)
        for value in event.summary.value
    }


def test_tensorboard_finds_losses_rates_and_metrics(tmp_path, backend):
    each = trainer(backend.name, [TensorBoard(tmp_path / "runs")], metrics=["accuracy"])
    history = each.fit(samples(), samples(3), epochs=2, batch_size=4)
    found = scalars(tmp_path / "runs")
    assert [found["train/loss", step] for step in range(4)] == pytest.approx(
        history.losses.tolist(), rel=1e-6
    )
    assert [found["train/lr", step] for step in range(4)] == pytest.approx([0.1] * 4)
    metrics = list(history.epochs[0].held_out)
    for name in metrics:
        at_last_steps = [found[f"validation/{name}", step] for step in (1, 3)]
        assert at_last_steps == pytest.approx(history.held_out(name).tolist(), rel=1e-6)
    steps = {"train/loss", "train/lr", "train/samples_per_second"}
    assert "accuracy" in metrics
    assert {tag for tag, _ in found} == steps | {
        f"validation/{name}" for name in metrics
    }


def test_tensorboard_has_a_finished_epoch_in_its_file_while_the_run_goes_on(tmp_path):
    board = TensorBoard(tmp_path)
    run = a_run()
    board.on_start(run)
    board.write_step(STEPS[0])
    time.sleep(0.1)  # the first values are written at once
    board.on_epoch(run, EPOCHS[0])
    until = time.monotonic() + 60.0
    while ("validation/accuracy", 1) not in scalars(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.1)
    board.on_end(run)


def test_tensorboard_hides_what_came_after_the_checkpoint(tmp_path):
    board = TensorBoard(tmp_path)
    run = a_run(step=3)
    board.on_start(run)
    record(board, 3, 4, run)
    board.on_end(run)
    purged = [event.step for event in events(tmp_path) if event.HasField("session_log")]
    assert purged == [3]


def test_tensorboard_closes_its_file_when_the_run_fails(tmp_path):
    board = TensorBoard(tmp_path)
    with pytest.raises(RuntimeError):
        trainer("torch", [board, Do("on_epoch", fail)]).fit(samples(), samples(3))
    assert board._writer is None
    assert scalars(tmp_path)


def test_a_run_that_fails_before_its_start_ends_without_a_writer(tmp_path):
    with pytest.raises(RuntimeError):
        trainer("torch", [Do("on_start", fail), TensorBoard(tmp_path)]).fit(samples())


def test_tensorboard_without_its_package_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(
        DataUnavailable,
        match="TensorBoard needs the package 'tensorboardX'.*deliralike.tensorboard",
    ):
        TensorBoard(tmp_path)
