"""Every planted mistake of replicas is detected, located and explained, on every backend."""

import pytest

from deliralike.conformance.findings import FAILED
from deliralike.conformance.levels import replicas
from tests.conftest import BACKENDS
from tests.planted import replicas as planted

# Before a commit each mistake is looked for on PyTorch, these on the others as well.
# JAX compiles two programs for each.
SHORT_ON_JAX = (
    "local batch norm, averaged statistics",
    "dropped remainder",
    "clip before accumulation",
)
SHORT_ON_CHAINER = [mistake.name.removeprefix("replicas: ") for mistake in planted.MISTAKES[::6]]


def cases():
    for backend in BACKENDS:
        short = {"chainer": SHORT_ON_CHAINER, "jax": SHORT_ON_JAX}.get(backend)
        for mistake in planted.MISTAKES:
            is_short = short is None or mistake.name.removeprefix("replicas: ") in short
            marks = [] if is_short else [pytest.mark.long]
            yield pytest.param(mistake, backend, id=f"{mistake.name}-{backend}", marks=marks)


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
    assert {*SHORT_ON_JAX, *SHORT_ON_CHAINER} <= names
    assert len(names) == len(planted.MISTAKES) >= 20
