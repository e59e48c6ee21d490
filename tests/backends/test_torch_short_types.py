"""Mixed precision on PyTorch on CPUs, where oneDNN's kernels of shorter types are not right."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, backends, checkpoint_blocks, nest
from deliralike.optim.rules import rule

# (function, sizes of data, of the filter, further arguments): filters that reach over their data
WIDE = {
    "1d": (F.conv1d, (1,), (3,), {"padding": 1, "stride": 2}),
    "2d": (F.conv2d, (5, 1), (3, 3), {"padding": 1, "stride": 2}),
    "3d": (F.conv3d, (2, 2, 2), (3, 3, 3), {"padding": 1}),
    "3d, uneven": (F.conv3d, (4, 1, 5), (3, 3, 3), {"padding": 1, "stride": 2}),
    "3d, dilated": (F.conv3d, (3, 3, 3), (3, 3, 3), {"padding": 2, "dilation": 2}),
    "2d, strided": (F.conv2d, (8, 2), (3, 2), {"padding": 1, "stride": (1, 3)}),
    "transposed 1d": (F.conv_transpose1d, (3,), (5,), {"padding": 4, "stride": 2}),
    "transposed 3d": (F.conv_transpose3d, (2, 2, 2), (2, 2, 2), {"padding": 1}),
    "transposed 3d, strided": (
        F.conv_transpose3d,
        (2, 2, 2),
        (5, 5, 5),
        {"padding": 2, "stride": 2},
    ),
}


def gradient(function, weight, x, short, **settings):
    """Return the gradient of the weight under a loss that weights each output."""
    weight = weight.clone().requires_grad_()
    if short:
        with backends.get("torch").computing_in("bfloat16", "cpu"):
            y = function(x, weight, **settings)
        assert y.dtype == torch.bfloat16
    else:
        y = function(x, weight, **settings)
    factors = torch.linspace(-1, 2, y.numel()).reshape(y.shape)
    (y.float() * factors).sum().backward()
    return weight.grad


@pytest.mark.parametrize("name", WIDE)
def test_gradients_of_filters_that_reach_over_their_data(name):
    """They are those of float32, where oneDNN's hold what was in memory (PyTorch 2.13)."""
    function, data, filters, settings = WIDE[name]
    inputs, outputs = (32, 16) if "transposed" in name else (16, 32)
    generator = torch.Generator().manual_seed(5)
    # as many numbers as an earlier array had, so that memory that is left as it is holds some
    for _ in range(3):
        full = torch.full((1 << 16,), 7e30)
        x = torch.randn(2, 16, *data, generator=generator)
        pair = (16, outputs) if "transposed" in name else (outputs, inputs)
        weight = torch.randn(*pair, *filters, generator=generator)
        del full
        exact = gradient(function, weight, x, short=False, **settings)
        short = gradient(function, weight, x, short=True, **settings)
        assert_allclose(short, exact, rtol=0.03, atol=0.03 * exact.abs().max())


def test_outputs_of_several_filters_for_each_channel():
    """In memory with channels last oneDNN's are wrong by 30 to 85 % (PyTorch 2.13)."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(1, 8, 2, 4, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(16, 1, 1, 4, generator=generator)
    with backends.get("torch").computing_in("bfloat16", "cpu"):
        y = F.conv2d(x, weight, stride=(1, 2), groups=8)
    assert y.dtype == torch.bfloat16
    exact = F.conv2d(x.double(), weight.double(), stride=(1, 2), groups=8)
    torch.testing.assert_close(y.double(), exact, rtol=0.01, atol=0.01)


class Bottleneck(torch.nn.Module):
    """A class of PyTorch's own, with a small volume in its middle."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv3d(1, 16, 3, stride=2, padding=1)
        self.middle = torch.nn.Conv3d(16, 24, 3, padding=1)
        self.head = torch.nn.Linear(24, 3)

    def forward(self, x):
        y = F.relu(self.middle(F.relu(self.down(x))))
        return self.head(y.mean((2, 3, 4)))


def native_loss(network, x, labels):
    return network.nn.cross_entropy(network(x), labels)


def batch():
    generator = np.random.default_rng(3)
    x = generator.normal(size=(4, 1, 4, 4, 4)).astype(np.float32)
    return x, np.array([0, 2, 1, 0])


def updated(change=lambda network: None, compiled=False, precision="bfloat16"):
    """Return the weights of a class of PyTorch's own after one update."""
    torch.manual_seed(0)
    network = backends.get("torch").wrap(Bottleneck())
    change(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=1.0), network)
    if precision is not None:
        optimizer.compute_in(precision)
    if compiled:
        optimizer.compile()
    optimizer.update(native_loss, *batch())
    return nest.map_where(lambda _: True, np.asarray, network.neutral_state())


@pytest.mark.parametrize("compiled", [False, True])
def test_a_class_of_pytorchs_own_learns_as_in_float32(compiled):
    """Its middle is 2 x 2 x 2 voxels large, and its filters 3 x 3 x 3."""
    exact, short = updated(precision=None), updated(compiled=compiled)
    for name, value in exact.items():
        assert_allclose(short[name], value, rtol=0.05, atol=0.02, err_msg=name)


def test_checkpointed_blocks_are_computed_again_in_the_same_types():
    plain = updated()
    again = updated(lambda network: checkpoint_blocks(network, "middle"))
    for name, value in plain.items():
        assert_array_equal(again[name], value, err_msg=name)


class Tagger(Network):
    """A recurrent network."""

    def __init__(self):
        super().__init__()
        self.lstm = self.nn.LSTM(3, 5, batch_first=True)
        self.head = self.nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("own", [False, True])
def test_an_lstm_learns_in_shorter_types(precision, own):
    """PyTorch's own in a module of its own, and the layer of `nn`."""
    x = np.random.default_rng(2).normal(size=(4, 7, 3)).astype(np.float32)
    states = []
    for each in (None, precision):
        network = Tagger.on("torch")()
        if own:
            layer = torch.nn.LSTM(3, 5, batch_first=True)
            layer.load_state_dict(network.lstm.state_dict())
            network.lstm = layer
        optimizer = network.backend.optimizer(rule("sgd", lr=1.0), network)
        if each is not None:
            optimizer.compute_in(each)
        optimizer.update(native_loss, x, np.array([0, 2, 1, 0]))
        states.append(network.neutral_state())
    for name, value in states[0].items():
        assert_allclose(states[1][name], value, atol=0.02, err_msg=name)


def test_a_convolution_by_names_of_its_arguments():
    x, weight = torch.randn(2, 16, 2, 2, 2), torch.randn(8, 16, 3, 3, 3)
    with backends.get("torch").computing_in("bfloat16"):
        y = F.conv3d(input=x, weight=weight, padding=(1,), stride=[1])
    torch.testing.assert_close(
        y.float(), F.conv3d(x, weight, padding=1), rtol=0.01, atol=0.01
    )


def test_an_lstm_in_double_precision_stays_as_it_is():
    layer, x = torch.nn.LSTM(3, 5, dtype=torch.float64), torch.randn(4, 2, 3).double()
    with backends.get("torch").computing_in("float16", "cpu"):
        y, _ = layer(x)
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, layer(x)[0])


def test_complex_convolutions_stay_as_they_are():
    x = torch.randn(2, 3, 2, dtype=torch.complex64)
    weight = torch.randn(4, 3, 3, dtype=torch.complex64)
    with backends.get("torch").computing_in("bfloat16", "cpu"):
        y = F.conv1d(x, weight, padding=1)
    torch.testing.assert_close(y, F.conv1d(x, weight, padding=1))
