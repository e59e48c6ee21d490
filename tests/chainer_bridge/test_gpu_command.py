"""The steps of ``python -m benchmarks.gpu`` on Chainer, as on a machine with a GPU.

CuPy is played by the stand-in. It lacks the kernels of Chainer's own links, so that the step by
hand is played by one of ours on the host.
"""

import pytest

from benchmarks.by_hand import chainer_resnet
from benchmarks.gpu_steps import READY, copies, equality, proofs, replicas, speed
from deliralike import backends
from tests.chainer_bridge.test_on_device_arrays import GPU, cupy

__all__ = ["cupy"]

CHAINER = backends.get("chainer")
WORK = speed.Work(
    "resnet8", {"in_channels": 3}, (3, 3, 17, 17), 10, chainer="chainer_resnet"
)
LIMITS = {"float64": 1e-12, "float32": 1e-4}


@pytest.fixture(autouse=True)
def small(cupy, monkeypatch):
    """Take small networks, and one of ours on the host as the peer."""
    monkeypatch.setitem(speed.PLANS, "gpu", {"resnet50": WORK})
    monkeypatch.setitem(speed.PAIRS, "gpu", 2)
    monkeypatch.setattr(equality, "CASES", equality.CASES[:2])
    monkeypatch.setattr(
        chainer_resnet,
        "training_step",
        lambda *_, **__: speed.ours(CHAINER, "@numpy", WORK),
    )


def on_chainer(records):
    """Return the records of Chainer, as the others have no GPU here."""
    found = [record for record in records if record.get("backend") != "torch"]
    return [record for record in found if record.get("backend") != "jax"]


def test_steps_are_timed_with_the_losses_of_the_host():
    first, ready, time = speed.chainer_steps("gpu")
    ours, on_host = first["first losses"]
    assert ours == pytest.approx(on_host, rel=1e-5)
    assert ready == READY
    assert time["limit"] is not None


def test_replicas_are_equal_and_timed():
    first, ready, time = on_chainer(replicas.twice("gpu"))
    assert first["three steps in float64"] < 1e-12
    assert ready == READY
    assert time["ratio"] > 0


def test_copies_and_waits_are_listed():
    ready, found = on_chainer(copies.traffic("gpu"))
    assert ready == READY
    assert "failed" not in found
    inputs, labels = WORK.data()
    assert found["batch, bytes"] == inputs.nbytes + labels.nbytes


def test_every_network_is_equal_to_that_of_the_host():
    records = list(equality.on_device("gpu", "chainer"))
    assert len(records) == 2 * len(equality.CASES)
    for record in records:
        assert record["outputs"] < LIMITS[record["dtype"]]
        assert record["gradients"] < LIMITS[record["dtype"]]


def test_a_mistake_on_the_device_is_seen(monkeypatch):
    monkeypatch.setattr(equality, "CASES", equality.CASES[1:])
    built = equality.Case.built

    def other_on_the_device(case, backend, device, dtype):
        network = built(case, backend, device, dtype)
        if device == GPU:
            network.neutral_slots()["heads.head.bias"].native.array += 1e-3
        return network

    monkeypatch.setattr(equality.Case, "built", other_on_the_device)
    records = list(equality.on_device("gpu", "chainer"))
    assert all(record["outputs"] > 1e-4 for record in records)


def test_a_network_on_the_device_is_proved(monkeypatch):
    monkeypatch.setattr(proofs, "CASES", equality.CASES[1:])
    (record,) = proofs.proved("gpu", "chainer", "chainer")
    assert record["devices"] == [GPU, GPU]
    assert record["proved"]
