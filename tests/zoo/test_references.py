"""With the reference's weights, our networks give the reference's numbers on PyTorch, to 1e-9 in
double precision.

That the other backends give what PyTorch gives is asked in `test_models`.
"""

import csv
import hashlib
from functools import cache
from pathlib import Path

import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.zoo.case import assert_same, built, ours, theirs
from tests.zoo.cases import CASES, FULL

LABELS = [case.as_parameter() for case in CASES.values() if case.reference is not None]
TOLERANCE = 1e-9
SHAPES = Path(__file__).with_name("full_size.csv")


@pytest.mark.parametrize("label", LABELS)
def test_names_order_and_shapes_are_the_references(label):
    slots = built(label, "torch").neutral_slots()
    came = [(name, tuple(slot.shape)) for name, slot in slots.items()]
    assert came == [(name, value.shape) for name, value in theirs(label)[1].items()]


@pytest.mark.parametrize("label", LABELS)
def test_outputs_gradients_and_state_are_the_references(label):
    assert_same(ours(label), theirs(label)[0], TOLERANCE)


# At full size
# -----------------------------------------------------------------------------


@cache
def whole(name):
    """The whole reference, on PyTorch's meta device, where nothing is computed."""
    with torch.device("meta"):
        return FULL[name]()


def reference_shapes(name):
    """Names and shapes of the whole reference."""
    return [(key, tuple(value.shape)) for key, value in whole(name).state_dict().items()]


def digest(shapes):
    """A short text that tells one list of names and shapes from another."""
    return hashlib.sha256(
        "\n".join(f"{name} {list(shape)}" for name, shape in shapes).encode()
    ).hexdigest()[:16]


def stored():
    """The digest of each reference; ``python -m tests.zoo.test_references`` writes them again."""
    with SHAPES.open(newline="") as file:
        return {row["name"]: row["digest"] for row in csv.DictReader(file)}


def test_names_order_and_shapes_are_the_references_at_full_size():
    """Against what the references were once, so that few of them are built."""
    known = stored()
    assert set(known) == set(FULL)
    differing = []
    for name, wanted in known.items():
        slots = zoo.find(name).on(OUTLINE)().neutral_slots()
        if digest((key, tuple(slot.shape)) for key, slot in slots.items()) != wanted:
            differing.append(name)
    assert not differing, "test_what_is_stored_of_the_references tells in what they differ"


def first_of_each_class():
    """One name of each class of networks that has a whole reference."""
    first = {}
    for name in FULL:
        first.setdefault(zoo.find(name).network, name)
    return list(first.values())


@pytest.mark.parametrize("name", first_of_each_class())
def test_what_is_stored_of_the_references(name):
    wanted = reference_shapes(name)
    slots = zoo.find(name).on(OUTLINE)().neutral_slots()
    assert [(key, tuple(slot.shape)) for key, slot in slots.items()] == wanted
    assert stored()[name] == digest(wanted)


LAYERS = ("Dropout", "Dropout2d", "DropPath", "StochasticDepth")


def rates(blocks):
    """The rates of layers of dropout, but for those that are off."""
    found = [getattr(block, "p", 0.0) for block in blocks if type(block).__name__ in LAYERS]
    return {round(rate, 9) for rate in found if rate}


@pytest.mark.parametrize("name", first_of_each_class())
def test_rates_of_dropout_are_those_of_the_reference(name):
    """Cases have no rates: masks differ between libraries."""
    wanted = rates(whole(name).modules())
    came = rates(block for _, block in zoo.find(name).on(OUTLINE)().named_blocks())
    assert came <= wanted  # it has some more where no shortcut is
    assert bool(came) == bool(wanted)


if __name__ == "__main__":
    with SHAPES.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "digest"])
        writer.writerows([name, digest(reference_shapes(name))] for name in sorted(FULL))
