"""How a run tells its callbacks: errors with a name, the end for everyone, writers in the main
process only."""

import pytest

from deliralike.training import Callback, Writer
from tests.training.small_runs import Broken, Do, fail, samples, trainer


class Note(Callback):
    """Writes down which moments it is told."""

    def __init__(self):
        self.told = []

    def on_start(self, run):
        self.told.append("start")

    def on_step(self, run, step):
        self.told.append("step")

    def on_epoch(self, run, epoch):
        self.told.append("epoch")

    def on_end(self, run):
        self.told.append("end")


class NoteOnce(Note, Writer):
    """The same, as a writer."""


@pytest.mark.parametrize("moment", ["on_start", "on_step", "on_epoch", "on_end"])
def test_an_error_of_a_callback_names_it_and_the_moment(moment):
    with pytest.raises(Broken) as caught:
        trainer("torch", [Do(moment, fail)]).fit(samples())
    assert caught.value.__notes__[0] == f"in {moment} of the callback Do"


@pytest.mark.parametrize("moment", ["on_start", "on_step", "on_epoch", "on_end"])
def test_the_others_are_told_of_the_end_all_the_same(moment):
    before, after = Note(), Note()
    with pytest.raises(Broken):
        trainer("torch", [before, Do(moment, fail), after]).fit(samples())
    assert (before.told[-1], after.told[-1]) == ("end", "end")
    assert before.told.count("end") == 1


def test_two_errors_at_the_end_are_both_shown():
    with pytest.raises(Broken) as caught:
        trainer("torch", [Do("on_end", fail), Do("on_end", fail)]).fit(samples())
    assert isinstance(caught.value.__context__, Broken)


def test_an_error_at_the_end_does_not_hide_the_one_that_ended_the_run():
    def full(run):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full") as caught:
        trainer("torch", [Do("on_step", fail), Do("on_end", full)]).fit(samples())
    assert isinstance(caught.value.__context__, Broken)


def test_the_end_comes_in_the_same_order_as_the_other_moments():
    order = []
    each = [
        Do("on_end", lambda run, number=number: order.append(number))
        for number in range(3)
    ]
    trainer("torch", each).fit(samples())
    assert order == [0, 1, 2]


@pytest.mark.parametrize(
    ("main", "told"), [(True, ["start", "step", "epoch", "end"]), (False, [])]
)
def test_a_writer_is_told_in_the_main_process_only(main, told):
    everywhere, once = Note(), NoteOnce()
    each = trainer("torch", [everywhere, once])
    each.processes.rank = 0 if main else 1
    each.fit(samples())
    assert everywhere.told == ["start", "step", "epoch", "end"]
    assert once.told == told
