"""Verdicts: what a proof says from what its levels hold, and that it survives a file."""

import json
import math
import os
import re
from dataclasses import replace

import numpy as np
import pytest

from deliralike.conformance.findings import (
    FAILED,
    NOT_REACHED,
    PASSED,
    Explanation,
    Finding,
)
from deliralike.conformance.proof import Proof, Proofs
from deliralike.errors import DeliralikeError, ProofFailed, SettingError

from .proofs import EPS, diverging, level, proved, several, undecided


def proof(*levels):
    return Proof("A on torch", "A on jax", levels)


# The verdict
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "levels, verdict, code",
    [
        ([level("L0"), level("L1", worst=1e-15)], "proved", 0),
        ([level("L1", worst=0.0)], "proved", 0),
        ([level("L1", worst=1e-15), level("L4", NOT_REACHED)], "proved", 0),
        ([level("L1", worst=1e-15), level("L4", FAILED, 1e-3)], "diverges", 1),
        ([level("L0", FAILED), level("L1", NOT_REACHED)], "diverges", 1),
        ([level("L1", FAILED, math.nan)], "diverges", 1),
        (
            [
                level("L0"),
                level("L1", worst=1e-15),
                level("L4", NOT_REACHED),
                level("L7", FAILED),
            ],
            "diverges",
            1,
        ),
        ([level("L0"), level("L1", NOT_REACHED)], "undecided", 2),
        ([level("L0"), level("L4", worst=1e-15)], "undecided", 2),
        ([level("L1", PASSED, None)], "undecided", 2),
        ([level("L1", PASSED, math.nan)], "undecided", 2),
        ([level("L1", PASSED, math.inf)], "undecided", 2),
        ([], "undecided", 2),
    ],
)
def test_only_semantics_that_passed_prove_and_any_failure_diverges(
    levels, verdict, code
):
    found = proof(*levels)
    assert (found.verdict, found.exit_code) == (verdict, code)
    assert (found.proved, found.diverges) == (
        verdict == "proved",
        verdict == "diverges",
    )


def test_the_most_telling_findings_come_first():
    def found(name, status=FAILED, places=("a",)):
        return level(
            name,
            status,
            findings=tuple(Finding(name, place, "output", 1.0) for place in places),
        )

    levels = [
        found("L0", PASSED),
        found("L1", places=("x", "y")),
        found("L7"),
        found("L3", places=("c", "b")),
        found("L4"),
    ]
    findings = proof(*levels).findings
    assert [(finding.level, finding.place) for finding in findings] == [
        ("L3", "c"),
        ("L3", "b"),
        ("L1", "x"),
        ("L1", "y"),
        ("L4", "a"),
        ("L7", "a"),
        ("L0", "a"),
    ]


def test_null_gradients_of_all_levels_are_named_once():
    one, two = (
        level("L1", figures={"null": ["b", "a"]}),
        level("L4", figures={"null": ["a", "c"]}),
    )
    assert proof(one, two).null == ("b", "a", "c")


def test_a_check_is_silent_only_when_proved():
    proved().check()
    Proofs((proved(), proved())).check()
    for report in (diverging(), undecided(), several(), Proofs(())):
        with pytest.raises(AssertionError) as raised:
            report.check()
        assert isinstance(raised.value, ProofFailed)
        assert isinstance(raised.value, DeliralikeError)
        assert str(raised.value) == str(report)


@pytest.mark.parametrize(
    "proofs, verdict, code",
    [
        ((proved(), proved()), "proved", 0),
        ((proved(), undecided()), "undecided", 2),
        ((proved(), undecided(), diverging()), "diverges", 1),
        ((), "undecided", 2),
    ],
)
def test_several_are_proved_when_all_are_and_diverge_when_one_does(
    proofs, verdict, code
):
    found = Proofs(proofs)
    assert (found.verdict, found.exit_code, tuple(found), len(found)) == (
        verdict,
        code,
        proofs,
        len(proofs),
    )


# Sentences
# -----------------------------------------------------------------------------


def test_the_headline_says_place_size_cause_and_effect():
    assert diverging().headline == (
        "DIVERGES at bn1 (BatchNorm2d), forward, train: float64 9.0e-06 (limit 1e-10). Everything "
        "before it is exact. Explained by eps=2e-5 instead of 1e-5 (match 3e-15; next best 9e-6). "
        "Effect on evaluation outputs about 1e-5; not visible in 20 steps of the loss."
    )


def test_the_headline_of_a_proof_says_how_well_they_agree_and_what_was_left_out():
    assert proved().headline == (
        "PROVED: ResNet on torch and ResNet on jax are the same network for inputs of this size: "
        "outputs, loss, gradients and running statistics agree to 3.1e-15 in float64 (limit "
        "1e-10). Passed: L0, L1, L3, L4. Not reached: L7."
    )


