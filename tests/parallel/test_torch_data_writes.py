"""Weights that are written by ``.data``, which PyTorch's versions do not count."""

import pytest
import torch
from torch.nn.utils import prune

from deliralike import DataParallel

X = torch.linspace(-1, 1, 21, dtype=torch.float64).reshape(7, 3)


def clamp(module):
    module.weight.data.clamp_(-0.1, 0.1)


def replace(module):
    module.weight.data = module.weight.data * 2


def remove_pruning(module):
    prune.random_unstructured(module, "weight", amount=3)
    module.weight_orig.data.fill_(1.0)
    prune.remove(module, "weight")


@pytest.mark.parametrize("change", [clamp, replace, remove_pruning])
def test_they_reach_the_replicas_at_the_next_call(change):
    module = torch.nn.Linear(3, 2).double()
    network = DataParallel(module, ["cpu", "cpu"])
    network(X)
    change(module)
    torch.testing.assert_close(network(X), module(X))
