"""The notebooks run from an empty folder, and print what they were stored with."""

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
FRACTION = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def fractions(text):
    """The numbers in a text that are not whole.

    Training in float32 is only roughly the same on another processor, whose kernels add in another
    order.
    """
    return [float(number) for number in FRACTION.findall(text)]


def printed(notebook):
    """What each cell of code prints, without pictures and announcements of long compilations."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        for cell in cells
    ]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem) for path in NOTEBOOKS],
)
def test_a_notebook_prints_what_it_was_stored_with(path, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    )
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own, which keeps pictures
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    folder = tmp_path / "work"
    folder.mkdir()
    # Limits are for what hangs: a kernel on a busy machine starts, computes and answers late.
    limits = {"startup_timeout": 600, "timeout": 1800, "iopub_timeout": 600}
    NotebookClient(
        fresh, **limits, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for came, wanted in zip(printed(fresh), printed(stored), strict=True):
        assert FRACTION.sub("#", came) == FRACTION.sub("#", wanted)
        assert fractions(came) == pytest.approx(fractions(wanted), rel=0.5, abs=0.05), (
            f"{came}\nwas\n{wanted}"
        )


def test_notebooks_are_stored_with_their_pictures_and_are_small():
    assert len(NOTEBOOKS) >= 9
    assert [path.name for path in NOTEBOOKS if "image/png" not in kinds(path)] == []
    assert [path.name for path in NOTEBOOKS if path.stat().st_size >= 300_000] == []


def kinds(path):
    """What a notebook shows, as MIME types."""
    cells = nbformat.read(path, as_version=4).cells
    return {
        kind
        for cell in cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }


def test_notebooks_tell_nothing_of_the_machine_that_ran_them():
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    found = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS}
    assert {name: notebook["metadata"] for name, notebook in found.items()} == dict.fromkeys(
        found, metadata
    )
    assert [
        name
        for name, notebook in found.items()
        if any(cell["metadata"] for cell in notebook["cells"])
    ] == []
    outputs = {
        name: json.dumps([cell.get("outputs", []) for cell in n["cells"]])
        for name, n in found.items()
    }
    folders = ("/home/", "/Users/", "/tmp/", str(ROOT), str(Path.home()))
    assert [
        (name, folder) for name, text in outputs.items() for folder in folders if folder in text
    ] == []


def test_notebooks_were_run_from_top_to_bottom():
    counts = {path.name: executed(path) for path in NOTEBOOKS}
    assert counts == {name: list(range(1, len(count) + 1)) for name, count in counts.items()}


def executed(path):
    """The numbers under which the cells of code were run, in the order of the cells."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.execution_count for cell in cells if cell.cell_type == "code"]
