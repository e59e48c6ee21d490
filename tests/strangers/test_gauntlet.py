"""Each network goes through the gauntlet; docs/reference/modules.md shows what came of it."""

import importlib

import pytest

from tests.conftest import BACKENDS
from tests.strangers.gauntlet import STEPS

ROWS = []
for _backend in BACKENDS:
    _networks = importlib.import_module(f"tests.strangers.{_backend}_networks").NETWORKS
    ROWS += [(_backend, name, case) for name, case in _networks.items()]


@pytest.mark.parametrize(("backend", "name", "case"), ROWS, ids=[f"{r[0]}-{r[1]}" for r in ROWS])
def test_a_network_of_a_stranger_does_what_its_framework_does(backend, name, case):
    hand = importlib.import_module(f"tests.strangers.{backend}_hand").Hand(case)
    for step, run in STEPS.items():
        if step in case.refused:
            with pytest.raises(Exception, match=case.refused[step]):
                run(case, hand)
        else:
            run(case, hand)
