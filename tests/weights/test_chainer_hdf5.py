"""Weights that Chainer's own serializer has written into an HDF5 file."""

import numpy as np
import pytest

from deliralike import backends, weights, zoo

pytest.importorskip("h5py")
backends.get("chainer")

import chainer  # noqa: E402
import chainer.links as L  # noqa: E402


class Native(chainer.Chain):
    """Links with parameters, statistics, and a parameter that has no value."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 2, 3)
            self.norm = L.BatchNormalization(2)
            self.head = L.Linear(2, 3)


def test_a_native_chain_is_read_under_neutral_names(tmp_path, caplog):
    chain = Native()
    chain.norm.avg_var[...] = 3.0
    chainer.serializers.save_hdf5(str(tmp_path / "x.h5"), chain)
    read = weights.read(tmp_path / "x.h5")
    wanted = backends.get("chainer").wrap(chain).neutral_state()
    assert set(read) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(read[name], value)
    assert "names taken for Chainer's" in caplog.text


def test_a_network_of_the_zoo_comes_back_on_another_backend(tmp_path):
    network = zoo.build("lenet", backend="chainer", image_size=16)
    chainer.serializers.save_hdf5(str(tmp_path / "x.h5"), network)
    other = zoo.build("lenet", backend="torch", image_size=16, seed=1)
    weights.load(other, tmp_path / "x.h5")
    for name, value in network.neutral_state().items():
        np.testing.assert_array_equal(other.neutral_state()[name], value)


def test_a_value_that_was_none_is_left_out(tmp_path):
    chain = Native()
    chain.add_persistent("nothing", None)
    chainer.serializers.save_hdf5(str(tmp_path / "x.h5"), chain)
    assert "nothing" not in weights.read(tmp_path / "x.h5")
