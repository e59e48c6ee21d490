"""What a library above needs of Chainer's links: parameters, copies, pickles, configuration and
files."""

import copy
import pickle
import threading

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import serializers

pytestmark = pytest.mark.filterwarnings("error")


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.features = chainer.Sequential(
                L.Convolution2D(3, 4, 3, stride=2), L.BatchNormalization(4), F.relu
            )
            self.heads = chainer.ChainList(L.Linear(4, 2), L.Linear(4, 3))
            self.scale = chainer.Parameter(1.0, (1,))
        self.not_a_parameter = np.zeros(2)
        self.add_persistent("count", np.zeros(1, "int64"))

    def forward(self, x):
        pooled = F.average(self.features(x), axis=(2, 3))
        return F.concat([head(pooled) for head in self.heads], axis=1) * F.broadcast_to(
            self.scale, (len(x), 5)
        )


@pytest.fixture
def network():
    return Network()


@pytest.fixture
def x(rng):
    return rng.normal(size=(3, 3, 9, 7)).astype("float32")


def _evaluated(network, x):
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return network(x).array


def _trained_a_little(network, x):
    with chainer.using_config("train", True):
        F.sum(network(x)).backward()
    network.count += 1
    return network


def test_only_what_is_set_inside_init_scope_is_registered(network):
    assert sorted(name for name, _ in network.namedparams()) == [
        "/features/0/W",
        "/features/0/b",
        "/features/1/beta",
        "/features/1/gamma",
        "/heads/0/W",
        "/heads/0/b",
        "/heads/1/W",
        "/heads/1/b",
        "/scale",
    ]


def test_links_are_named_by_their_paths(network):
    assert [name for name, _ in network.namedlinks()][:4] == [
        "/",
        "/features",
        "/features/0",
        "/features/1",
    ]


def test_the_gradient_of_a_new_parameter_is_nan_until_it_is_cleared(network):
    assert np.isnan(network.scale.grad).all()
    network.cleargrads()
    assert network.scale.grad is None


def test_a_parameter_made_from_an_array_has_no_gradient_yet_and_cannot_be_drawn_anew():
    link = chainer.Link()
    with link.init_scope():
        link.weight = chainer.Parameter(np.ones(3, "float32"))
    assert link.weight.grad is None
    with pytest.raises(TypeError, match="not callable"):
        link.copy(mode="init")


def test_every_parameter_gets_a_gradient(network, x):
    network.cleargrads()
    _trained_a_little(network, x)
    assert [
        name for name, p in network.namedparams() if p.grad is None or np.isnan(p.grad).any()
    ] == []


@pytest.mark.parametrize(
    ("mode", "shared", "same"),
    [("share", True, True), ("copy", False, True), ("init", False, False)],
)
def test_the_mode_of_a_copy_says_whether_arrays_are_shared(network, mode, shared, same):
    other = network.copy(mode=mode)
    weight, copied = network.heads[0].W, other.heads[0].W
    assert weight is not copied
    assert np.shares_memory(weight.array, copied.array) is shared
    assert np.array_equal(weight.array, copied.array) is same


def test_a_copy_of_mode_share_is_the_default_and_has_its_own_gradients(network, x):
    network.cleargrads()
    other = network.copy()
    _trained_a_little(other, x)
    assert np.shares_memory(network.scale.array, other.scale.array)
    assert network.scale.grad is None and other.scale.grad is not None


@pytest.mark.parametrize("mode", ["share", "copy", "init"])
def test_the_persistent_values_of_a_copy_are_its_own_except_when_shared(network, mode):
    other = network.copy(mode=mode)
    shares = np.shares_memory(network.features[1].avg_mean, other.features[1].avg_mean)
    assert shares is (mode == "share")


def test_a_deep_copy_shares_nothing_and_gives_the_same_output(network, x):
    _trained_a_little(network, x)
    other = copy.deepcopy(network)
    np.testing.assert_array_equal(_evaluated(network, x), _evaluated(other, x))
    for (_, ours), (_, theirs) in zip(network.namedparams(), other.namedparams(), strict=True):
        assert not np.shares_memory(ours.array, theirs.array)
    assert not np.shares_memory(network.features[1].avg_mean, other.features[1].avg_mean)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_comes_back_with_values_statistics_and_names(network, x, protocol):
    _trained_a_little(network, x)
    other = pickle.loads(pickle.dumps(network, protocol))
    np.testing.assert_array_equal(_evaluated(network, x), _evaluated(other, x))
    assert [name for name, _ in network.namedparams()] == [name for name, _ in other.namedparams()]
    assert other.count == 1


def test_a_variable_is_pickled_without_the_graph_behind_it(x):
    y = F.relu(chainer.Variable(x))
    other = pickle.loads(pickle.dumps(y))
    np.testing.assert_array_equal(other.array, y.array)
    assert other.creator is None


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_a_file_keeps_parameters_statistics_and_persistent_values(kind, network, x, tmp_path):
    if kind == "hdf5":
        pytest.importorskip("h5py")
    _trained_a_little(network, x)
    path, other = tmp_path / "network", Network()
    getattr(serializers, f"save_{kind}")(str(path), network)
    getattr(serializers, f"load_{kind}")(str(path), other)
    np.testing.assert_array_equal(_evaluated(network, x), _evaluated(other, x))
    assert other.count == 1


