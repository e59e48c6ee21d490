"""One of the processes of `tests.processes.running.run`."""

import importlib
import json
import os
import sys
import time
from pathlib import Path

from deliralike.backends.processes.environment import COUNT, RANK
from deliralike.backends.processes.join import join

_PLACES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    (RANK, COUNT),
)


def main(engine: str, folder: str, function: str, arguments: str) -> None:
    if late := float(os.environ.get("LATE", 0)):
        rank, count = next(
            (int(os.environ[a]), int(os.environ[b]))
            for a, b in _PLACES
            if a in os.environ
        )
        time.sleep(late if rank == count - 1 else 0)
    processes = join(engine, timeout=float(os.environ["PATIENCE"]))
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(
        processes, *json.loads(arguments)
    )
    (Path(folder) / f"{processes.rank}.json").write_text(json.dumps(result))
    processes.close()
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    if any(
        "gloo" in name for name in threads
    ):  # which would now and then abort the interpreter at its end
        sys.exit(f"threads of the engine are left: {threads}")


if __name__ == "__main__":
    main(*sys.argv[1:])
