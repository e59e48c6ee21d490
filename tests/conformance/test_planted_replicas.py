"""Every planted mistake of replicas is detected, located and explained, on every backend."""

import pytest

from deliralike.conformance.findings import FAILED
from deliralike.conformance.levels import replicas
from deliralike.conformance.planted import replicas as planted
from tests.conftest import BACKENDS

# JAX compiles two programs for each mistake: one of each kind is enough where time is short.
QUICK_ON_JAX = (
    "per-shard denominators",
    "local batch norm, averaged statistics",
    "dropped remainder",
    "one replica's gradient lost",
    "shared dropout streams",
    "batch norm synchronised forward alone",
    "running variance biased over the whole batch",
    "clip before accumulation",
    "replicas keep stale parameters",
)


def cases():
    for backend in BACKENDS:
        for mistake in planted.MISTAKES:
            is_slow = backend == "jax" and mistake.name.removeprefix("replicas: ") not in QUICK_ON_JAX
            marks = [pytest.mark.slow] if is_slow else []
            yield pytest.param(mistake, backend, id=f"{mistake.name}-{backend}", marks=marks)


@pytest.mark.parametrize(("mistake", "backend"), list(cases()))
def test_a_mistake_is_detected_located_and_explained(mistake, backend):
    candidate = mistake.plant(planted.subject(backend))
    found = replicas.level(planted.subject("torch"), candidate, planted.batch(), (planted.COUNT,))
    assert found.status == FAILED
    located = [finding for finding in found.findings if any(text in finding.what for text in mistake.place)]
    assert located, [str(finding) for finding in found.findings]
    known = [each.explanation.cause for each in located if each.explanation is not None and each.explanation.known]
    assert any(text in cause for cause in known for text in mistake.cause), [str(each) for each in located]


def test_jax_has_a_mistake_of_every_kind():
    names = {mistake.name.removeprefix("replicas: ") for mistake in planted.MISTAKES}
    assert set(QUICK_ON_JAX) <= names
    assert len(names) == len(planted.MISTAKES) >= 35
