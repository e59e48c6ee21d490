"""A network of flax as the reference, which is the natural order: the original first."""

import numpy as np
import pytest
import torch
from flax import nnx

from deliralike import Network, backends, zoo
from deliralike.cli.compare import _probe
from deliralike.conformance.levels.semantics import compared, look
from deliralike.conformance.pairs import bring_together
from deliralike.conformance.subject import Subject
from deliralike.errors import AnotherBackend

FIRST = np.random.default_rng(0).standard_normal((5, 2, 4, 3))  # channels first
BATCHES = {"first": FIRST, "last": np.ascontiguousarray(FIRST.transpose(0, 2, 3, 1))}
LABELS = np.array([0, 1, 2, 1, 0])


class Original(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 3, (2, 2), strides=2, padding="VALID", rngs=rngs)

    def __call__(self, x):
        return self.conv(x).mean((1, 2))


class Port(Network):
    def __init__(self, stride=2):
        super().__init__()
        self.conv = self.nn.Conv2d(2, 3, 2, stride=stride)

    def forward(self, x):
        return self.nn.mean(self.conv(x), dim=(2, 3))


def sides_of(layout, backend, **settings):
    network = Port.on(backend, seed=0)(**settings)
    given = [Subject(backends.wrap(one)) for one in (Original(nnx.Rngs(0)), network)]
    return bring_together(given, (BATCHES[layout], LABELS), {})


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
@pytest.mark.parametrize("layout", BATCHES)
def test_the_batch_lies_as_either_side_wants_it(layout, backend):
    sides = sides_of(layout, backend)
    np.testing.assert_array_equal(sides.batch[0], BATCHES["last"])
    looks = [
        look(side, sides.batch, False) for side in (sides.reference, sides.candidate)
    ]
    assert compared(*looks, sides.correspondence).worst < 1e-13


def test_a_port_that_differs_is_not_reported_to_raise():
    sides = sides_of("first", "torch", stride=1)
    looks = [
        look(side, sides.batch, False) for side in (sides.reference, sides.candidate)
    ]
    mode = compared(*looks, sides.correspondence)
    assert mode.differences["output"].difference > 1e-3
    assert not mode.candidate.error


def test_an_argument_of_flax_is_asked_of_the_backend_of_flax():
    name = f"{__file__}:Original"
    with pytest.raises(AnotherBackend, match="needs 'rngs', as networks of jax do"):
        zoo.build(name, backend="torch")
    assert zoo.build(name, backend="jax", seed=0).backend.name == "jax"


def test_the_shape_of_the_command_line_is_turned_to_what_the_network_takes():
    network = backends.wrap(Original(nnx.Rngs(0)))
    architecture = zoo.find(f"{__file__}:Original")
    (inputs, *_), _ = _probe(architecture, network, 5, (2, 4, 3), 0, {})
    assert inputs.shape == (5, 4, 3, 2)
    assert network(inputs).shape == (5, 3)


@pytest.mark.parametrize("padding", ["SAME", "VALID", 2])
@pytest.mark.parametrize("stride", [1, 2, (1, 2)])
@pytest.mark.parametrize(
    ("kernel", "dilation"), [((3, 3), 1), ((3, 2), 1), ((3, 5), (2, 1))]
)
def test_a_convolution_of_flax_is_that_of_pytorch_or_has_no_equivalent(
    padding, stride, kernel, dilation
):
    """Beside PyTorch; with SAME it depends on the size where the stride is not 1 or a span odd."""
    settings = {"strides": stride, "padding": padding, "kernel_dilation": dilation}
    layer = nnx.Conv(2, 4, kernel, feature_group_count=2, rngs=nnx.Rngs(0), **settings)
    found = backends.get("jax").neutral_layer(layer)
    depends_on_size = padding == "SAME" and (stride != 1 or kernel == (3, 2))
    assert (found is None) == depends_on_size
    if found is None:
        return
    name, settings = found
    twin = getattr(torch.nn, name)(2, 4, kernel, **settings)
    twin.weight.data = torch.tensor(
        np.asarray(layer.kernel.get_value()).transpose(3, 2, 0, 1)
    )
    twin.bias.data = torch.tensor(np.asarray(layer.bias.get_value()))
    for size in ((9, 8), (8, 11)):
        x = np.random.default_rng(0).standard_normal((3, 2, *size)).astype(np.float32)
        wanted = twin(torch.tensor(x)).detach().numpy()
        came = np.asarray(layer(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(came, wanted, rtol=1e-4, atol=1e-5)
