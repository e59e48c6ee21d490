"""What ``state_dict`` leaves out or copies is trained and saved, as in a loop of PyTorch alone."""

import copy

import pytest
import torch

from deliralike import DataParallel, rules, weights, wrap
from deliralike.errors import StateError

X = torch.linspace(-1, 1, 21).reshape(7, 3)
Y = torch.linspace(0, 1, 14).reshape(7, 2)


class Adapted(torch.nn.Module):
    """A frozen base with an adapter, as libraries of adapters write it."""

    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(3, 2)
        self.adapter = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.base(x) + self.adapter(x)


class WithoutAdapter(Adapted):
    def __init__(self):
        super().__init__()
        self.register_state_dict_post_hook(drop_adapter)


class Cloned(Adapted):
    def state_dict(self, *args, **kwargs):
        return {
            name: value.clone()
            for name, value in super().state_dict(*args, **kwargs).items()
        }


class Plain(Adapted):
    def state_dict(self):
        return super().state_dict()


def drop_adapter(module, state, *_):
    for name in [name for name in state if "adapter" in name]:
        del state[name]


def loss(network, x, y):
    return ((network(x) - y) ** 2).mean()


@pytest.mark.parametrize("kind", [WithoutAdapter, Cloned, Plain])
@pytest.mark.parametrize("replicas", [1, 2])
def test_every_parameter_is_trained_as_by_torch_optim_whatever_state_dict_gives(
    kind, replicas
):
    torch.manual_seed(0)
    module = kind()
    by_hand = copy.deepcopy(module)
    native = torch.optim.SGD(by_hand.parameters(), lr=0.5)
    network = (
        wrap(module) if replicas == 1 else DataParallel(module, ["cpu"] * replicas)
    )
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.5), network)
    for _ in range(2):
        native.zero_grad()
        loss(by_hand, X, Y).backward()
        native.step()
        optimizer.update(loss, X.numpy(), Y.numpy())
    for own, wanted in zip(module.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(own, wanted)


class Scaled(torch.nn.Module):
    """A module with an extra state, as quantisation and scaling layers have."""

    def __init__(self, extra):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.extra = extra

    def forward(self, x):
        return self.linear(x)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


@pytest.mark.parametrize(
    "extra",
    [
        {"scale": 2.5, "history": torch.arange(3.0), "scheme": "int8"},
        torch.ones(2, 2, dtype=torch.bfloat16),
        7,
        None,
    ],
)
def test_an_extra_state_goes_out_and_in_whatever_the_other_module_has(extra, tmp_path):
    weights.write(tmp_path / "scaled.safetensors", wrap(Scaled(extra)))
    other = Scaled({"an": "older form"})
    weights.load(wrap(other), tmp_path / "scaled.safetensors")
    assert repr(other.extra) == repr(extra)


def test_an_extra_state_that_cannot_be_read_safely_is_refused_by_its_module():
    with pytest.raises(
        StateError, match="extra state of Scaled cannot be .* let get_extra_state"
    ):
        wrap(Scaled({"object": Scaled(1)})).neutral_state()
