"""Writing and reading a checkpoint against plain files of the same bytes.

Both sides wait until the bytes are on the disk.
"""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.timing import Ratio, compare
from deliralike import zoo
from deliralike.optim import rules
from deliralike.training import checkpoint

WRITE_LIMIT, READ_LIMIT = 1.3, 1.5


def run() -> list[Ratio]:
    """A ResNet-50 with Adam's state, 307 MB: one ratio for writing and one for reading."""
    network = zoo.build("resnet50", backend="torch")
    weights = network.neutral_state()
    moments = {
        f"{name}/{slot}": value
        for name, value in weights.items()
        for slot in ("exp_avg", "exp_avg_sq")
    }
    state = {
        "network": weights,
        "optimizer.default": {
            "rule": str(rules.rule("adam", lr=1e-3)),
            "state": moments,
        },
    }
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        ours, theirs = Path(folder) / "ours", Path(folder) / "theirs"
        return [
            compare(
                "write a checkpoint, plain files",
                lambda: checkpoint.write(ours, state),
                lambda: _write_plain(theirs, [weights, moments]),
                pairs=9,
                limit=WRITE_LIMIT,
            ),
            compare(
                "read a checkpoint, plain files",
                lambda: checkpoint.read(ours),
                lambda: [
                    np.fromfile(file, np.uint8) for file in sorted(theirs.iterdir())
                ],
                pairs=9,
                limit=READ_LIMIT,
            ),
        ]


def _write_plain(folder: Path, parts: list[dict[str, np.ndarray]]) -> None:
    """Each part as one file of its arrays' bytes, in the place of the files that were there."""
    new = folder.with_name("plain.new")
    new.mkdir()
    for number, arrays in enumerate(parts):
        with (new / str(number)).open("xb") as file:
            file.writelines(
                np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                for array in arrays.values()
            )
            file.flush()
            os.fsync(file.fileno())
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
