"""Every planted mistake of an optimizer is seen, located and explained; right optimizers are not
accused."""

import copy

import numpy as np
import pytest

from deliralike.conformance.findings import FAILED, PASSED
from deliralike.conformance.levels import stepping
from deliralike.optim.rules import RULES
from deliralike.training import classification_loss
from tests.conformance.optimizing import get, right
from tests.planted.optimizers import BOUND, LR, MISTAKES, OPTIMIZERS

# A mistake is written once, so each is looked for on PyTorch; these are on the others as well,
# where an optimizer is native or runs on the host. JAX compiles each candidate anew.
ELSEWHERE = {
    "chainer": {"sgd: nesterov", "adam: epsilon 1e-7", "clipped: tensor by tensor"},
    "jax": {
        "adam: unused parameters updated",
        "clipped: tensor by tensor",
        "schedule: one step late",
    },
}


def cases():
    for mistake in MISTAKES:
        for name in ("torch", "chainer", "jax"):
            if mistake.name in ELSEWHERE.get(name, {mistake.name}):
                yield pytest.param(name, mistake, id=f"{name} {mistake.name}")


def narrowed(reference, candidate, mistaken):
    """Both with the optimizer alone that a mistake is in, or with the schedule."""
    names = [
        name
        for name in candidate.optimizers
        if candidate.optimizers[name] is not mistaken.optimizers[name]
    ]
    schedules = (None, None) if names else (reference.schedule, mistaken.schedule)
    names = names or ["sgd"]
    return (
        reference.but(
            optimizers={name: reference.optimizers[name] for name in names}, schedule=schedules[0]
        ),
        mistaken.but(
            optimizers={name: mistaken.optimizers[name] for name in names}, schedule=schedules[1]
        ),
    )


@pytest.mark.parametrize(("name", "mistake"), list(cases()))
def test_a_planted_mistake_is_seen_located_and_explained(name, mistake):
    candidate = right(get(name))
    found = stepping.level(*narrowed(right(get("torch")), candidate, mistake.plant(candidate)))
    assert found.status == FAILED
    places = [f"{finding.place}, {finding.what}" for finding in found.findings]
    assert any(text in place for text in mistake.place for place in places), places
    known = [
        finding.explanation
        for finding in found.findings
        if finding.explanation and finding.explanation.known
    ]
    assert any(text in each.cause for text in mistake.cause for each in known), list(
        map(str, found.findings)
    )


def _norm(gradients):
    return np.sqrt(sum((gradient**2).sum() for gradient in gradients))


DECAY = 0.01  # of the optimizer that clips, after clipping
# From gradients to what the rule takes in their place.
CLIPPED = {
    "by value": lambda g: [np.clip(each, -BOUND, BOUND) for each in g],
    "tensor by tensor": lambda g: [each * min(1, BOUND / _norm([each])) for each in g],
    "not at all": lambda g: g,
    "1e-6 added to the norm": lambda g: [each * BOUND / (_norm(g) + 1e-6) for each in g],
    "bound doubled": lambda g: [each * 2 * BOUND / _norm(g) for each in g],
}


def _steep(network, x, labels):
    """A loss whose gradients are beyond the bound, and so are some of their elements."""
    return 10.0 * classification_loss(network, x, labels)


@pytest.mark.parametrize("name", CLIPPED)
def test_a_planted_clipping_does_what_its_name_says(name):
    subject = right(get("torch"))
    mistake = next(each for each in MISTAKES if each.name == f"clipped: {name}")
    network = copy.deepcopy(subject.network)
    batch = np.linspace(-1, 1, 12).reshape(4, 3), np.arange(4) % 2
    before = network.neutral_state()
    found = network.backend.gradients(_steep, network, *batch).parameters
    gradients = list(found.values())
    assert _norm(gradients) > 2 * BOUND and max(abs(each).max() for each in gradients) > BOUND
    mistake.plant(subject).optimizers["clipped"](network).update(_steep, *batch)
    after = network.neutral_state()
    for each, clipped in zip(found, CLIPPED[name](gradients), strict=True):
        expected = before[each] - LR * (clipped + DECAY * before[each])
        np.testing.assert_allclose(after[each], expected, rtol=1e-12, atol=1e-14)


def test_the_list_is_long_and_has_a_mistake_of_every_optimizer():
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) > 60
    assert {mistake.name.partition(":")[0] for mistake in MISTAKES} == {*OPTIMIZERS, "schedule"}
    # An explanation simulates elements, and knows no shapes; and it has no form of the last four.
    unexplained = {"adafactor", "muon", "nadam", "asgd", "adamax", "rprop"}
    assert {*RULES} - unexplained <= {*OPTIMIZERS}
    assert {mistake.name for mistake in MISTAKES} >= {*ELSEWHERE["chainer"], *ELSEWHERE["jax"]}


@pytest.mark.parametrize(("name", "seed"), [("torch", 0), ("chainer", 1)])
def test_right_optimizers_are_not_accused(name, seed):
    found = stepping.level(right(get("torch")), right(get(name)), seed=seed)
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert found.worst < 1e-13


def test_right_optimizers_are_not_accused_on_jax():
    names = ("clipped", "lamb")
    subjects = [right(get(name)) for name in ("torch", "jax")]
    subjects = [
        each.but(optimizers={name: each.optimizers[name] for name in names}) for each in subjects
    ]
    found = stepping.level(*subjects)
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert found.worst < 1e-13
