"""Run the benchmarks: ``python -m benchmarks [NAME ...]``.

The exit code is 1 when a limit is exceeded.
"""

import importlib
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.timing import Ratio

NAMES = (
    "steps",
    "step_memory",
    "checkpoint",
    "weights",
    "loading",
    "import_time",
    "state",
    "nests",
    "replicas",
    "jax_replicas",
    "processes",
    "heat_peer",
    "scaling",
    "slow_links",
    "hooks",
    "trainer",
    "zoo",
    "zoo_compiled",
    "convolutions",
    "families",
    "kernels",
    "proof",
    "proof_seconds",
    "growth",
)
RESULTS = Path(__file__).parent / "results.json"


def main(names: list[str]) -> int:
    """Run, print the table, and write results.json when everything was run."""
    if unknown := [name for name in names if name not in NAMES]:
        print(
            f"there is no benchmark {unknown[0]!r}; known: {', '.join(NAMES)}",
            file=sys.stderr,
        )
        return 2
    ratios = [
        ratio
        for name in names or NAMES
        for ratio in importlib.import_module(f"benchmarks.{name}").run()
    ]
    Console(width=None if sys.stdout.isatty() else 120).print(_table(ratios))
    if not names:
        found = {
            "python": platform.python_version(),
            "ratios": [asdict(r) for r in ratios],
        }
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(ratio.good for ratio in ratios) else 1


def _table(ratios: list[Ratio]) -> Table:
    table = Table("what, against", "ours", "theirs", "ratio (quartiles)", "limit")
    for r in ratios:
        limit = (
            ""
            if r.limit is None
            else f"{r.limit:.2f} {'good' if r.good else 'EXCEEDED'}"
        )
        ratio = f"{r.ratio:.3f} ({r.low:.3f} to {r.high:.3f})"
        table.add_row(
            r.name, _amount(r.ours, r.unit), _amount(r.theirs, r.unit), ratio, limit
        )
    return table


def _amount(value: float, unit: str) -> str:
    return f"{value * 1e3:.2f} ms" if unit == "s" else f"{value / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
