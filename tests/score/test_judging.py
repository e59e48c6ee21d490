"""The judge of the score, by what proofs might say, and the edits of all pairs by themselves."""

import json
from dataclasses import replace

import pytest

from deliralike.conformance.findings import FAILED, Explanation, Finding, Level
from deliralike.conformance.proof import Proof
from tests.score import __main__ as command
from tests.score import pool, sources
from tests.score.case import Mistake, Right
from tests.score.judging import RAISED, Said, judge, said
from tests.score.pool import run_all
from tests.score.report import COLUMNS, Score, result
from tests.score.sources import EditError, Task, edited, pairs, tasks

MISTAKE = Mistake(
    "epsilon", "jax", (("1e-5", "1e-6"),), ("bn1", "the input of fc"), ("eps", r"1e-0?6"), True
)
FOUND = Said(
    "diverges", "DIVERGES at bn1", ("bn1",), "Explained by eps=1e-6 instead of 1e-5", True, True
)


def judged(case=MISTAKE, **changes):
    """The names of what is true of a case of which this is said."""
    found = judge(case, replace(FOUND, **changes))
    return {name for name, value in vars(found).items() if value}


# Mistakes
# -----------------------------------------------------------------------------


def test_a_mistake_at_its_place_with_its_number_and_effect_is_found_whole():
    assert judged() == {"detected", "placed", "explained", "claimed", "effect_right"}


def test_a_known_cause_at_the_wrong_place_is_a_false_exact():
    assert judged(places=("conv1",)) == {"detected", "claimed", "effect_right", "false_exact"}


@pytest.mark.parametrize("cause", ["Explained by eps", "Explained by momentum=1e-6", ""])
def test_a_known_cause_without_the_setting_and_its_number_is_a_false_exact(cause):
    assert judged(cause=cause) == {"detected", "placed", "claimed", "effect_right", "false_exact"}


def test_a_cause_that_is_called_unknown_explains_nothing_and_is_no_false_exact():
    assert judged(cause="", claims=False) == {"detected", "placed", "effect_right"}


def test_regular_expressions_do_not_mind_capital_letters():
    assert "explained" in judged(cause="EPS of 1E-6")


def test_what_is_not_accused_is_not_detected_and_has_no_place():
    assert judged(verdict="proved", claims=False, cause="") == set()
    assert judged(verdict="undecided", claims=False, cause="") == {"undecided"}


def test_an_error_is_no_detection():
    assert judged(verdict=RAISED) == {"raised"}


def test_an_effect_on_outputs_is_to_be_said():
    assert "effect_right" not in judged(effect=None)
    assert "effect_right" not in judged(effect=False)
    none = replace(MISTAKE, effect=False)
    assert "effect_right" in judged(none, effect=False)
    assert "effect_right" in judged(none, effect=None)
    assert "effect_right" not in judged(replace(MISTAKE, effect=None))


def test_the_network_itself_is_a_place_by_either_name():
    assert "placed" in judged(replace(MISTAKE, places=("",)), places=("the network",))
    assert "placed" in judged(replace(MISTAKE, places=("the network",)), places=("",))
    assert "placed" not in judged(places=("",))


def test_the_input_of_another_layer_is_another_place():
    between = replace(MISTAKE, places=("", "the input of fc"))
    assert "placed" in judged(between, places=("", "the input of fc"))
    assert "placed" not in judged(between, places=("", "the input of conv"))
    assert "placed" in judged(between, places=("",))
    assert "placed" in judged(replace(MISTAKE, places=("",)), places=("", "the input of conv"))
    block = replace(MISTAKE, places=("block", "the input of fc"))
    assert "placed" in judged(block, places=("block", "the input of block.fc"))


# Right variants
# -----------------------------------------------------------------------------


def test_a_right_port_is_proved_accused_or_undecided():
    right = Right("scanned", "jax")
    allowed = replace(right, undecided="two layers of one shape")
    nothing = {"claims": False, "cause": ""}
    assert judged(right, verdict="proved", **nothing) == {"proved"}
    assert judged(right, verdict="undecided", **nothing) == {"undecided"}
    assert judged(allowed, verdict="undecided", **nothing) == {"undecided", "expected"}
    assert judged(allowed, verdict="proved", **nothing) == {"proved"}
    assert judged(right, verdict=RAISED, **nothing) == {"raised"}


