"""Each network goes through the gauntlet; docs/reference/modules.md shows what came of it."""

import importlib

import pytest

from tests.conftest import BACKENDS
from tests.strangers.gauntlet import STEPS
from tests.strangers.matrix import PAGE, networks, row

ROWS = []
for _backend in BACKENDS:
    ROWS += [(_backend, name, case) for name, case in networks(_backend).items()]


@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors",
    "ignore:.torch.jit.*is deprecated",
    "ignore:The .grad attribute of a Tensor",
)
@pytest.mark.parametrize(
    ("backend", "name", "case"), ROWS, ids=[f"{r[0]}-{r[1]}" for r in ROWS]
)
def test_a_network_of_a_stranger_does_what_its_framework_does(backend, name, case):
    hand = importlib.import_module(f"tests.strangers.{backend}_hand").Hand(case)
    for step, run in STEPS.items():
        if step in case.refused:
            words, pattern = case.refused[step]
            with pytest.raises(Exception, match=pattern):
                run(case, hand)
        else:
            run(case, hand)
    assert row(name, case) in PAGE.read_text().splitlines(), (
        "run python -m tests.strangers.matrix, which writes the table into the docs"
    )
