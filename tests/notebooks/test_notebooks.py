"""The notebooks run from an empty folder, and print what they were stored with."""

import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
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
        "".join(
            output.text for output in cell.outputs if output.get("name") == "stdout"
        )
        for cell in cells
    ]


# Limits are for what hangs: a kernel on a busy machine starts, computes and answers late.
LIMITS = {"startup_timeout": 600, "timeout": 1800, "iopub_timeout": 600}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """One for all notebooks: its start and its imports take longer than most of them."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    changes = {
        "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep),
        "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")),
    }
    # without MPLBACKEND: the kernel has its own, which keeps pictures
    environment = {
        name: value for name, value in os.environ.items() if name != "MPLBACKEND"
    }
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment | changes)
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.xdist_group("notebooks")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_was_stored_with(path, tmp_path, kernel):
    stored, fresh = (nbformat.read(path, as_version=4) for _ in range(2))
    begin = f"%reset -f\nimport os; os.chdir({str(tmp_path)!r}); del os"
    fresh.cells.insert(0, nbformat.v4.new_code_cell(begin))
    client = NotebookClient(fresh, **LIMITS, km=kernel)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()  # which is left to the owner of the kernel
    for came, wanted in zip(printed(fresh)[1:], printed(stored), strict=True):
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
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    found = {
        path.name: json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS
    }
    assert {
        name: notebook["metadata"] for name, notebook in found.items()
    } == dict.fromkeys(found, metadata)
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
        (name, folder)
        for name, text in outputs.items()
        for folder in folders
        if folder in text
    ] == []


def test_notebooks_were_run_from_top_to_bottom():
    counts = {path.name: executed(path) for path in NOTEBOOKS}
    assert counts == {
        name: list(range(1, len(count) + 1)) for name, count in counts.items()
    }


def executed(path):
    """The numbers under which the cells of code were run, in the order of the cells."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.execution_count for cell in cells if cell.cell_type == "code"]
