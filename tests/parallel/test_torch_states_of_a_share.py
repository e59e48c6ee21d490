"""What a module of PyTorch's does with its share alone: right in replicas, or refused."""

import copy

import pytest
import torch

from deliralike import DataParallel
from deliralike.errors import CapabilityError

X = torch.linspace(-1, 1, 21, dtype=torch.float64).reshape(7, 3)


class Recurrent(torch.nn.Module):
    """Keeps its state from one call to the next as a plain attribute."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(3, 2)
        self.state = None
        self.calls = 0

    def forward(self, x):
        self.state = self.cell(x, self.state)
        self.calls += 1
        return self.state[0] * self.calls


def test_each_replica_keeps_the_state_of_its_samples_until_it_is_set_anew():
    module = Recurrent().double()
    alone = copy.deepcopy(module)
    network = DataParallel(module, ["cpu"] * 3)
    for step in range(3):
        torch.testing.assert_close(network(X + step), alone(X + step))
    module.state, alone.state = None, None
    torch.testing.assert_close(network(X), alone(X))
    assert [replica.native.calls for replica in network.replicas] == [4, 4, 4]


def test_a_first_operation_in_place_computes_what_one_network_computes():
    module = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(3, 2)).double()
    alone = copy.deepcopy(module)
    network = DataParallel(module, ["cpu"] * 3)
    x, y = X.clone(), X.clone()
    network(x).square().sum().backward()
    alone(y).square().sum().backward()
    torch.testing.assert_close(module[1].weight.grad, alone[1].weight.grad)
    torch.testing.assert_close(x, y)  # both have changed their input


@pytest.mark.parametrize("setting", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_embeddings_that_look_at_the_whole_batch_are_refused(kind, setting):
    module = torch.nn.Sequential(kind(5, 2, **setting), torch.nn.Linear(2, 2))
    (name,) = setting
    with pytest.raises(CapabilityError, match=f"block '0' is an {kind.__name__} with {name}, "):
        DataParallel(module, ["cpu", "cpu"])
