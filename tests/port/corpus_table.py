"""The page of ported classes: ``python -m tests.port.corpus_table RESULTS... --page PAGE``.

The results are lines of JSON that ``python -m tests.port.corpus`` has written; of a class that is
there twice the last one counts. Classes that are not among them keep their row of the page, which
names the commit that it was run at.
"""

import argparse
import collections
import datetime
import json
import re
from pathlib import Path

from tests.port.corpus import entries

BACKENDS = {"torch": "PyTorch", "chainer": "Chainer", "jax": "JAX"}
COLUMNS = (
    *("class", "lines", "changed", *BACKENDS.values()),
    *("seconds", "commit", "what stood in the way"),
)
NOT_PROVED, LATE = "not proved", "more than the time limit"
LONGEST = 140  # of a reason
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def titles():
    """What each class of the corpus is called in the table, by its label and arguments."""
    found = [(label, arguments) for label, _, arguments, _ in entries()]
    labels = collections.Counter(label for label, _ in found)
    several = {label for label, count in labels.items() if count > 1}
    return {
        (label, arguments): f"{label} {arguments.partition(',')[0]}"
        if label in several
        else label
        for label, arguments in found
    }


def cells(title, result):
    """The row of the table for a line of the results, by column."""
    row = dict.fromkeys(COLUMNS, "") | {"class": title, "commit": result["commit"]}
    row["what stood in the way"] = reason(result)
    if "error" in result:
        return row
    row |= {"lines": str(result["lines"]), "changed": str(result["changed"])}
    row |= {column: outcome(result, name) for name, column in BACKENDS.items()}
    proofs = [result[name][1] for name in BACKENDS if name in result]
    return row | {"seconds": f"{result['port'] + sum(proofs):.0f}"}


def outcome(result, backend):
    """ "proved" with the largest difference, or why not."""
    if backend not in result:
        return LATE
    headline, _ = result[backend]
    if not headline.startswith("PROVED"):
        return NOT_PROVED
    found = re.search(r"agree to (\S+(?: last bit)?)", headline)
    difference = found.group(1) if found else "?"
    return "to the last bit" if difference.startswith("the") else difference


def reason(result):
    """Why a class is not proved everywhere, in the words of the port or the proof."""
    if "error" in result:
        return short(result["error"])
    if result["hands"]:
        return short(re.sub(r"^.*/site-packages/", "", result["hands"][0]))
    for backend in BACKENDS:
        headline = result[backend][0] if backend in result else ""
        if headline and not headline.startswith("PROVED"):
            return short(f"{BACKENDS[backend]}: {headline}")
    return ""


def short(text):
    text = " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def rows_of(page):
    """The rows of the table that a page has, by column."""
    lines = [line[2:-2].split(" | ") for line in page.splitlines() if line[:2] == "| "]
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines if len(line) == 9]
    return {row["class"]: row for row in rows if row["class"] != "class"}


def is_proved(row, column):
    return row[column] not in ("", NOT_PROVED, LATE)


def is_untouched(row):
    """Whether nothing needed a hand: what stood in the way, if anything, is of a proof."""
    why = row["what stood in the way"]
    is_of_a_proof = why.partition(":")[0] in ("", *BACKENDS.values())
    return bool(row["lines"]) and is_of_a_proof


def table(rows, count):
    """The counts, and a row for each class."""
    yield f"{len(rows)} of {count} classes, written on {datetime.date.today()}:"
    yield ""
    yield (
        "| from | classes | ported without a touch | "
        + " | ".join(f"proved on {title}" for title in BACKENDS.values())
        + " |"
    )
    yield "|---" * (3 + len(BACKENDS)) + "|"
    packages = list(dict.fromkeys(row["class"].partition(" ")[0] for row in rows))
    for package in [*packages, "all"]:
        some = [
            row for row in rows if package in ("all", row["class"].partition(" ")[0])
        ]
        counts = [sum(map(is_untouched, some))]
        counts += [
            sum(is_proved(row, column) for row in some) for column in BACKENDS.values()
        ]
        figures = [f"{found} ({found / len(some):.0%})" for found in counts]
        yield f"| {package} | {len(some)} | " + " | ".join(figures) + " |"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for row in rows:
        yield f"| {' | '.join(row.values())} |"


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.port.corpus_table", description=__doc__
    )
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument(
        "--page", type=Path, default=Path("docs/reference/ported_classes.md")
    )
    given = parser.parse_args()
    known = titles()
    before, _, rest = given.page.read_text().partition(BEGIN)
    page, _, after = rest.partition(END)
    rows = rows_of(page)
    for path in given.results:
        for line in path.read_text().splitlines():
            result = json.loads(line)
            title = known.get((result["label"], result["arguments"]))
            if title is not None:
                rows[title] = cells(title, result)
    found = [rows[title] for title in known.values() if title in rows]
    lines = "\n".join(table(found, len(known)))
    given.page.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}")


if __name__ == "__main__":
    main()
