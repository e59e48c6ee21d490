"""Every planted mistake of replicas is detected, located and explained, on every backend."""

import pytest

from deliralike.conformance.findings import FAILED
from deliralike.conformance.levels import replicas
from tests.conftest import BACKENDS
from tests.planted import replicas as planted

# Each mistake is planted in what is written once, and so looked for on PyTorch; these are on the
# others as well. JAX compiles two programs for each.
ELSEWHERE = {
    "chainer": {"local batch norm, averaged statistics", "clip before accumulation"},
    "jax": {"dropped remainder"},
}


def cases():
    for mistake in planted.MISTAKES:
        name = mistake.name.removeprefix("replicas: ")
        for backend in BACKENDS:
            if name in ELSEWHERE.get(backend, {name}):
                yield pytest.param(mistake, backend, id=f"{mistake.name}-{backend}")


@pytest.mark.parametrize(("mistake", "backend"), list(cases()))
def test_a_mistake_is_detected_located_and_explained(mistake, backend):
    candidate = mistake.plant(planted.subject(backend))
    found = replicas.level(planted.subject("torch"), candidate, planted.batch(), (planted.COUNT,))
    assert found.status == FAILED
    located = [
        finding for finding in found.findings if any(text in finding.what for text in mistake.place)
    ]
    assert located, [str(finding) for finding in found.findings]
    known = [
        each.explanation.cause
        for each in located
        if each.explanation is not None and each.explanation.known
    ]
    assert any(text in cause for cause in known for text in mistake.cause), [
        str(each) for each in located
    ]


def test_mistakes_have_names_of_their_own():
    names = {mistake.name.removeprefix("replicas: ") for mistake in planted.MISTAKES}
    assert {name for some in ELSEWHERE.values() for name in some} <= names
    assert len(names) == len(planted.MISTAKES) >= 20
