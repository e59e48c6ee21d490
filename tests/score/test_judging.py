"""The judge of the score, by what proofs might say, and the edits of all pairs by themselves."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deliralike.conformance.findings import FAILED, Explanation, Finding, Level
from deliralike.conformance.proof import Proof
from tests.score import __main__ as command
from tests.score import pool
from tests.score.case import Mistake, Right
from tests.score.judging import EQUAL, RAISED, Said, judge, said
from tests.score.pool import run_all
from tests.score.ports import BACKENDS, EditError, Task, edited, tasks
from tests.score.report import COLUMNS, Score, result

MISTAKE = Mistake(
    "epsilon",
    "jax",
    (("1e-5", "1e-6"),),
    ("bn1", "the input of fc"),
    ("eps", r"1e-0?6"),
    True,
)
RIGHT = Right("scanned", "jax")
FOUND = Said(
    "diverges",
    "DIVERGES at bn1",
    ("bn1",),
    "Explained by eps=1e-6 instead of 1e-5",
    True,
    True,
)
WHOLE = {"detected", "placed", "explained", "claimed", "effect_right"}


def judged(case=MISTAKE, **changes):
    """The names of what is true of a case of which this is said."""
    found = judge(case, replace(FOUND, **changes))
    return {name for name, value in vars(found).items() if value}


@pytest.mark.parametrize(
    ("changes", "true"),
    [
        ({}, WHOLE),
        ({"cause": "EPS of 1E-6"}, WHOLE),
        ({"places": ("conv1",)}, WHOLE - {"placed", "explained"} | {"false_exact"}),
        ({"cause": "Explained by eps"}, WHOLE - {"explained"} | {"false_exact"}),
        ({"cause": "", "claims": False}, {"detected", "placed", "effect_right"}),
        ({"verdict": "proved", "claims": False}, set()),
        ({"verdict": "undecided", "claims": False}, {"undecided"}),
        ({"verdict": RAISED}, {"raised"}),
        ({"verdict": EQUAL}, set()),
        ({"effect": None}, WHOLE - {"effect_right"}),
    ],
)
def test_a_mistake_is_judged_by_verdict_place_cause_and_effect(changes, true):
    assert judged(**changes) == true


@pytest.mark.parametrize(
    ("wanted", "found", "placed"),
    [
        (("",), ("the network",), True),
        (("", "the input of fc"), ("", "the input of fc"), True),
        (("", "the input of fc"), ("", "the input of conv"), False),
        (("", "the input of fc"), ("",), True),
        (("",), ("", "the input of conv"), True),
        (("block", "the input of fc"), ("block", "the input of block.fc"), True),
    ],
)
def test_between_layers_the_input_that_is_named_has_to_be_the_right_one(
    wanted, found, placed
):
    assert ("placed" in judged(replace(MISTAKE, places=wanted), places=found)) == placed


@pytest.mark.parametrize(
    ("changes", "true"),
    [
        ({"verdict": "proved", "claims": False}, {"proved"}),
        ({"verdict": "undecided", "claims": False}, {"undecided"}),
        ({"claims": False}, {"accused"}),
        ({}, {"accused", "claimed", "false_exact"}),
        ({"verdict": RAISED}, {"raised"}),
    ],
)
def test_a_right_port_is_proved_accused_or_undecided(changes, true):
    assert judged(RIGHT, **changes) == true


# Proofs
# -----------------------------------------------------------------------------


def proof(*findings):
    """A proof that diverges, with these findings of level L3."""
    return Proof("A", "B", (Level("L3", "place", FAILED, findings=findings),))


def finding(
    place="bn1",
    what="output",
    cause="eps=1e-06 instead of 1e-05",
    match=3e-15,
    **others,
):
    explanation = None if cause is None else Explanation(cause, match)
    return Finding("L3", place, what, 1e-5, explanation=explanation, **others)


def test_the_first_finding_alone_is_heard():
    found = said(proof(finding("conv1", cause=None), finding()))
    assert (found.places, found.cause, found.claims) == (("conv1",), "", False)
    assert found.headline.startswith("DIVERGES at conv1")
    assert found.failed == ("L3",)


def test_the_input_of_a_layer_is_a_place():
    assert said(proof(finding("", "the input of fc"))).places == ("", "the input of fc")


def test_what_structure_shows_is_a_cause_that_nobody_has_to_claim():
    shape = Finding("L0", "fc.weight", "shape (3, 4) instead of (4, 3)", 1.0)
    found = said(
        Proof("A", "B", (Level("L0", "structure", FAILED, findings=(shape,)),))
    )
    assert (found.cause, found.claims) == (
        "fc.weight: shape (3, 4) instead of (4, 3)",
        False,
    )
    assert found.places == ("fc.weight", "fc")


# Edits
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "count"), [("epsilon=2e-5", 0), ("nnx.GroupNorm", 2)])
def test_an_edit_has_to_fit_once(old, count):
    wrong = Task("u-net", replace(MISTAKE, edits=((old, "x"),)))
    with pytest.raises(
        EditError, match=f"jax/u-net: epsilon: wanted once, found {count} times"
    ):
        edited(wrong)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_mistake_by_hand_fits_its_port_and_gives_another_source(backend):
    cases = list(tasks(backend))
    right = {task.port: edited(task) for task in cases if isinstance(task.case, Right)}
    assert len({task.name for task in cases}) == len(cases)
    for task in cases:
        source = edited(task)
        compile(source, task.name, "exec")
        if isinstance(task.case, Mistake):
            assert source != right[task.port]
            assert task.case.places and task.case.cause, task.name


# The whole
# -----------------------------------------------------------------------------


def test_a_case_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(
        pool, "_PATIENCE", 0.0
    )  # no case ends before it is first looked at
    monkeypatch.setattr(pool, "_PRELOADED", ())
    task = SimpleNamespace(case=RIGHT, module="json")
    ((_, case, found),) = run_all([task], workers=1, limit=0.0)
    assert (case, found.verdict, found.headline) == (
        task.case,
        RAISED,
        "stopped after 0 s",
    )


def case(port, given, found):
    given = replace(given, port=port)
    return result(Task("net", given), given, found)


GOOD = (
    case("a", MISTAKE, replace(FOUND, failed=("L1", "L3"))),
    case("a", RIGHT, Said("proved")),
)


def score():
    unknown = Said("diverges", "DIVERGES at conv1", ("conv1",), failed=("L4",))
    accused = case("b", RIGHT, replace(FOUND, headline="DIVERGES at bn1 | or so"))
    raised = case("b", replace(RIGHT, name="fused"), Said(RAISED, "ValueError: no"))
    equal = case("b", replace(MISTAKE, name="none"), Said(EQUAL))
    return Score([*GOOD, case("b", MISTAKE, unknown), accused, raised, equal], 12.0)


def test_a_score_counts_by_kind_and_in_all():
    assert COLUMNS[1:5] == ("mistakes", "detected", "placed", "explained")
    assert score().rows() == [
        ["by hand, a", "1", "1", "1", "1", "0", "1", "1", "0", "0", "0"],
        ["by hand, b", "1", "1", "0", "0", "1", "2", "0", "1", "0", "1"],
        ["all", "2", "2", "1", "1", "1", "3", "1", "1", "0", "1"],
    ]


@pytest.mark.parametrize(
    ("times", "given", "found", "passed"),
    [
        (9, MISTAKE, replace(FOUND, claims=False, cause=""), True),
        (5, MISTAKE, replace(FOUND, claims=False, cause=""), False),
        (99, RIGHT, replace(FOUND, claims=False), False),
        (99, RIGHT, Said(RAISED), False),
        (99, MISTAKE, replace(FOUND, cause="momentum"), False),
        (99, MISTAKE, Said("proved"), False),
    ],
)
def test_a_score_passes_where_its_goals_are_reached(times, given, found, passed):
    assert Score([*GOOD * times, case("b", given, found)], 1.0).passed == passed


def test_a_report_lists_every_miss_with_what_was_printed():
    text = score().markdown()
    assert (
        "- b/net: epsilon: wrong place, not explained, wrong effect. `DIVERGES at conv1`"
        in text
    )
    assert "- b/net: scanned: FALSE EXACT, ACCUSED. `DIVERGES at bn1 | or so`" in text
    assert "- b/net: fused: raised. `ValueError: no`" in text
    assert "1 mutants change nothing" in text
    assert "a/net" not in text
    assert json.loads(json.dumps(score().to_dict()))["counts"]["accused"] == 1


# Commands
# -----------------------------------------------------------------------------


def test_a_case_that_is_not_there_is_an_error(capsys):
    assert command.main(["--only", "nothing of this name"]) == 2
