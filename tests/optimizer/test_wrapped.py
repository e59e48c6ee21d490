"""An optimizer of the framework's own that is none, or another network's, is refused."""

import optax
import pytest
import torch
from flax import nnx

from deliralike import backends, zoo
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import ArgumentError, OptimizerError
from deliralike.optim.rules import rule

CLASSES = {
    "torch": torch.optim.Adam,
    "chainer": chainer.optimizers.Adam,
    "jax": optax.adam,
}


def perceptron(backend):
    return zoo.build(
        "mlp", backend=backend.name, in_features=3, out_features=2, hidden=(4,)
    )


def test_a_name_or_a_class_is_no_optimizer(backend):
    network = perceptron(backend)
    for wrong in ("adam", CLASSES[backend.name], None):
        with pytest.raises(
            OptimizerError, match=r"wrap_optimizer got .*, wanted .*[aA]dam\("
        ):
            backend.wrap_optimizer(wrong, network)


def test_an_optimizer_of_flax_is_refused_with_what_to_give():
    network = perceptron(backends.get("jax"))
    native = nnx.Optimizer(network, optax.sgd(0.1), wrt=nnx.Param)
    with pytest.raises(OptimizerError, match=r"give its own, optimizer\.tx"):
        network.backend.wrap_optimizer(native, network)


@pytest.mark.parametrize("name", ["torch", "chainer"])
def test_an_optimizer_over_another_network_is_refused(name):
    network, other = (perceptron(backends.get(name)) for _ in range(2))
    if name == "torch":
        native = torch.optim.SGD(other.parameters(), lr=0.1)
    else:
        native = chainer.optimizers.SGD().setup(other)
    with pytest.raises(ArgumentError, match="holds none of the network's parameters"):
        network.backend.wrap_optimizer(native, network)


def test_an_optimizer_over_lazy_layers_of_pytorch_steps_as_in_a_loop_by_hand():
    def lazy():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.Linear(3, 1))
        return network, torch.optim.SGD(network.parameters(), lr=0.1)

    x = torch.arange(10.0).reshape(2, 5)
    by_hand, native = lazy()
    by_hand(x).mean().backward()
    native.step()
    network, native = lazy()
    backend = backends.get("torch")
    wrapped = backend.wrap_optimizer(native, backend.wrap(network))
    wrapped.update(lambda network, x: network(x).mean(), x)
    for name, value in by_hand.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value)


@pytest.mark.parametrize("wrong", [3.0, None, {"loss": 3.0}])
def test_a_loss_that_is_no_array_is_refused(backend, wrong):
    network = perceptron(backend)
    optimizer = backend.optimizer(rule("sgd", lr=0.1), network)
    with pytest.raises(ArgumentError, match="of which no gradient can be computed"):
        optimizer.update(lambda network: wrong)
