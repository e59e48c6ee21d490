"""A network written for one framework alone goes wherever a network written once does."""

import copy

import numpy as np
import pytest

from deliralike import Network, wrap


def torch_network():
    import torch

    class Native(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)

        def forward(self, x):
            return self.out(torch.tanh(self.hidden(x)))

    return Native()


# The constructor that hands its arguments to the base
# -----------------------------------------------------------------------------


def classifier(base):
    """A network as it is written where the base class is told the arguments."""

    class Classification(base):
        def __init__(self, in_channels, n_outputs=2, **kwargs):
            super().__init__(
                in_channels=in_channels, n_outputs=n_outputs, depth=len(kwargs)
            )
            self.fc = self.nn.Linear(in_channels, n_outputs)

        def forward(self, x):
            return self.fc(x)

    return Classification


@pytest.mark.parametrize("is_native", [False, True])
def test_arguments_of_the_bases_constructor_are_recorded(backend, is_native):
    kind = (
        classifier(backend.network_base)
        if is_native
        else classifier(Network).on(backend)
    )
    one, other = kind(4), kind(3, n_outputs=5, dropout=0.5)
    assert one.init_kwargs == {"in_channels": 4, "n_outputs": 2, "depth": 0}
    assert other.init_kwargs == {
        "in_channels": 3,
        "n_outputs": 5,
        "dropout": 0.5,
        "depth": 1,
    }
    assert list(other.neutral_state()) == ["fc.weight", "fc.bias"]
    assert other.neutral_state()["fc.weight"].shape == (5, 3)
    assert copy.deepcopy(other).init_kwargs == other.init_kwargs


def test_links_among_the_arguments_are_children_of_a_chain():
    import chainer

    from deliralike.backends.chainer import AbstractChainerNetwork

    class Pair(AbstractChainerNetwork):
        def __init__(self, width):
            super().__init__(first=chainer.links.Linear(3, width), width=width)

    net = Pair(2)
    assert list(net.neutral_state()) == ["first.weight", "first.bias"]
    assert net.init_kwargs == {"width": 2}


def test_files_of_a_wrapped_module_are_those_of_the_module():
    """By PyTorch's own names too, so that a script writes the same with one process as with
    several."""
    module, other = torch_network(), torch_network()
    state = wrap(module).state_dict()
    assert list(state) == list(module.state_dict())
    wrap(other).load_state_dict(state)
    np.testing.assert_array_equal(other.out.weight.detach(), module.out.weight.detach())


def test_files_of_a_module_that_holds_a_wrapped_one_have_its_names():
    import torch

    module, other = torch_network(), torch_network()
    state = torch.nn.ModuleDict({"body": wrap(module)}).state_dict()
    assert list(state) == [f"body.{name}" for name in module.state_dict()]
    torch.nn.ModuleDict({"body": wrap(other)}).load_state_dict(state)
    np.testing.assert_array_equal(other.out.weight.detach(), module.out.weight.detach())
