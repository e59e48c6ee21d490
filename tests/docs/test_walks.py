"""The page of walks names the files that its operations pass through."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "walks.md"


def walks_in(page):
    """The files by the title of each walk; the order of some depends on the hashes of texts."""
    _, *parts = page.split("\n## ")
    titles = [part.partition("\n")[0] for part in parts]
    files = [
        set(re.findall(r"^\| `([\w/]+\.py)`", part, re.MULTILINE)) for part in parts
    ]
    return {title: found for title, found in zip(titles, files, strict=True) if found}


def test_the_page_of_walks_is_that_of_the_present_code():
    # in a process of its own, where no other test has warmed anything
    command = [sys.executable, "-m", "benchmarks.walks"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    found = walks_in(written.stdout.decode())
    assert len(found) == 8
    assert found == walks_in(PAGE.read_text("utf-8")), (
        "python -m benchmarks.walks > " + str(PAGE.relative_to(ROOT))
    )
