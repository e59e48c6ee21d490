"""Some epochs of the same small network by other trainers: Lightning, Accelerate and Keras 3."""

import logging
import os
import warnings
from collections.abc import Callable

import numpy as np

from benchmarks.by_hand.torch_loop import mlp
from tests.references import allow_torchvision


def lightning(
    inputs: np.ndarray,
    labels: np.ndarray,
    batch: int,
    hidden: int,
    lr: float,
    momentum: float,
    epochs: int,
):
    """Return a function that trains by Lightning's Trainer without its logging and checkpoints.

    Everything that is not training is switched off.
    """
    allow_torchvision()  # which Lightning imports
    import lightning
    import torch
    import torch.nn.functional as F

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Small(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = mlp(inputs[0].size, hidden)

        def training_step(self, batch, _):
            x, y = batch
            return F.cross_entropy(self.network(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=lr, momentum=momentum)

    module, loader = Small(), _torch_loader(inputs, labels, batch)
    off = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }

    def train():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lightning.Trainer(
                max_epochs=epochs, accelerator="cpu", barebones=False, **off
            ).fit(module, loader)

    return train


def accelerate(
    inputs: np.ndarray,
    labels: np.ndarray,
    batch: int,
    hidden: int,
    lr: float,
    momentum: float,
    epochs: int,
):
    """A function that trains by a loop around Accelerate, reading each loss."""
    import torch
    import torch.nn.functional as F
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    network = mlp(inputs[0].size, hidden)
    made = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    network, optimizer, loader = accelerator.prepare(
        network, made, _torch_loader(inputs, labels, batch)
    )

    def train():
        network.train()
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(network(x), y)
                accelerator.backward(loss)
                optimizer.step()
                loss.item()

    return train


def keras(
    inputs: np.ndarray,
    labels: np.ndarray,
    batch: int,
    hidden: int,
    lr: float,
    momentum: float,
    epochs: int,
):
    """A function that trains by Keras 3 on JAX."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    network = keras.Sequential(
        [
            keras.layers.Input(inputs.shape[1:]),
            keras.layers.Flatten(),
            keras.layers.Dense(hidden, "relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.SGD(lr, momentum), loss)
    whole = len(inputs) // batch * batch
    return lambda: network.fit(
        inputs[:whole], labels[:whole], batch, epochs=epochs, verbose=0
    )


PEERS: dict[str, Callable] = {
    "torch, Lightning": lightning,
    "torch, Accelerate": accelerate,
    "JAX, Keras 3": keras,
}


def _torch_loader(inputs: np.ndarray, labels: np.ndarray, batch: int):
    import torch

    dataset = torch.utils.data.TensorDataset(
        torch.from_numpy(inputs), torch.from_numpy(labels)
    )
    return torch.utils.data.DataLoader(dataset, batch, shuffle=True, drop_last=True)