def test_hdf5_strings_are_read_as_strings(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file", "w") as file:
        file["name"] = "Grüße"
        reader = serializers.HDF5Deserializer(file)
        assert reader("name", "") == "Grüße"
        assert reader("name", None) == np.array("Grüße", dtype=object)


def test_hdf5_keeps_none_numbers_and_every_float(tmp_path):
    h5py = pytest.importorskip("h5py")
    values = {
        "none": None,
        "int": 3,
        "float": 0.1,
        "half": np.float16([0.1]),
        "double": np.float64([0.1, 2]),
    }
    with h5py.File(tmp_path / "file", "w") as file:
        writer, reader = serializers.HDF5Serializer(file), serializers.HDF5Deserializer(file)
        for key, value in values.items():
            writer(key, value)
        assert (reader("none", 1), reader("int", 0), reader("float", 0.0)) == (None, 3, 0.1)
        for key in ("half", "double"):
            read = reader(key, np.zeros_like(values[key]))
            assert read.dtype == values[key].dtype and (read == values[key]).all()


def test_a_missing_value_in_a_file_is_an_error_unless_allowed(network, tmp_path):
    serializers.save_npz(tmp_path / "part.npz", network.heads)
    with pytest.raises(KeyError):
        serializers.load_npz(tmp_path / "part.npz", network)
    serializers.load_npz(tmp_path / "part.npz", network, strict=False)


def test_a_lazy_link_takes_its_size_from_the_first_input(tmp_path, x):
    link, other = L.Convolution2D(None, 4, 3), L.Convolution2D(None, 4, 3)
    assert not link.W.is_initialized
    y = link(x).array
    serializers.save_npz(tmp_path / "link.npz", link)
    serializers.load_npz(tmp_path / "link.npz", other)
    np.testing.assert_array_equal(other(x).array, y)


def test_maxout_gives_a_callable_initializer_the_array_in_three_axes(rng):
    shapes = []

    def fill(array):
        shapes.append(array.shape)
        array[...] = np.arange(array.size).reshape(array.shape)

    link = L.Maxout(2, 3, 4, initialW=fill, initial_bias=fill)
    x = rng.normal(size=(5, 2)).astype("float32")
    pre = np.einsum("bi,opi->bop", x, np.arange(24.0).reshape(3, 4, 2)) + np.arange(12.0).reshape(
        3, 4
    )
    assert shapes == [(3, 4, 2), (3, 4)]
    np.testing.assert_allclose(link(x).array, pre.max(2), rtol=1e-5)


def test_a_link_can_be_deleted_and_set_again(network):
    del network.heads
    with network.init_scope():
        network.heads = L.Linear(4, 5)
    assert network.heads in list(network.links())


def test_frozen_parameters_are_passed_over_by_the_optimizer(network, x):
    optimizer = chainer.optimizers.SGD(0.1).setup(network)  # which enables every parameter
    network.heads.disable_update()
    before = {name: p.array.copy() for name, p in network.namedparams()}
    optimizer.update(lambda: F.sum(network(x)))
    changed = {
        name for name, p in network.namedparams() if not np.array_equal(p.array, before[name])
    }
    assert changed and not any(name.startswith("/heads") for name in changed)


def test_to_cpu_and_to_device_keep_the_arrays(network):
    before = network.scale.array
    network.to_device("@numpy")
    assert network.scale.array is before
    assert network.device == chainer.get_device("@numpy")


def test_using_config_is_seen_by_its_own_thread_only():
    seen = []
    with chainer.using_config("train", False):
        thread = threading.Thread(target=lambda: seen.append(chainer.config.train))
        thread.start()
        thread.join()
        seen.append(chainer.config.train)
    assert seen == [True, False]


def test_the_global_configuration_is_seen_by_every_thread():
    seen = []
    chainer.global_config.train = False
    try:
        thread = threading.Thread(target=lambda: seen.append(chainer.config.train))
        thread.start()
        thread.join()
    finally:
        chainer.global_config.train = True
    assert seen == [False]


def test_no_backprop_mode_builds_no_graph(x):
    with chainer.no_backprop_mode():
        assert F.relu(chainer.Variable(x)).creator is None


def test_debug_print_calls_the_device_cpu():
    assert "- device: CPU" in chainer.Variable(np.ones(2, "float32")).debug_print()


def test_the_caffe_description_builds_messages_that_can_be_written_and_read():
    caffe_pb2 = pytest.importorskip("chainer.links.caffe.protobuf3.caffe_pb2")
    net = caffe_pb2.NetParameter(name="net")
    net.layer.add(name="conv", type="Convolution").convolution_param.kernel_size.append(3)
    read = caffe_pb2.NetParameter.FromString(net.SerializeToString())
    assert (read.name, list(read.layer[0].convolution_param.kernel_size)) == ("net", [3])
    assert caffe_pb2.NetParameter.__module__ == "chainer.links.caffe.protobuf3.caffe_pb2"
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
