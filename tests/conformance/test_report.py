"""Reports: what a reader sees of a proof, in each form."""

import functools
import math
import re
from html.parser import HTMLParser

import pytest

from deliralike.conformance.findings import FAILED, Explanation, Finding
from deliralike.conformance.ladder import TITLES
from deliralike.conformance.proof import Proof, Proofs
from deliralike.conformance.report import content, html

from .proofs import diverging, level, proved, several, undecided

REPORTS = {
    "proved": proved(),
    "diverging": diverging(),
    "undecided": undecided(),
    "several": several(),
}
every_report = pytest.mark.parametrize("name", REPORTS)


@functools.lru_cache
def page_of(name):
    """Drawn once for all tests."""
    return html.page(REPORTS[name])


def with_layers(rows):
    return Proof(
        "A", "B", (level("L1", worst=0.0), level("L3", figures={"by_layer": rows}))
    )


def hostile():
    """Names with all that has a meaning in one of the forms."""
    name = "<script>alert(1)</script> & a|b [bold]x[/bold] `c` *d*"
    finding = Finding("L1", name, f"{name}\nsecond line", 1.0)
    return Proof(
        name,
        name,
        (level("L1", FAILED, 1.0, findings=(finding, finding), notes=(name,)),),
    )


# Text
# -----------------------------------------------------------------------------


@every_report
def test_text_is_plain_and_says_the_headline_in_one_line(name):
    report = REPORTS[name]
    text = str(report)
    lines = text.splitlines()
    assert lines[0] == report.headline
    assert name == "several" or lines[-1] == report.headline
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_columns_of_text_are_aligned():
    lines = str(diverging()).splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("level "))
    starts = {
        name: lines[head].index(name)
        for name in ("level", "what", "result", "difference", "remark")
    }
    rows = lines[head + 1 : head + 6]
    assert [row[: starts["what"]].strip() for row in rows] == [
        "L0",
        "L1",
        "L3",
        "L4",
        "L7",
    ]
    cut = [
        [row[start:].split("  ")[0].rstrip() for start in starts.values()]
        for row in rows
    ]
    assert cut[1] == ["L1", "semantics in float64", "failed", "1.1e-05", ""]
    assert cut[4] == ["L7", "other sizes of input", "not needed", "", "L1 failed."]


def test_text_of_several_is_a_matrix_of_levels():
    lines = str(several()).splitlines()
    head = next(index for index, line in enumerate(lines) if " L0 " in line)
    levels = ["L0", "L1", "L3", "L4", "L7"]
    assert lines[head].split() == [*levels, "agree", "to", "verdict"]
    wrong = lines[head + 2]
    place = {
        name: wrong[lines[head].index(name) :][: 2 if name != "agree" else 9].strip()
        for name in ("L0", "L1", "L7", "agree")
    }
    assert place == {"L0": "✓", "L1": "✗", "L7": "–", "agree": "1.1e-05"}
    assert wrong.endswith("diverges")
    assert "ResNet on chainer: DIVERGES at bn1" in lines[-2]


def test_of_many_findings_the_text_shows_some_and_counts_the_rest():
    findings = tuple(
        Finding("L1", f"parameter {index}", "gradient", 1.0) for index in range(50)
    )
    text = str(Proof("A", "B", (level("L1", FAILED, 1.0, findings=findings),)))
    assert (
        "DIVERGES at parameter 0," in text
        and "parameter 20," in text
        and "parameter 21," not in text
    )
    assert "and 29 more" in text


def test_references_that_differ_are_named_in_the_matrix():
    found = str(Proofs((proved(), proved(reference="MLP on torch"))))
    assert (
        "ResNet on torch, ResNet on jax" in found
        and "MLP on torch, ResNet on jax" in found
    )


def test_null_gradients_and_reasons_are_reported():
    text = str(proved())
    assert (
        "Gradients that are zero but for rounding, not compared: fc.0.bias, conv1.bias."
        in text
    )
    assert (
        text.count("No other size is taken.") == 1
    )  # beside its level, and not again below


def test_details_stand_below_the_headline_and_the_effect_ends_it():
    explanation = Explanation("eps=2e-05 instead of 1e-05", 3e-15)
    finding = Finding(
        "L3",
        "bn1",
        "output",
        1e-5,
        explanation=explanation,
        remarks=("Everything before it is exact.",),
        details=("Only the candidate calls fc.",),
        effect="No effect on evaluation outputs.",
    )
    proof = Proof("A", "B", (level("L3", FAILED, 1e-5, findings=(finding,)),))
    assert proof.headline == (
        "DIVERGES at bn1, output: float64 1.0e-05 (limit 1e-10). Everything before it is exact. "
        "Explained by eps=2e-5 instead of 1e-5 (match 3e-15). No effect on evaluation outputs."
    )
    assert "L3: bn1, output: Only the candidate calls fc." in str(proof)