def test_a_cause_that_is_claimed_of_a_right_port_is_a_false_exact():
    right = Right("scanned", "jax", undecided="allowed")
    assert judged(right) == {"accused", "claimed", "false_exact"}
    assert judged(right, claims=False, cause="") == {"accused"}


# Proofs
# -----------------------------------------------------------------------------


def proof(*findings):
    """A proof that diverges, with these findings of level L3."""
    return Proof("A", "B", (Level("L3", "place", FAILED, findings=findings),))


def finding(place="bn1", what="output", cause="eps=1e-06 instead of 1e-05", match=3e-15, **others):
    explanation = None if cause is None else Explanation(cause, match)
    return Finding("L3", place, what, 1e-5, explanation=explanation, **others)


def test_the_first_finding_alone_is_heard():
    found = said(proof(finding("conv1", cause=None), finding()))
    assert (found.places, found.cause, found.claims) == (("conv1",), "", False)
    assert found.headline.startswith("DIVERGES at conv1")


def test_the_match_is_no_part_of_the_cause():
    """Else its number could pass for that of the setting."""
    found = said(proof(finding(cause="eps is another (a guess)", match=1e-11)))
    assert found.cause == "Explained by eps is another (a guess)"
    assert found.claims


def test_the_nearest_cause_of_one_that_is_unknown_is_not_heard():
    found = said(proof(finding(match=1e-3)))
    assert (found.cause, found.claims) == ("", False)


def test_the_input_of_a_layer_is_a_place():
    assert said(proof(finding("", "the input of fc"))).places == ("", "the input of fc")


def test_what_structure_shows_is_a_cause_that_nobody_has_to_claim():
    shape = Finding("L0", "fc.weight", "shape (3, 4) instead of (4, 3)", 1.0)
    found = said(Proof("A", "B", (Level("L0", "structure", FAILED, findings=(shape,)),)))
    assert (found.cause, found.claims) == ("shape (3, 4) instead of (4, 3)", False)


@pytest.mark.parametrize(
    ("remark", "effect"),
    [
        ("Effect on evaluation outputs about 1e-5.", True),
        ("No effect on evaluation outputs.", False),
        ("Everything before it is exact.", None),
    ],
)
def test_the_effect_is_read_from_the_remarks(remark, effect):
    assert said(proof(finding(remarks=(remark,)))).effect is effect


# Edits
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "count"), [("epsilon=2e-5", 0), ("nnx.Linear", 2)])
def test_an_edit_has_to_fit_once(old, count):
    wrong = Task("mlp", replace(MISTAKE, edits=((old, "x"),)))
    with pytest.raises(EditError, match=f"mlp/jax/epsilon: wanted once, found {count} times"):
        edited(wrong)


def test_edits_follow_each_other():
    case = replace(MISTAKE, edits=(("nnx.tanh", "nnx.relu"), ("nnx.relu", "nnx.gelu")))
    source = edited(Task("mlp", case))
    assert "nnx.gelu(self.ln" in source
    assert "nnx.tanh" not in source


@pytest.mark.parametrize("pair", pairs())
def test_every_edit_of_a_pair_fits_and_gives_another_source(pair):
    cases = list(tasks(pair))
    names = [task.name for task in cases]
    assert len(set(names)) == len(names)
    for task in cases:
        source = edited(task)
        compile(source, task.name, "exec")
        original = edited(replace(task, case=replace(task.case, edits=())))
        assert (source != original) == bool(task.case.edits), task.name


@pytest.mark.parametrize("pair", pairs())
def test_every_mistake_says_where_and_what_it_is(pair):
    for task in tasks(pair):
        if task.is_mistake:
            assert task.case.places and task.case.cause and task.case.edits, task.name
        assert task.case.port in sources.PORTS


# The whole
# -----------------------------------------------------------------------------


def test_a_small_pair_goes_through_the_real_thing():
    """In processes of their own; a mistake and a right variant on one port."""
    chosen = [task for task in tasks("mlp") if task.case.port == "chainer"]
    chosen = [task for task in chosen if task.case.name in ("sigmoid", "as it is")]
    found = {task.name: said for task, said in run_all(chosen, workers=1)}
    assert {name: said.verdict for name, said in found.items()} == {
        "mlp/chainer/sigmoid": "diverges",
        "mlp/chainer/right: as it is": "proved",
    }
    mistake = result(chosen[0], found["mlp/chainer/sigmoid"])
    assert mistake.misses == []


