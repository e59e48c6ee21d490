"""Converting a file of weights against copying its bytes.

Both sides read, copy and wait until the bytes are on the disk.
"""

import shutil
import tempfile
from itertools import permutations
from pathlib import Path

import numpy as np

from benchmarks.timing import Ratio, compare
from deliralike import weights, zoo

SUFFIXES = (".safetensors", ".npz", ".pth")
LIMIT = 1.8  # archives have check sums on top, which copying does not compute


def run() -> list[Ratio]:
    """A ResNet-50, 102 MB, from each format into each other: one ratio for each pair."""
    network = zoo.build("resnet50", backend="torch")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        files = {suffix: Path(folder) / f"source{suffix}" for suffix in SUFFIXES}
        for file in files.values():
            weights.write(file, network)
        return [
            _ratio(
                files[source], Path(folder) / f"ours{target}", Path(folder) / "theirs"
            )
            for source, target in permutations(SUFFIXES, 2)
        ]


def _ratio(source: Path, ours: Path, theirs: Path) -> Ratio:
    name = f"convert {source.suffix} to {ours.suffix}, copy and read"
    return compare(
        name,
        lambda: weights.convert(source, ours),
        lambda: _copy(source, theirs),
        pairs=7,
        limit=LIMIT,
    )


def _copy(source: Path, target: Path) -> None:
    np.fromfile(source, np.uint8)
    shutil.copy(source, target)
    weights.flush(target)