def test_only_names_that_differ_are_shown_after_the_levels():
    text = str(proved(match="fc.weight  head.kernel"))
    assert text.index("fc.weight  head.kernel") > text.index("L7 ")
    assert "Names" not in str(proved(match=""))


# Markdown
# -----------------------------------------------------------------------------


def test_markdown_holds_the_text_as_it_is(tmp_path):
    page = hostile().save(tmp_path / "one.md").read_text(encoding="utf-8")
    assert page == f"# What was compared\n\n````text\n{hostile()}\n````\n"
    page = several().save(tmp_path / "several.md").read_text(encoding="utf-8")
    assert page.count("````text\n") == 1 + len(several())


# HTML
# -----------------------------------------------------------------------------

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Elements of a page, refused where they do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, name):
        return [attributes for tag, attributes in self.elements if tag == name]


@every_report
def test_a_page_is_whole_and_needs_nothing_from_elsewhere(name):
    text = page_of(name)
    page = Page(text)
    used = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "srcset", "data", "action")
    ]
    assert all(value.startswith("#") for value in used)
    assert not set(re.findall(r"url\((?!#)", text)) and "@import" not in text
    assert not [
        tag
        for tag, _ in page.elements
        if tag in ("script", "link", "img", "iframe", "object")
    ]
    assert REPORTS[name].headline in "".join(page.texts)


@every_report
def test_names_within_a_page_are_used_once_and_all_references_lead_somewhere(name):
    text = page_of(name)
    names = [
        attributes["id"] for _, attributes in Page(text).elements if "id" in attributes
    ]
    assert len(set(names)) == len(names)
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)) <= {
        (name, "") for name in names
    } | {("", name) for name in names}


def test_names_are_shown_as_they_are_in_a_page():
    page = Page(html.page(hostile()))
    assert "<script>alert(1)</script> & a|b [bold]x[/bold] `c` *d*" in "".join(
        page.texts
    )
    assert page.all("script") == []


def test_a_notebook_gets_one_element_with_a_style_of_its_own():
    shown = diverging()._repr_html_()
    assert shown.startswith('<div class="proof-report">') and shown.endswith("</div>")
    rules = re.findall(r"^([^@\s{}][^{}]*)\{", Page(shown).texts[1], flags=re.M)
    assert len(rules) > 10
    assert all(rule.startswith(".proof-report") for rule in rules)


def rows_of(page, title):
    """The cells of the table below a heading, each with its class."""
    table = re.search(rf"<h2>{title}</h2>.*?<tbody>(.*?)</tbody>", page)[1]
    cells = r'<t[hd](?: class="(\w*)")?>(.*?)</t[hd]>'
    return [re.findall(cells, row) for row in re.findall("<tr>(.*?)</tr>", table)]


def test_layers_that_l3_accuses_are_accused_in_the_table_of_another_level():
    layers = [
        {"path": "conv1", "kind": "Conv2d", "train": 0.0},
        {"path": "bn1", "kind": "BatchNorm2d", "train": 9e-6},
    ]
    levels = (
        level("L1", FAILED, 9e-6, figures={"by_layer": layers}),
        diverging().level("L3"),
    )
    page = html.page(
        Proof("A", "B", (levels[0], level("L3", FAILED, findings=levels[1].findings)))
    )
    right, wrong = rows_of(page, "Differences by layer, L1")
    assert [text for _, text in wrong] == [
        "bn1 (BatchNorm2d)",
        "9.0e-06",
        "",
        "9.0e-06",
        "failed",
    ]
    assert wrong[-1][0] == "bad" and right[-1] == ("good", "passed")


def test_differences_that_are_not_finite_fail():
    values = [0.0, 1e-11, 1e-9, math.inf, math.nan]
    rows = [{"path": str(value), "train": value} for value in values]
    found = rows_of(html.page(with_layers(rows)), "Differences by layer, L3")
    assert [row[-1][1] for row in found] == ["passed"] * 2 + ["failed"] * 3


def test_a_title_begins_with_the_verdict_and_the_place():
    title = re.search("<title>(.*)</title>", html.page(diverging()))[1]
    assert title.startswith("DIVERGES at bn1 (BatchNorm2d), forward, train: float64")
    assert len(title) <= 80


def test_each_level_is_explained_and_says_why_it_was_left_out():
    page = page_of("diverging")
    words = "One update of each optimizer, from equal parameters and gradients."
    assert words in page and "L1 failed." in page
    assert content.EXPLAINED.keys() == TITLES.keys()


def test_a_table_of_names_keeps_its_columns():
    assert "<pre>a  b\nc  d</pre>" in html.page(proved(match="a  b\nc  d"))
