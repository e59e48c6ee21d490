"""The page of ported classes: ``python -m tests.port.corpus_table RESULTS... --page PAGE``.

The results are lines of JSON that ``python -m tests.port.corpus`` has written; of a class that is
there twice with the same arguments the last one counts.
"""

import argparse
import collections
import datetime
import json
import re
from pathlib import Path

BACKENDS = {"torch": "PyTorch", "chainer": "Chainer", "jax": "JAX"}
LONGEST = 140  # of a reason
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def outcome(row, backend):
    """ "proved" with the largest difference, or why not; empty where it was not tried."""
    if "error" in row:
        return ""
    if backend not in row:
        return "more than the time limit"
    headline, _ = row[backend]
    if not headline.startswith("PROVED"):
        return "not proved"
    found = re.search(r"agree to (\S+(?: last bit)?)", headline)
    difference = found.group(1) if found else "?"
    return "to the last bit" if difference.startswith("the") else difference


def reason(row):
    """Why a class is not proved everywhere, in the words of the port or the proof."""
    if "error" in row:
        return short(row["error"])
    if row["hands"]:
        return short(re.sub(r"^.*/site-packages/", "", row["hands"][0]))
    for backend in BACKENDS:
        headline = row[backend][0] if backend in row else ""
        if headline and not headline.startswith("PROVED"):
            return short(f"{BACKENDS[backend]}: {headline}")
    return ""


def short(text):
    text = " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def is_proved(row, backend):
    return "error" not in row and str(row.get(backend, ("",))[0]).startswith("PROVED")


def seconds(row):
    total = row.get("port", 0.0) + sum(row[each][1] for each in BACKENDS if each in row)
    return f"{total:.0f}" if "port" in row else ""


def table(rows):
    """The counts, and a row for each class."""
    yield f"{len(rows)} classes, tried on {datetime.date.today()}:"
    yield ""
    yield (
        "| from | classes | ported without a touch | "
        + " | ".join(f"proved on {title}" for title in BACKENDS.values())
        + " |"
    )
    yield "|---" * (3 + len(BACKENDS)) + "|"
    packages = list(dict.fromkeys(row["label"].partition(" ")[0] for row in rows))
    for package in [*packages, "all"]:
        some = [
            row for row in rows if package in ("all", row["label"].partition(" ")[0])
        ]
        untouched = sum("error" not in row and not row["hands"] for row in some)
        counts = [sum(is_proved(row, backend) for row in some) for backend in BACKENDS]
        figures = [
            f"{count} ({count / len(some):.0%})" for count in [untouched, *counts]
        ]
        yield f"| {package} | {len(some)} | " + " | ".join(figures) + " |"
    yield ""
    titles = " | ".join(BACKENDS.values())
    yield f"| class | lines | changed | {titles} | seconds | what stood in the way |"
    yield "|---" * (5 + len(BACKENDS)) + "|"
    labels = collections.Counter(row["label"] for row in rows)
    for row in rows:
        title = row["label"]
        if labels[title] > 1:
            title = f"{title} {row['arguments'].partition(',')[0]}"
        cells = [title, row.get("lines", ""), row.get("changed", "")]
        cells += [outcome(row, backend) for backend in BACKENDS]
        yield "| " + " | ".join(map(str, [*cells, seconds(row), reason(row)])) + " |"


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.port.corpus_table", description=__doc__
    )
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument(
        "--page", type=Path, default=Path("docs/reference/ported_classes.md")
    )
    given = parser.parse_args()
    rows = {}
    for path in given.results:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row["label"], row["arguments"]] = row
    text = given.page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(table(list(rows.values())))
    given.page.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}")


if __name__ == "__main__":
    main()
