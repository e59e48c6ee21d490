"""The time of importing deliralike, and of commands that only list, against importing NumPy alone.

Each runs in a fresh process, with byte code at hand.
"""

import subprocess
import sys
from dataclasses import replace

from benchmarks.timing import Ratio, compare

PAIRS = 15
# Seconds beyond those of importing NumPy.
IMPORTS = {
    "import deliralike": "import deliralike",
    "import and zoo.list()": "import deliralike; deliralike.zoo.list()",
    "import and write a network": "from deliralike import Network",
}
BEYOND_NUMPY = 0.15
# Seconds in all.
COMMANDS = ("--help", "zoo", "backends")
IN_ALL = 0.5


def run() -> list[Ratio]:
    """One ratio for each; the limits are differences and times, made ratios."""
    ratios = []
    for name, code in IMPORTS.items():
        found = _beside_numpy(name, "-c", code)
        ratios.append(_limited(found, found.theirs + BEYOND_NUMPY))
    for word in COMMANDS:
        found = _beside_numpy(f"deliralike {word}", "-m", "deliralike", word)
        ratios.append(_limited(found, IN_ALL))
    return ratios


def _beside_numpy(name: str, *words: str) -> Ratio:
    return compare(
        f"{name}, import numpy",
        lambda: _python(*words),
        lambda: _python("-c", "import numpy"),
        pairs=PAIRS,
    )


def _limited(found: Ratio, seconds: float) -> Ratio:
    return replace(found, limit=seconds / found.theirs)


def _python(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
