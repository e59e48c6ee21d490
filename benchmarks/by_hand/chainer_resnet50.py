"""Chainer's own ResNet-50 and its training step."""

from typing import Any

import chainer
import chainer.functions as F
import numpy as np
from chainer.links import ResNet50Layers

from benchmarks.by_hand.chainer_resnet import placed


def forward(images: np.ndarray):
    """A function that evaluates the network."""
    network = ResNet50Layers(pretrained_model=None)

    def run():
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            return network(images, layers=["fc6"])["fc6"].array

    return run


def training_step(
    images: np.ndarray,
    labels: np.ndarray,
    lr: float = 0.01,
    momentum: float = 0.9,
    device: Any = "@numpy",
):
    """A function that makes one training step and returns the loss."""
    network = ResNet50Layers(pretrained_model=None)
    images, labels = placed(network, device, images, labels)
    optimizer = chainer.optimizers.MomentumSGD(lr, momentum).setup(network)

    def step():
        loss = F.softmax_cross_entropy(network(images, layers=["fc6"])["fc6"], labels)
        network.cleargrads()
        loss.backward()
        optimizer.update()
        return float(loss.array)

    return step
