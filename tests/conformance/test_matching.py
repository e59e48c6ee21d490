"""Networks written three times by hand are matched: the map is right where the outputs are equal afterwards."""

from itertools import permutations

import numpy as np
import pytest
from flax import nnx
from torch import nn

from deliralike.conformance import matching
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.layouts import Layouts
from deliralike.errors import ShapeError, UnknownName
from tests.conformance import ports

DIRECTIONS = list(permutations(("torch", "chainer", "jax"), 2))


def moved(match, reference, candidate, inputs):
    """The difference of the outputs, once the candidate has the reference's weights."""
    candidate.load_neutral_state(match.to_candidate(reference.neutral_state()))
    wanted = ports.outputs(reference, Layouts().input_for(reference, inputs))
    layouts = Layouts()
    given = layouts.to_reference(ports.outputs(candidate, layouts.input_for(candidate, inputs)), wanted)
    return relative_difference(wanted, given)


@pytest.mark.parametrize("name", ports.PORTS)
@pytest.mark.parametrize(("ours", "theirs"), DIRECTIONS)
def test_a_port_by_hand_computes_the_same_once_its_weights_came_through_the_map(name, ours, theirs):
    reference, candidate = ports.build(name, ours, 1), ports.build(name, theirs, 2)
    match = matching.propose(reference, candidate).require_complete()
    assert moved(match, reference, candidate, ports.batch(name)) < 1e-10
