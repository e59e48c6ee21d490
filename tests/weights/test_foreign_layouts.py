"""What the arrays of flax mean follows from the layer: against flax itself."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, weights, zoo
from deliralike.errors import StateError, UnknownName
from deliralike.weights.matching.layouts import transforms
from tests.conftest import BACKENDS

GENERATOR = np.random.default_rng(0)


def outputs(net, *inputs):
    net.eval()
    backend = net.backend
    return backend.to_numpy(net(*(backend.prepare(each, net) for each in inputs)))


LOADS = {
    "load": lambda net, path: weights.load(net, path),
    "match": lambda net, path: weights.load(net, path, match=True),
    "zoo": lambda net, path: zoo.load(net, path),
}


class Classifier(Network):
    """A picture of 6x5 pixels: convolution, flattened, two dense layers."""

    def __init__(self, channels=4):
        super().__init__()
        self.conv = self.nn.Conv2d(2, channels, 3)
        self.fc1 = self.nn.Linear(channels * 4 * 3, 6)
        self.fc2 = self.nn.Linear(6, 3)

    def forward(self, x):
        x = self.nn.flatten(self.nn.relu(self.conv(x)))
        return self.fc2(self.nn.relu(self.fc1(x)))


PICTURES = GENERATOR.standard_normal((2, 6, 5, 2)).astype(np.float32)
FIRST = np.ascontiguousarray(np.moveaxis(PICTURES, -1, 1))


@pytest.fixture(scope="module")
def linen():
    pytest.importorskip("flax")
    return __import__("flax.linen").linen


@pytest.fixture(scope="module")
def classifier(linen, tmp_path_factory):
    """A file of flax, and what flax computes by it."""
    import jax
    from flax import serialization

    class OfFlax(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.Conv(4, (3, 3), padding="VALID", name="conv")(x))
            x = linen.Dense(6, name="fc1")(x.reshape(len(x), -1))
            return linen.Dense(3, name="fc2")(linen.relu(x))

    net = OfFlax()
    values = net.init(jax.random.PRNGKey(0), PICTURES)
    path = tmp_path_factory.mktemp("flax") / "x.msgpack"
    path.write_bytes(serialization.to_bytes(values))
    return path, np.asarray(net.apply(values, PICTURES))


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_dense_layer_behind_a_flattened_picture_is_open(backend, classifier, load):
    net = Classifier.on(backend, seed=1)()
    before = net.neutral_state()
    with pytest.raises(StateError, match=r"fc1\.weight"):
        load(net, classifier[0])
    assert_array_equal(net.neutral_state()["conv.weight"], before["conv.weight"])


WITHOUT_NETWORK = {
    "read": weights.read,
    "convert": lambda path: weights.convert(path, path.with_suffix(".npz")),
}


@pytest.mark.parametrize("read", WITHOUT_NETWORK.values(), ids=WITHOUT_NETWORK)
@pytest.mark.parametrize("has_picture", [True, False], ids=["a picture", "none"])
def test_a_file_without_a_network_tells_that_a_flattened_layer_lies_as_it_lay(
    read, has_picture, linen, tmp_path, caplog
):
    from flax import serialization

    kernel = np.arange(96.0).reshape(48, 2)
    layers = {"fc1": {"kernel": kernel}}
    if has_picture:
        layers["conv"] = {"kernel": np.ones((3, 3, 2, 4))}
    path = tmp_path / "x.msgpack"
    path.write_bytes(serialization.to_bytes({"params": layers}))
    told = f"{read(path)}{caplog.text}"
    assert ("a dense layer behind a flattened picture, and a" in told) is has_picture
    assert_array_equal(weights.read(path)["fc1.weight"], kernel.T)


@pytest.mark.parametrize("load", [weights.load, zoo.load], ids=["load", "zoo"])
def test_a_guess_takes_pixels_before_channels_as_flax_flattens_them(
    backend, classifier, load
):
    path, wanted = classifier
    net = Classifier.on(backend, seed=1)()
    load(net, path, guess=True)
    assert_allclose(outputs(net, FIRST), wanted, atol=1e-5)


def test_a_guess_with_a_match_takes_pixels_before_channels_too(backend, classifier):
    path, wanted = classifier
    net = Classifier.on(backend, seed=1)()
    weights.load(net, path, match=True, guess=True)
    assert_allclose(outputs(net, FIRST), wanted, atol=1e-5)


class Conditioned(Network):
    """A picture beside a step in time, which a dense layer behind the convolution embeds."""

    def __init__(self, width):
        super().__init__()
        self.conv = self.nn.Conv2d(2, 4, 3)
        self.time = self.nn.Linear(width, 6)
        self.fc1 = self.nn.Linear(4 * 4 * 3, 6)
        self.fc2 = self.nn.Linear(6, 3)

    def forward(self, x, t):
        x = self.nn.flatten(self.nn.relu(self.conv(x)))
        return self.fc2(self.nn.relu(self.fc1(x) + self.time(t)))


@pytest.fixture(scope="module", params=[6, 8], ids=lambda width: f"{width} wide")
def conditioned(linen, tmp_path_factory, request):
    """A file of flax, the inputs, and what flax computes by it."""
    import jax
    from flax import serialization

    class OfFlax(linen.Module):
        @linen.compact
        def __call__(self, x, t):
            x = linen.relu(linen.Conv(4, (3, 3), padding="VALID", name="conv")(x))
            t = linen.Dense(6, name="time")(t)
            x = linen.Dense(6, name="fc1")(x.reshape(len(x), -1))
            return linen.Dense(3, name="fc2")(linen.relu(x + t))

    times = GENERATOR.standard_normal((2, request.param)).astype(np.float32)
    net = OfFlax()
    values = net.init(jax.random.PRNGKey(3), PICTURES, times)
    path = tmp_path_factory.mktemp("flax") / "x.msgpack"
    path.write_bytes(serialization.to_bytes(values))
    return path, times, np.asarray(net.apply(values, PICTURES, times))


def test_a_guess_turns_no_embedding_that_is_no_multiple_of_the_channels(
    conditioned, caplog
):
    path, times, wanted = conditioned
    net = Conditioned.on(BACKENDS[0], seed=1)(times.shape[1])
    weights.load(net, path, guess=True)
    is_equal = np.allclose(outputs(net, FIRST, times), wanted, atol=1e-5)
    assert is_equal == (times.shape[1] % 4 != 0)  # 8 may be pixels of 4 channels
    told = [record.message for record in caplog.records if "a guess" in record.message]
    assert ["time.weight" in line for line in told] == [True, False][is_equal:]
    words = "fc1.weight is taken as usual: its 48 inputs may be pixels of 4 channels"
    assert told[-1].endswith(words)
    as_it_lies = {"time.weight": weights.read(path)["time.weight"]}
    net.load_neutral_state(as_it_lies, strict=False)
    assert_allclose(outputs(net, FIRST, times), wanted, atol=1e-5)


class Up(Network):
    def __init__(self, channels):
        super().__init__()
        self.up = self.nn.ConvTranspose2d(2, channels, 3, 2)

    def forward(self, x):
        return self.up(x)


@pytest.mark.parametrize("channels", [2, 3])
def test_a_transposed_convolution_of_flax_is_turned_around_on_purpose_alone(
    backend, linen, channels, tmp_path
):
    import jax
    from flax import serialization

    theirs = linen.ConvTranspose(channels, (3, 3), strides=(2, 2), padding="VALID")
    values = theirs.init(jax.random.PRNGKey(1), PICTURES)
    path = tmp_path / "x.msgpack"
    path.write_bytes(serialization.to_bytes({"params": {"up": values["params"]}}))
    net = Up.on(backend, seed=1)(channels)
    for load in LOADS.values():
        with pytest.raises(StateError):
            load(net, path)
    wanted = np.moveaxis(np.asarray(theirs.apply(values, PICTURES)), -1, 1)
    for match in (False, True):
        weights.load(net, path, match=match, guess=True)
        assert_allclose(outputs(net, FIRST), wanted, atol=1e-5)


class Dense(Network):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = self.nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.fc(self.nn.flatten(x))


@pytest.mark.parametrize(
    ("size", "features", "axis"),
    [
        ((4,), (2, 3), -1),
        ((2, 3), 4, (-2, -1)),
        ((2, 3), (2, 2), (-2, -1)),
        ((6,), (2, 3), -1),
    ],
    ids=str,
)
def test_a_dense_layer_of_flax_over_several_axes_is_open_and_guessed_as_flax_has_it(
    backend, linen, size, features, axis, tmp_path
):
    import jax
    from flax import serialization

    x = GENERATOR.standard_normal((2, *size)).astype(np.float32)
    theirs = linen.DenseGeneral(features, axis)
    values = theirs.init(jax.random.PRNGKey(4), x)
    path = tmp_path / "x.msgpack"
    path.write_bytes(serialization.to_bytes({"params": {"fc": values["params"]}}))
    net = Dense.on(backend, seed=1)(int(np.prod(size)), int(np.prod(features)))
    with pytest.raises(StateError, match=r"not certain: fc\.weight"):
        weights.load(net, path, match=True)
    weights.load(net, path, match=True, guess=True)
    wanted = np.asarray(theirs.apply(values, x)).reshape(2, -1)
    assert_allclose(outputs(net, x), wanted, atol=1e-5)


class Attention(Network):
    def __init__(self, heads):
        super().__init__()
        self.a = self.nn.MultiheadAttention(8, heads, batch_first=True)

    def forward(self, x):
        return self.a(x, x, x)[0]


@pytest.mark.parametrize("heads", [2, 4])
def test_the_heads_of_flaxs_attention_are_merged_as_flax_has_them(
    linen, heads, tmp_path
):
    import jax
    from flax import serialization

    x = GENERATOR.standard_normal((2, 5, 8)).astype(np.float32)
    theirs = linen.MultiHeadDotProductAttention(num_heads=heads, qkv_features=8)
    values = theirs.init(jax.random.PRNGKey(2), x, x)
    path = tmp_path / "x.msgpack"
    path.write_bytes(serialization.to_bytes({"params": {"a": values["params"]}}))
    net = Attention.on(BACKENDS[0], seed=1)(heads)
    weights.load(net, path, match=True)
    assert_allclose(outputs(net, x), np.asarray(theirs.apply(values, x, x)), atol=1e-5)


def test_weights_that_a_file_has_twice_are_named_and_chosen():
    raw, mean = np.ones((2, 3)), np.zeros((2, 3))

    class Linear(Network):
        def __init__(self):
            super().__init__()
            self.fc = self.nn.Linear(3, 2, bias=False)

    net = Linear.on(BACKENDS[0])()
    state = {"model": {"fc.weight": raw}, "model_ema": {"fc.weight": mean}}
    report = zoo.load(net, state)
    assert "there are weights under 'model', 'model_ema': key=... says which" in str(
        report
    )
    zoo.load(net, state, key="model_ema")
    assert_array_equal(net.neutral_state()["fc.weight"], np.zeros((2, 3)))
    with pytest.raises(UnknownName, match="there are no weights under 'ema'"):
        zoo.load(net, state, key="ema")


@pytest.mark.parametrize("axes", [2, 3, 4, 5])
def test_the_order_of_flax_kernels_is_tried_first_where_all_sizes_are_equal(axes):
    """PyTorch has (out, in, *size), flax (*size, in, out), and (in, out) of a linear layer."""
    plain, *others = transforms((3,) * axes, (3,) * axes)
    assert plain.plain
    kernel = np.arange(3**axes).reshape((3,) * axes)
    wanted = np.moveaxis(kernel, (0, 1), (-1, -2))
    usual = [
        each.apply(kernel) for each in others[: 1 + (axes > 3)]
    ]  # and the way back
    assert any(np.array_equal(each, wanted) for each in usual)
