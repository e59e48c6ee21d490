"""The replica level of proofs over processes."""

import pytest

from tests.processes.crews import call, together

pytestmark = together

WHERE = {"mpi": "MPI", "torch": "torch.distributed"}


@pytest.mark.parametrize(
    ("engine", "backend", "count"), [("mpi", "chainer", 3), ("torch", "torch", 2)]
)
def test_a_network_over_processes_is_proved(engine, backend, count):
    for status, differences, findings in call(
        engine, count, "tests.processes.proving:proof", backend
    ):
        assert (status, findings) == ("passed", [])
        assert 0 < differences[f"{count} processes ({WHERE[engine]})"] < 1e-11


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("averaged", "gradients divided by 2: by the number of replicas once more"),
        ("by share", "each share's batch statistics taken by itself, not synchronised"),
    ],
)
def test_what_goes_wrong_between_processes_is_found_and_explained(how, cause):
    for status, causes in call("mpi", 2, "tests.processes.proving:mistaken", how):
        assert status == "failed"
        assert any(cause in each for each in causes), causes
