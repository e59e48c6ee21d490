"""One of the processes of `tests.processes.running.run`."""

import importlib
import json
import os
import sys
from pathlib import Path

from deliralike.backends.joining import join


def main(engine: str, folder: str, function: str, arguments: str) -> None:
    processes = join(engine, timeout=float(os.environ["PATIENCE"]))
    module, name = function.split(":")
    result = getattr(importlib.import_module(module), name)(processes, *json.loads(arguments))
    (Path(folder) / f"{processes.rank}.json").write_text(json.dumps(result))
    processes.close()
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    if any("gloo" in name for name in threads):  # which would now and then abort the interpreter at its end
        sys.exit(f"threads of the engine are left: {threads}")


if __name__ == "__main__":
    main(*sys.argv[1:])
