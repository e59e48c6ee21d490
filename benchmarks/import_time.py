"""The time of importing deliralike and listing the zoo against importing NumPy alone.

Each runs in a fresh process.
"""

import subprocess
import sys

from benchmarks.timing import Ratio, compare

LIMIT_SECONDS = 0.15


def run() -> list[Ratio]:
    """One ratio; what counts is the difference of the two times, at most 0.15 s."""
    found = compare(
        "import and zoo.list, NumPy alone",
        lambda: _python("import deliralike; deliralike.zoo.list()"),
        lambda: _python("import numpy"),
        pairs=15,
    )
    limit = (found.theirs + LIMIT_SECONDS) / found.theirs
    return [Ratio(found.name, found.ours, found.theirs, found.ratio, found.low, found.high, limit)]


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)
