"""Layers take a batch of no samples, as PyTorch's do."""

import numpy as np
import pytest
import torch

from deliralike.errors import ShapeError
from tests.nn.agreement import FunctionCase, LayerCase, agree_all, hold

RECURRENT = {"input_size": 3, "hidden_size": 2}
LAYERS = {
    "LayerNorm": ({"normalized_shape": 3}, (0, 4, 3)),
    "GroupNorm": ({"num_groups": 2, "num_channels": 4}, (0, 4, 3)),
    "InstanceNorm2d": ({"num_features": 4}, (0, 4, 3, 3)),
    "LSTM": (RECURRENT | {"bidirectional": True}, (4, 0, 3)),
    "GRU": (RECURRENT, (4, 0, 3)),
    "RNN": (RECURRENT, (4, 0, 3)),
    "Conv2d": ({"in_channels": 2, "out_channels": 4, "kernel_size": 3}, (0, 2, 5, 5)),
    "MaxPool2d": ({"kernel_size": 2}, (0, 2, 5, 5)),
    "Linear": ({"in_features": 3, "out_features": 2}, (0, 3)),
}

PLACES = np.zeros((0, 2, 3, 3), int)
CASES = {
    "max_unpool": LayerCase("MaxUnpool2d", {"kernel_size": 2}, [PLACES + 0.0, PLACES]),
    "bags": LayerCase(
        "EmbeddingBag",
        {"num_embeddings": 5, "embedding_dim": 3, "mode": "max"},
        [np.zeros((0, 4), int)],
    ),
    "grid_sample": FunctionCase(
        lambda nn, x, grid: nn.grid_sample(x, grid, align_corners=False),
        lambda x, grid: torch.nn.functional.grid_sample(x, grid, align_corners=False),
        [np.zeros((0, 2, 3, 3)), np.zeros((0, 4, 4, 2))],
    ),
}


def test_instance_norm_of_no_sample_keeps_its_running_statistics(name):
    settings = {"args": (4,), "track_running_stats": True}
    network = hold(name, "InstanceNorm2d", settings).eval()
    (x,) = network.backend.prepare((np.zeros((0, 4, 3, 3)),), network)
    assert tuple(network.layer(x).shape) == (0, 4, 3, 3)
    network.train()
    with pytest.raises(ShapeError, match="InstanceNorm2d at 'layer': batch statistics"):
        network.layer(x)
    assert np.isfinite(network.neutral_state()["layer.running_mean"]).all()


def test_an_empty_batch_has_empty_outputs_and_gradients_of_zero(name):
    cases = {}
    for layer, (settings, shape) in LAYERS.items():
        cases[layer] = LayerCase(layer, settings, [np.zeros(shape)])
    agree_all(name, cases | CASES)
