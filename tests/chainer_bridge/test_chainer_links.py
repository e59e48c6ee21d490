"""Links and files that the bridge corrects."""

import pickle

import chainer
import chainer.links as L
import numpy as np
import pytest
from chainer import serializers

from deliralike import zoo

pytestmark = pytest.mark.filterwarnings("error")


def test_hdf5_strings_are_read_as_strings(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file", "w") as file:
        file["name"] = "Grüße"
        reader = serializers.HDF5Deserializer(file)
        assert reader("name", "") == "Grüße"
        assert reader("name", None) == np.array("Grüße", dtype=object)


def test_chainer_reads_its_hdf5_files_into_a_network_of_the_zoo(tmp_path):
    pytest.importorskip("h5py")
    network, other = (
        zoo.build("lenet", backend="chainer", image_size=16, seed=seed)
        for seed in (0, 1)
    )
    serializers.save_hdf5(str(tmp_path / "x.h5"), network)
    serializers.load_hdf5(str(tmp_path / "x.h5"), other)
    np.testing.assert_equal(other.neutral_state(), network.neutral_state())


def test_maxout_gives_a_callable_initializer_the_array_in_three_axes(rng):
    shapes = []

    def fill(array):
        shapes.append(array.shape)
        array[...] = np.arange(array.size).reshape(array.shape)

    link = L.Maxout(2, 3, 4, initialW=fill, initial_bias=fill)
    x = rng.normal(size=(5, 2)).astype("float32")
    pre = np.einsum("bi,opi->bop", x, np.arange(24.0).reshape(3, 4, 2)) + np.arange(
        12.0
    ).reshape(3, 4)
    assert shapes == [(3, 4, 2), (3, 4)]
    np.testing.assert_allclose(link(x).array, pre.max(2), rtol=1e-5)


def test_debug_print_calls_the_device_cpu():
    assert "- device: CPU" in chainer.Variable(np.ones(2, "float32")).debug_print()


def test_the_caffe_description_builds_messages_that_can_be_written_and_read():
    caffe_pb2 = pytest.importorskip("chainer.links.caffe.protobuf3.caffe_pb2")
    net = caffe_pb2.NetParameter(name="net")
    net.layer.add(name="conv", type="Convolution").convolution_param.kernel_size.append(
        3
    )
    read = caffe_pb2.NetParameter.FromString(net.SerializeToString())
    assert (read.name, list(read.layer[0].convolution_param.kernel_size)) == (
        "net",
        [3],
    )
    assert (
        caffe_pb2.NetParameter.__module__ == "chainer.links.caffe.protobuf3.caffe_pb2"
    )
    assert pickle.loads(pickle.dumps(net)) == net


def test_a_caffe_model_runs(tmp_path):
    caffe_pb2 = pytest.importorskip("chainer.links.caffe.protobuf3.caffe_pb2")
    from chainer.links.caffe import CaffeFunction

    net = caffe_pb2.NetParameter()
    layer = net.layer.add(name="fc", type="InnerProduct", bottom=["x"], top=["y"])
    layer.inner_product_param.num_output = 2
    layer.inner_product_param.bias_term = False
    layer.blobs.add(data=[1, 2, 3, 4, 5, 6], shape={"dim": [2, 3]})
    path = tmp_path / "net.caffemodel"
    path.write_bytes(net.SerializeToString())
    (y,) = CaffeFunction(str(path))({"x": np.ones((1, 3), "float32")}, ["y"])
    np.testing.assert_array_equal(y.array, [[6, 15]])
