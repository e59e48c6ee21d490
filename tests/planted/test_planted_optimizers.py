"""Every planted mistake of an optimizer is seen, located and explained; right optimizers are not
accused."""

import numpy as np
import pytest

from deliralike.conformance.findings import FAILED, PASSED
from deliralike.conformance.levels import stepping
from tests.conformance.optimizing import get, right
from tests.planted.optimizers import MISTAKES, OPTIMIZERS

# A mistake is written once, so each is looked for on PyTorch; these are on the others as well,
# where an optimizer is native or runs on the host. JAX compiles each candidate anew.
ELSEWHERE = {
    "chainer": {"sgd: nesterov", "adam: epsilon 3e-6", "clipped: tensor by tensor"},
    "jax": {"clipped: tensor by tensor"},
}


def cases():
    for mistake in MISTAKES:
        for name in ("torch", "chainer", "jax"):
            if mistake.name in ELSEWHERE.get(name, {mistake.name}):
                yield pytest.param(name, mistake, id=f"{name} {mistake.name}")


def narrowed(reference, candidate, mistaken):
    """Both with the optimizer alone that a mistake is in, or with the schedule."""
    wrong = mistaken.optimizers
    names = [name for name in wrong if candidate.optimizers[name] is not wrong[name]]
    for side in (reference, mistaken):
        schedule = None if names else side.schedule
        kept = {name: side.optimizers[name] for name in names or ["sgd"]}
        yield side.replace(optimizers=kept, schedule=schedule)


@pytest.mark.parametrize(("name", "mistake"), list(cases()))
def test_a_planted_mistake_is_seen_located_and_explained(name, mistake):
    candidate = right(get(name))
    sides = narrowed(right(get("torch")), candidate, mistake.plant(candidate))
    found = stepping.level(*sides, never=("fc.bias",))
    assert found.status == FAILED
    places = [f"{finding.place}, {finding.what}" for finding in found.findings]
    assert any(mistake.place in place for place in places), places
    causes = [one.explanation.cause for one in found.findings if one.explained]
    assert any(mistake.cause in cause for cause in causes), list(
        map(str, found.findings)
    )


def test_the_list_is_long_and_has_a_mistake_of_every_optimizer():
    names = {mistake.name for mistake in MISTAKES}
    assert len(names) == len(MISTAKES) >= 22
    assert {name.partition(":")[0] for name in names} <= {*OPTIMIZERS, "schedule"}
    assert names >= ELSEWHERE["chainer"] | ELSEWHERE["jax"]


@pytest.mark.parametrize(("name", "seed"), [("torch", 0), ("chainer", 1)])
def test_right_optimizers_are_not_accused(name, seed):
    found = stepping.level(right(get("torch")), right(get(name)), seed=seed)
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert found.worst < 1e-13


def test_right_optimizers_are_not_accused_on_jax():
    names = ("clipped", "lamb")
    sides = [right(get(name)) for name in ("torch", "jax")]
    sides = [
        each.replace(optimizers={n: each.optimizers[n] for n in names})
        for each in sides
    ]
    found = stepping.level(*sides)
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert found.worst < np.float64(1e-13)
