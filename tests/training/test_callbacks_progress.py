"""Progress: what stands on the terminal at the end, silence elsewhere, and one output in a
notebook."""

import io
import re
import sys

import numpy as np
import pytest
from rich.console import Console

from deliralike import data
from deliralike.training import EarlyStopping, ProgressBar
from deliralike.training.callbacks.progress import bars
from tests.training.small_runs import Broken, Do, fail, samples, scripted, trainer


def screen(width=140):
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system=None,
        legacy_windows=False,
        _environ={"TERM": "xterm"},
    )


def shown(run, width=140):
    """The lines that are left on a terminal when `run(progress)` is over."""
    console = screen(width)
    with bars(console) as progress:
        run(progress)
    plain = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "\n", console.file.getvalue())
    return [line.rstrip() for line in plain.split("\n") if line.strip()]


def test_the_bar_ends_with_steps_rate_loss_and_metrics():
    def run(progress):
        metrics = {
            "first": scripted(0.1, 0.25),
            "second": scripted(1, 2),
            "third": scripted(1, 2),
        }
        trainer(
            "torch", [ProgressBar("torch", progress=progress)], metrics=metrics
        ).fit(samples(), samples(3), epochs=2, batch_size=4)

    last = shown(run)[-1]
    assert re.match(
        r"torch +━+ 4/4 .* steps/s 0:00:\d\d loss 0\.\d+ validation .*first 0.25",
        last,
    )


def test_several_bars_stand_below_one_another():
    def run(progress):
        for name in ("one", "two"):
            trainer("torch", [ProgressBar(name, progress=progress)]).fit(samples())

    assert [line.split()[0] for line in shown(run)[-2:]] == ["one", "two"]


def test_a_run_that_ends_early_says_why_and_its_bar_is_full():
    def run(progress):
        callbacks = [
            EarlyStopping("score", patience=1),
            ProgressBar("run", progress=progress),
        ]
        trainer("torch", callbacks, metrics={"score": scripted(1.0, 2.0)}).fit(
            samples(), samples(3), epochs=9
        )

    last = shown(run)[-1]
    assert " 2/2 " in last
    assert last.endswith("stopped: score has not been better than 1 for 1 epoch")


def test_a_stream_has_a_rate_and_no_total():
    def run(progress):
        loader = data.Batches(lambda: data.Loader(samples(8), 4).batches())
        trainer("torch", [ProgressBar("stream", progress=progress)]).fit(loader)

    assert re.search(r" 2/2 .*loss", shown(run)[-1])


@pytest.mark.parametrize("moment", ["on_start", "on_step"])
def test_the_terminal_is_given_back_when_the_run_fails(moment, monkeypatch):
    console = screen()
    monkeypatch.setattr(
        "deliralike.training.callbacks.progress.Console", lambda **_: console
    )
    for callbacks in (
        [ProgressBar(), Do(moment, fail)],
        [Do(moment, fail), ProgressBar()],
    ):
        with pytest.raises(Broken):
            trainer("torch", callbacks).fit(samples())
    assert (
        console._live_stack == []
        if hasattr(console, "_live_stack")
        else console._live is None
    )
    assert console.file.getvalue().count("\x1b[?25l") == console.file.getvalue().count(
        "\x1b[?25h"
    )


LONG = "mean_average_precision_at_intersection_over_union_of_one_half"


@pytest.mark.parametrize("width", [60, 80])
def test_long_names_of_metrics_do_not_break_the_line(width):
    metrics = {f"{LONG}_{letter}": scripted(0.123456, 0.2) for letter in "ab"}

    def run(progress):
        bar = ProgressBar("torch", progress=progress)
        trainer("torch", [bar], metrics=metrics).fit(samples(), samples(3), epochs=2)

    lines = shown(run, width)
    assert all(len(line) <= width and line.startswith("torch ") for line in lines)
    assert "2/2" in lines[-1]
    assert " loss 0." in lines[-1]


@pytest.mark.parametrize(("asked", "is_dumb"), [("", False), ("1", False), ("", True)])
def test_each_epoch_is_a_line_where_there_is_no_terminal_or_one_that_is_dumb(
    capsys, monkeypatch, asked, is_dumb
):
    """As in a job's log, where a service may ask for colours: no bar, and no line that wraps."""
    monkeypatch.setenv("FORCE_COLOR", asked)
    if is_dumb:
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    metrics = {
        LONG: scripted(0.25, 0.5),
        "second": scripted(1, 2),
        "third": scripted(3, 4),
    }
    callbacks = [ProgressBar("run"), EarlyStopping("second", patience=1)]
    history = trainer("torch", callbacks, metrics=metrics).fit(
        samples(), samples(3), epochs=9, batch_size=4
    )
    first, second, third = capsys.readouterr().out.splitlines()
    loss = f"{np.mean(history.losses[:2]):.4g}"
    assert re.fullmatch(
        rf"run: epoch 1/9, step 2, loss {loss}, \S+ steps/s, validation (loss \S+, )?{LONG} 0.25, "
        r"second 1, third 3(, loss \S+)?",
        first,
    )
    assert second.startswith("run: epoch 2/9, step 4, loss ")
    assert third == "run: stopped: second has not been better than 1 for 1 epoch"


def test_a_trainer_shows_nothing_of_itself(capsys):
    trainer("torch").fit(samples(), samples(3))
    assert capsys.readouterr() == ("", "")
