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


def name_of(path):
    return path.stem


def fractions(text):
    """The numbers in a text that are not whole.

    Training in float32 is only roughly the same on another processor, whose kernels add in another order.
    """
    return [float(number) for number in FRACTION.findall(text)]


def printed(notebook):
    """What each cell of code prints, without pictures."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(output.text for output in cell.outputs if output.output_type == "stream") for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_prints_what_it_was_stored_with(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own, which keeps pictures
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    folder = tmp_path / "work"
    folder.mkdir()
    NotebookClient(fresh, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    for came, wanted in zip(printed(fresh), printed(stored), strict=True):
        assert FRACTION.sub("#", came) == FRACTION.sub("#", wanted)
        assert fractions(came) == pytest.approx(fractions(wanted), rel=0.5, abs=0.05), f"{came}\nwas\n{wanted}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_stored_with_its_pictures_and_is_small(path):
    notebook = nbformat.read(path, as_version=4)
    kinds = [kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    assert "image/png" in kinds
    assert path.stat().st_size < 300_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_tells_nothing_of_the_machine_that_ran_it(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook["cells"]])
    assert not [word for word in ("/home/", "/Users/", "/tmp/", str(ROOT), str(Path.home())) if word in outputs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_was_run_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
