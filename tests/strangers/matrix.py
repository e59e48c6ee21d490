"""The table of the gauntlet in the docs: what networks of others do, step by step.

``python -m tests.strangers.matrix`` writes it; the tests look whether each row of it is true.
"""

import importlib
from pathlib import Path

from tests.strangers.gauntlet import STEPS

PAGE = Path(__file__).parents[2] / "docs/reference/modules.md"
TITLES = {"torch": "PyTorch", "jax": "flax (nnx)", "chainer": "Chainer"}


def networks(backend):
    """Return the cases of a backend by name."""
    return importlib.import_module(f"tests.strangers.{backend}_networks").NETWORKS


def row(name, case):
    """Return a row of the table."""
    cells = [case.refused[step][0] if step in case.refused else "yes" for step in STEPS]
    return f"| {name} | {' | '.join(cells)} |"


def tables():
    """Return the tables of all backends."""
    lines = []
    for backend, title in TITLES.items():
        lines += ["", f"## {title}", "", f"| network | {' | '.join(STEPS)} |"]
        lines += ["|---" * (len(STEPS) + 1) + "|"]
        lines += [row(name, case) for name, case in networks(backend).items()]
    return lines


if __name__ == "__main__":
    head = PAGE.read_text().split("\n## ")[0].rstrip()
    PAGE.write_text("\n".join([head, *tables()]) + "\n")
