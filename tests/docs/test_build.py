"""The pages build without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "first_network.html").is_file()