@pytest.mark.parametrize(
    "found, sentence",
    [
        (
            proof(level("L0"), level("L1", worst=0.0)),
            "running statistics agree to the last bit in float64",
        ),
        (
            proof(
                level("L0"),
                level("L1", worst=0.0, figures={"gradients": [{"difference": 1e-17}]}),
            ),
            "running statistics agree to rounding in float64",
        ),
        (
            undecided(),
            "NOT PROVED: .* were not compared: The candidate has no float64. Passed: L0. Not "
            "reached: L1.$",
        ),
        (proof(level("L1", PASSED, math.nan)), "passed without a finite difference"),
        (
            proof(),
            "^NOT PROVED: A on torch and A on jax. Their semantics .L1. were not compared.$",
        ),
        (
            proof(level("L4", FAILED, 2e-3)),
            "^DIVERGES at L4, one step of the optimizer: 2.0e-03.$",
        ),
        (
            proof(level("L4", FAILED)),
            "^DIVERGES at L4, one step of the optimizer: failed.$",
        ),
        (
            several(),
            "^2 of 4 proved; diverges: ResNet on chainer; undecided: ResNet on tpu.$",
        ),
        (Proofs((proved(), proved())), "^2 of 2 proved.$"),
    ],
)
def test_headlines_of_other_cases(found, sentence):
    assert re.search(sentence, found.headline), found.headline


@pytest.mark.parametrize(
    "finding, sentence",
    [
        (
            replace(EPS, explanation=None, remarks=()),
            "bn1 (BatchNorm2d), forward, train: float64 9.0e-06 (limit 1e-10).",
        ),
        (
            Finding(
                "L0", "fc.weight", "shape", math.inf, remarks=("(3, 4) for (4, 3).",)
            ),
            "fc.weight, shape. (3, 4) for (4, 3).",
        ),
        (Finding("L1", "", "output", math.nan), "the network, output: not comparable."),
        (
            Finding("L1", "fc", "raises ValueError: no", math.inf, "Linear", "train"),
            "fc (Linear), raises ValueError: no, train.",
        ),
    ],
)
def test_findings_as_sentences(finding, sentence):
    assert str(finding) == sentence


@pytest.mark.parametrize(
    "explanation, sentence",
    [
        (Explanation("a", 0.0), "Explained by a (exact match)."),
        (
            Explanation("eps=1e-12", 2e-16, 1e-04),
            "Explained by eps=1e-12 (match 2e-16; next best 1e-4).",
        ),
        (Explanation("a", 2e-16, math.inf), "Explained by a (match 2e-16)."),
        (Explanation("a", 3e-3, 1.0), "Cause unknown; the nearest is a (off by 3e-3)."),
        (Explanation("", math.inf), "Cause unknown."),
    ],
)
def test_explanations_as_sentences(explanation, sentence):
    assert str(explanation) == sentence


# Files
# -----------------------------------------------------------------------------


def broken():
    """Numbers that are not finite in every place where one can be."""
    finding = Finding(
        "L1",
        "fc",
        "output",
        math.nan,
        limit=math.inf,
        explanation=Explanation("x", math.inf, math.nan),
    )
    rows = [
        {
            "path": "fc",
            "train": np.float32(np.inf),
            "eval": -math.inf,
            "forced": math.nan,
        }
    ]
    figures = {
        "by_layer": rows,
        "array": np.array([[1.0, np.nan]]),
        "count": np.int64(3),
        "yes": np.bool_(True),
    }
    return proof(level("L1", FAILED, math.nan, findings=(finding,), figures=figures))


def test_numbers_that_are_not_finite_are_texts_in_json(tmp_path):
    text = broken().save(tmp_path / "report.json").read_text(encoding="utf-8")
    values = json.loads(
        text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")
    )
    assert values == broken().to_dict()
    (read,) = values["levels"]
    (finding,) = read["findings"]
    assert (read["worst"], finding["difference"], finding["limit"]) == (
        "NaN",
        "NaN",
        "Infinity",
    )
    assert (finding["explanation"]["match"], finding["explanation"]["next_best"]) == (
        "Infinity",
        "NaN",
    )
    row = read["figures"]["by_layer"][0]
    assert row == {
        "path": "fc",
        "train": "Infinity",
        "eval": "-Infinity",
        "forced": "NaN",
    }
    assert read["figures"]["array"] == [[1.0, "NaN"]]
    assert (read["figures"]["count"], read["figures"]["yes"]) == (3, True)


def test_json_tells_programs_the_verdict_and_the_sentences():
    values = diverging().to_dict()
    assert (values["schema"], values["version"], values["verdict"]) == (
        "deliralike.proof",
        1,
        "diverges",
    )
    assert values["headline"] == diverging().headline
    accused = next(level for level in values["levels"] if level["name"] == "L3")[
        "findings"
    ][0]
    assert accused["text"] == str(EPS)
    assert accused["explanation"]["text"] == str(EPS.explanation)
    assert several().to_dict()["schema"] == "deliralike.proofs"


def test_what_json_cannot_hold_is_refused_by_name():
    with pytest.raises(SettingError, match="it got a set: {1}"):
        proof(level("L1", worst=0.0, figures={"odd": {1}})).to_dict()


@pytest.mark.parametrize(
    "suffix, start",
    [
        (".txt", "PROVED: "),
        (".md", "# "),
        (".json", "{\n"),
        (".html", "<!DOCTYPE html>"),
    ],
)
def test_the_ending_chooses_the_form(suffix, start, tmp_path):
    path = proved().save(str(tmp_path / f"report{suffix}"))
    assert path.read_text(encoding="utf-8").startswith(start)
    assert path.read_bytes().endswith(b"\n")


def test_another_ending_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(SettingError, match="wanted one of .txt, .md, .json, .html"):
        proved().save(tmp_path / "report.pdf")
    assert os.listdir(tmp_path) == []
