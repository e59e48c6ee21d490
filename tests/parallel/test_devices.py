"""Replicas on every kind of device present, against one network there and against the host.

The host is checked in the same way, so that these tests are known to work where no accelerator is
at hand.
"""

import numpy as np
import pytest

from deliralike import DataParallel, backends, in_replicas, parallel, random
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.conftest import BACKENDS
from tests.losses import cross_entropy
from tests.parallel.networks import Convolutional, device_of, images_of

HOSTS = ("cpu", "@numpy")


@pytest.fixture(
    params=[(name, kind) for name in BACKENDS for kind in ("host", "accelerator")],
    ids="-".join,
)
def place(request):
    """A backend and one of its devices."""
    name, kind = request.param
    backend = backends.get(name)
    found = [
        device
        for device in backend.devices()
        if device.startswith(HOSTS) == (kind == "host")
    ]
    if not found:
        pytest.skip(f"backend {name!r} finds no accelerator on this machine")
    return backend, found[0]


def trained(backend, device, count, loss, **settings):
    """The state after three steps in portable mode, with dropout and batch normalisation."""
    network = Convolutional.on(backend, seed=3, dtype="float64", device=device)()
    network = DataParallel(network, [device] * count, **settings)
    optimizer = backend.optimizer(rule("adam", lr=0.01), network)
    for step in range(3):
        with random.portable(7, step):
            optimizer.update(loss, *images_of(7, seed=step))
    return network.neutral_state()


@pytest.mark.parametrize(
    "loss", [cross_entropy, in_replicas(cross_entropy)], ids=["gathered", "in replicas"]
)
def test_replicas_on_a_device_equal_one_network_there_and_on_the_host(place, loss):
    backend, device = place
    single = trained(backend, device, 1, cross_entropy)
    same_named(trained(backend, device, 3, loss, buffers="sync"), single, 1e-11)
    host = next(each for each in backend.devices() if each.startswith(HOSTS))
    same_named(single, trained(backend, host, 1, cross_entropy), 1e-9)


def test_replicas_own_their_storage_there(place):
    backend, device = place
    network = DataParallel(Convolutional.on(backend, device=device)(), [device] * 2)
    before = network.replicas[1].neutral_state()
    slot = network.neutral_slots()["fc.weight"]
    slot.write(slot.read() + 1.0)
    same_named(network.replicas[1].neutral_state(), before, 0)
    network.copy_parameters()
    same_named(network.replicas[1].neutral_state(), network.neutral_state(), 0)


def test_shares_lie_on_the_devices_and_outputs_where_they_are_wanted(place):
    backend, device = place
    host = next(each for each in backend.devices() if each.startswith(HOSTS))
    batch = {"x": backend.array(np.arange(7.0), device=host), "flag": True}
    shares = parallel.scatter(batch, [device] * 3, backend=backend)
    assert [device_of(backend, share["x"]) for share in shares] == [device] * 3
    gathered = parallel.gather(shares, device=host, backend=backend)
    assert device_of(backend, gathered["x"]) == host
    np.testing.assert_array_equal(backend.numpy(gathered["x"]), np.arange(7.0))
