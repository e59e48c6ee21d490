"""The registry's files are the tables of the installed libraries, and fit the zoo."""

import json
import subprocess
import sys
import warnings
from collections import Counter

import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from deliralike.zoo.published.entries import SOURCES, label_sets
from tests.published import tables
from tests.published.__main__ import FOLDER


@pytest.mark.parametrize("source", SOURCES)
def test_every_entry_is_what_the_library_says(source, monkeypatch):
    """Whether the arrays fit is asked of the first network of each class and settings."""
    stored = json.loads((FOLDER / f"{source}.json").read_text(encoding="utf-8"))[
        "weights"
    ]
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


# timm's networks of Segment Anything leave PyTorch's epsilon in the blocks, and those of the second
# end in a normalisation that no file of the encoder has; the files are Meta's.
OTHERWISE_NORMALIZED = ("samvit_base_patch16", "sam2_hiera_tiny")


def normalizations(modules):
    """Count normalisations by their kind, channels, epsilon and momentum."""
    found = Counter()
    for module in modules:
        kinds = {kind.__name__ for kind in type(module).__mro__}
        if any(kind.startswith("BatchNorm") or kind == "_BatchNorm" for kind in kinds):
            found[
                "batch", module.num_features, module.eps, round(module.momentum, 8)
            ] += 1
        elif "LayerNorm" in kinds:
            found["layer", tuple(module.normalized_shape), module.eps] += 1
        elif "GroupNorm" in kinds:
            found["group", module.num_channels, module.num_groups, module.eps] += 1
    return found


def chances(modules, *names):
    """Return the probabilities of layers of one of these names, but zero."""
    found = set()
    for module in modules:
        if type(module).__name__ in names:
            found.add(
                round(
                    getattr(module, "drop_prob", None) or getattr(module, "p", 0.0), 6
                )
            )
    return found - {0.0}


def smallest_of_each_kind(source, monkeypatch):
    """Return architectures, settings of the registry, and what makes the library's own network.

    Of those that train alike it is the smallest.
    """
    smallest = {}

    def note(name, settings, create):
        row = zoo.find(name)
        values = row.settings | settings
        chances = (bool(values.get(each)) for each in ("dropout", "stochastic_depth"))
        key = (row.network, values.get("eps"), values.get("momentum"), *chances)
        size = row.parameters or 0
        if key not in smallest or smallest[key][0] > size:
            smallest[key] = size, row, settings, create
        return True

    monkeypatch.setattr(tables, "_fits", note)
    tables.SOURCES[source]()
    return [others for _, *others in smallest.values()]


@pytest.mark.parametrize("source", ["torchvision", "timm", "smp", "monai"])
def test_networks_train_with_the_settings_of_the_publishers_own_modules(
    source, monkeypatch
):
    for row, settings, create in smallest_of_each_kind(source, monkeypatch):
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            theirs = [*create().modules()]
        ours = [block for _, block in row.on(OUTLINE)(**settings).named_blocks()]
        if row.name not in OTHERWISE_NORMALIZED:
            assert normalizations(ours) == normalizations(theirs), (row.name, settings)
        if source in (
            "torchvision",
            "timm",
        ):  # the others drop by functions, and have no head
            paths = chances(theirs, "StochasticDepth", "DropPath")
            # torchvision counts blocks without a shortcut, where there is nothing to drop
            assert chances(ours, "DropPath") <= paths, (row.name, settings)
            assert bool(chances(ours, "DropPath")) == bool(paths), (row.name, settings)
            assert chances(ours, "Dropout") == chances(theirs, "Dropout"), (
                row.name,
                settings,
            )


def test_labels_are_those_of_the_library():
    assert label_sets() == {
        name: tuple(labels) for name, labels in tables.labels().items()
    }


def test_every_entry_has_an_architecture_its_labels_and_one_default():
    table = zoo.weights()
    for entry in table:
        known = zoo.find(entry.architecture).settings
        assert set(dict(entry.settings)) <= set(known), entry
        assert len(entry.label_names()) in (0, entry.classes), entry
    architectures = {entry.architecture for entry in table}
    assert sorted(architectures) == sorted(
        one.architecture for one in table if one.default
    )
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
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.stdout.split() == [str(len(zoo.weights("resnet*"))), "set()"], (
        done.stderr
    )
