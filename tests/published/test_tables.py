"""The registry's files are the tables of the installed libraries, and fit the zoo."""

import json
import subprocess
import sys

import pytest

from deliralike import zoo
from deliralike.zoo.published.entries import SOURCES, label_sets
from tests.published import tables
from tests.published.__main__ import FOLDER


@pytest.mark.parametrize("source", SOURCES)
def test_every_entry_is_what_the_library_says(source, monkeypatch):
    """Whether the arrays fit is asked of the first network of each class and settings."""
    stored = json.loads((FOLDER / f"{source}.json").read_text(encoding="utf-8"))["weights"]
    present = {(record["architecture"], record["name"]) for record in stored}
    fitting, asked = tables._fits, set()

    def fits_once(name, settings, create):
        kind = (zoo.find(name).network, *sorted(settings))
        if name not in {architecture for architecture, _ in present} or kind in asked:
            return True
        asked.add(kind)
        return fitting(name, settings, create)

    monkeypatch.setattr(tables, "_fits", fits_once)
    found = []
    for record in tables.SOURCES[source]():
        if (record["architecture"], record["name"]) in present:
            found.append(dict(tables.lines(record)))
    assert found == stored


def test_labels_are_those_of_the_library():
    assert label_sets() == {name: tuple(labels) for name, labels in tables.labels().items()}


def test_every_entry_has_an_architecture_its_labels_and_one_default():
    table = zoo.weights()
    for entry in table:
        known = zoo.find(entry.architecture).settings
        assert set(dict(entry.settings)) <= set(known), entry
        assert len(entry.label_names()) in (0, entry.classes), entry
    architectures = {entry.architecture for entry in table}
    assert sorted(architectures) == sorted(one.architecture for one in table if one.default)
    assert len({(entry.architecture, entry.name) for entry in table}) == len(table)


def test_a_table_is_printed_with_the_default_marked():
    lines = str(zoo.weights("resnet50")).splitlines()
    assert lines[0].split() == [
        "architecture",
        "name",
        "classes",
        "accuracy",
        "licence",
        "size",
        "preprocessing",
    ]
    (marked,) = [line for line in lines if " * " in line]
    assert marked.split()[1] == "torchvision/IMAGENET1K_V2"
    assert "80.858 acc@1 (ImageNet-1K)" in marked


def test_the_table_loads_no_framework_and_nothing_of_the_network():
    program = (
        "import sys; from deliralike import zoo; print(len(zoo.weights('resnet*'))); "
        "print({'torch', 'jax', 'chainer', 'PIL', 'huggingface_hub', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(len(zoo.weights("resnet*"))), "set()"], done.stderr
