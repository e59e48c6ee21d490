"""With the reference's weights, our networks give the reference's numbers, to 1e-9 in double precision."""

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.backends.outline import BACKEND as OUTLINE
from tests.zoo.case import close, ours, theirs
from tests.zoo.cases import CASES, FULL

LABELS = [case.as_parameter() for case in CASES.values() if case.reference is not None]
TOLERANCE = 1e-9


@pytest.mark.parametrize("label", LABELS)
def test_names_order_and_shapes_are_the_references(label, backend):
    slots = CASES[label].build(backend.name).neutral_slots()
    came = [(name, tuple(slot.shape)) for name, slot in slots.items()]
    assert came == [(name, value.shape) for name, value in theirs(label)[1].items()]


@pytest.mark.parametrize("name", FULL)
def test_names_order_and_shapes_are_the_references_at_full_size(name):
    with torch.device("meta"):
        wanted = [(key, tuple(value.shape)) for key, value in FULL[name]().state_dict().items()]
    slots = zoo.find(name).on(OUTLINE)().neutral_slots()
    assert [(key, slot.shape) for key, slot in slots.items()] == wanted


@pytest.mark.parametrize("label", LABELS)
def test_outputs_in_evaluation_are_the_references(label, backend):
    came, wanted = ours(label, backend.name).evaluated, theirs(label)[0].evaluated
    assert list(came) == list(wanted)
    for path, leaf in wanted.items():
        close(came[path], leaf, TOLERANCE, name=path)


@pytest.mark.parametrize("label", LABELS)
def test_outputs_and_loss_in_training_are_the_references(label, backend):
    came, wanted = ours(label, backend.name), theirs(label)[0]
    assert backend.name == "jax" or list(came.trained) == list(wanted.trained)
    for path, leaf in came.trained.items():
        close(leaf, wanted.trained[path], TOLERANCE, name=path)
    assert came.loss == pytest.approx(wanted.loss, rel=TOLERANCE, abs=1e-12)


@pytest.mark.parametrize("label", LABELS)
def test_gradients_of_every_parameter_and_input_are_the_references(label, backend):
    came, wanted = ours(label, backend.name), theirs(label)[0]
    assert set(wanted.parameters) <= set(came.parameters)
    scale = max(np.abs(gradient).max(initial=0.0) for gradient in wanted.parameters.values())
    for name, gradient in wanted.parameters.items():
        close(came.parameters[name], gradient, TOLERANCE, scale, name)
    assert len(came.inputs) == len(wanted.inputs)
    for mine, gradient in zip(came.inputs, wanted.inputs, strict=True):
        close(mine, gradient, TOLERANCE)


@pytest.mark.parametrize("label", LABELS)
def test_the_state_after_a_training_pass_is_the_references(label, backend):
    came, wanted = ours(label, backend.name).state, theirs(label)[0].state
    for name, value in wanted.items():
        close(came[name], value, TOLERANCE, name=name)
