"""Programs over the devices of several processes on JAX, here two devices of one process: what
belongs to a spread parameter stays spread, all else comes out whole."""

import jax
import numpy as np

from deliralike.backends.jax.distributed.mesh import ProcessMesh
from deliralike.backends.jax.distributed.process_group import AXIS


class TwoDevices:
    """In the place of two processes that have a device each."""

    count = 2

    def all_gather_object(self, topic, value):
        return [device.id for device in jax.devices("cpu")[:2]]


def test_parts_of_a_spread_parameter_stay_where_they_are():
    mesh = ProcessMesh(TwoDevices(), "cpu")
    rows = mesh.sharding((AXIS, None))
    mesh.sharded = {"fc.weight": ((4, 3), rows)}
    weight = np.arange(12.0, dtype=np.float32).reshape(4, 3)

    def step(w):
        moments = {"fc.weight": (w + 1.0, w[0, 0]), "fc.bias": w[:, 0]}
        return moments, w.sum()

    moments, total = mesh.compile(step)(weight)
    moment, count = moments["fc.weight"]
    assert moment.sharding.is_equivalent_to(rows, 2)
    for part, wanted in zip(
        moment.addressable_shards, (weight[:2], weight[2:]), strict=True
    ):
        np.testing.assert_array_equal(part.data, wanted + 1.0)
    for whole, value in (
        (count, 0.0),
        (moments["fc.bias"], weight[:, 0]),
        (total, 66.0),
    ):
        assert len(whole.devices()) == 1
        np.testing.assert_array_equal(whole, value)
