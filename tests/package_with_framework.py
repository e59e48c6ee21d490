"""What the installed wheel does with one framework alone.

`make package` runs it there, with the framework's name, in isolated mode as tests/package_alone.py:
the README's first example, and the commands that a new user types first.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.DOTALL)
COMMAND = Path(sys.executable).with_name("deliralike")


def first_example(backend):
    """It prints what the README says that it prints."""
    source, printed = (
        part.replace("torch", backend)
        for part in EXAMPLE.search(README.read_text()).groups()
    )
    came = subprocess.run(
        [sys.executable, "-I", "-c", source], capture_output=True, text=True
    )
    assert (came.stdout, came.stderr) == (printed, ""), came


def first_commands(backend):
    """They end well."""
    for words in (
        ["backends", backend],
        ["train", "mlp", "--epochs", "1", "--backend", backend],
        ["compare", "mlp", "--quick", "--backends", backend],
        ["zoo", "resnet18"],
    ):
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                [COMMAND, *words], capture_output=True, text=True, cwd=folder
            )
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"


if __name__ == "__main__":
    [name] = sys.argv[1:]
    first_example(name)
    first_commands(name)
    print(
        f"package: the README's first example and the first commands run with {name} alone"
    )