def test_a_case_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(pool, "_PATIENCE", 0.0)  # no case ends before it is first looked at
    (task,) = [task for task in tasks("mlp") if task.name == "mlp/chainer/right: as it is"]
    ((_, found),) = run_all([task], workers=1, limit=0.0)
    assert (found.verdict, found.headline) == (RAISED, "stopped after 0 s")


def score():
    right = Right("scanned", "jax")
    unknown = Said("diverges", "DIVERGES at conv1", ("conv1",))
    cases = [
        (Task("a", MISTAKE), FOUND),
        (Task("b", MISTAKE), unknown),
        (Task("a", right), Said("proved", "PROVED")),
        (Task("b", right), replace(FOUND, headline="DIVERGES at bn1 | or so")),
        (Task("b", replace(right, name="fused")), Said(RAISED, "ValueError: no")),
    ]
    return Score([result(*each) for each in cases], 12.0)


def test_a_score_counts_by_pair_and_in_all():
    assert COLUMNS[1:5] == ("mistakes", "detected", "placed", "explained")
    assert score().rows() == [
        ["a", "1", "1", "1", "1", "1 of 1", "0", "1", "1", "0", "0", "0"],
        ["b", "1", "1", "0", "0", "0 of 1", "1", "2", "0", "1", "0", "1"],
        ["all", "2", "2", "1", "1", "1 of 2", "1", "3", "1", "1", "0", "1"],
    ]


def test_a_score_gives_precision_beside_recall():
    found = {name: (part, whole) for name, part, whole in score().shares()}
    assert found["mistakes detected"] == (2, 2)
    assert found["accusations that are right"] == (2, 3)
    assert found["accused places that are right"] == (1, 3)
    assert found["causes claimed as exact that are right"] == (1, 2)


def good(times):
    """A mistake that is found whole and a right port that is proved, so many times."""
    return [one for one in score().results if one.task.pair == "a"] * times


def test_a_score_passes_where_its_goals_are_reached():
    assert Score(good(1), 1.0).passed
    unexplained = result(Task("b", MISTAKE), replace(FOUND, claims=False, cause=""))
    assert Score([*good(9), unexplained], 1.0).passed
    assert not Score([*good(5), unexplained], 1.0).passed


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (Right("scanned", "jax"), replace(FOUND, claims=False)),
        (Right("scanned", "jax"), Said(RAISED)),
        (MISTAKE, replace(FOUND, cause="momentum")),
        (MISTAKE, Said("proved")),
    ],
    ids=["accused", "raised", "false exact", "not detected"],
)
def test_one_case_of_a_hundred_is_enough_to_miss_the_goals(case, found):
    assert not Score([*good(99), result(Task("b", case), found)], 1.0).passed


def test_a_report_lists_every_miss_with_what_was_printed():
    text = score().markdown()
    assert "- b/jax/epsilon: wrong place, not explained, wrong effect. `DIVERGES at conv1`" in text
    assert "- b/jax/right: scanned: ACCUSED. `DIVERGES at bn1 | or so`" in text
    assert "- b/jax/right: fused: raised. `ValueError: no`" in text
    assert "a/jax" not in text
    assert json.loads(json.dumps(score().to_dict()))["counts"]["accused"] == 1


# Commands
# -----------------------------------------------------------------------------


def test_a_pair_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--pair", "nowhere"])
    assert "there is no pair 'nowhere'; there are" in capsys.readouterr().err


def test_a_case_that_is_not_there_is_an_error(capsys):
    assert command.main(["--only", "nothing of this name"]) == 2


def test_an_edit_that_does_not_fit_stops_the_score_before_it_begins(monkeypatch, capsys):
    wrong = Task("mlp", replace(MISTAKE, edits=(("nowhere", "x"),)))
    monkeypatch.setattr(command, "tasks", lambda pair: [wrong])
    assert command.main(["--pair", "mlp"]) == 2
    assert "wanted once, found 0 times: 'nowhere'" in capsys.readouterr().err
