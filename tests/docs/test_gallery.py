"""The gallery has every architecture, and its examples run."""

import sys
from pathlib import Path

import pytest

from deliralike import nest, zoo
from deliralike.zoo.registry import is_shape

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))
gallery = pytest.importorskip("gallery")  # needs sphinx

TASKS = ("classification", "segmentation", "generative", "sequences")
NAMES = zoo.list()  # before other tests and pages register theirs
FAMILIES = {module: names for task in TASKS for module, names in gallery.families(task).items()}
HEAVY = 100e9  # multiply-adds; seconds on one core
SMALLEST = {name: zoo.outline(name).multiply_adds for name in map(gallery.smallest, FAMILIES.values())}


def test_every_architecture_is_in_one_family():
    assert sorted(name for names in FAMILIES.values() for name in names) == sorted(NAMES)


def test_every_page_of_the_gallery_asks_for_its_task():
    for task in TASKS:
        page = Path(__file__).parents[2] / "docs" / "gallery" / f"{task}.md"
        assert f"```{{gallery}} {task}" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", FAMILIES)
def test_a_family_says_what_sets_it_apart_from_its_paper(module):
    text = sys.modules[module].__doc__
    assert len(text.strip().split("\n\n")) >= 2, f"{module}: a second paragraph is missing"
    assert "paper" in text


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if cost > HEAVY else name
                                  for name, cost in SMALLEST.items()])  # fmt: skip
def test_the_example_runs_and_gives_the_shape_of_the_table(name):
    names = {}
    exec(gallery.example(name), names)
    classes = "=4" in gallery.example(name)
    sketch = zoo.outline(name, **({names["network"].outputs: 4} if classes else {}))
    shapes = [tuple(leaf.shape) for leaf in nest.leaves(names["output"])]
    assert shapes == [shape for shape in nest.flatten(sketch.output, is_shape)[0]]
