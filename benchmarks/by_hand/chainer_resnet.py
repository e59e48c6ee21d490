"""ResNet-18 and its training step in plain Chainer."""

from collections.abc import Iterator
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class ConvNorm(chainer.Chain):
    def __init__(self, inputs, width, size, stride, pad):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(inputs, width, size, stride, pad, nobias=True)
            self.bn = L.BatchNormalization(width, eps=1e-5)

    def forward(self, x):
        return self.bn(self.conv(x))


class Block(chainer.Chain):
    def __init__(self, inputs, width, stride=1):
        super().__init__()
        with self.init_scope():
            self.a = ConvNorm(inputs, width, 3, stride, 1)
            self.b = ConvNorm(width, width, 3, 1, 1)
            self.downsample = (
                ConvNorm(inputs, width, 1, stride, 0)
                if stride != 1 or inputs != width
                else None
            )

    def forward(self, x):
        y = self.b(F.relu(self.a(x)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(chainer.Chain):
    def __init__(self, classes=1000):
        super().__init__()
        widths = [64, 64, 128, 256, 512]
        with self.init_scope():
            self.stem = ConvNorm(3, 64, 7, 2, 3)
            self.blocks = chainer.Sequential()
            for i in range(1, 5):
                self.blocks.append(Block(widths[i - 1], widths[i], 1 if i == 1 else 2))
                self.blocks.append(Block(widths[i], widths[i]))
            self.fc = L.Linear(512, classes)

    def forward(self, x):
        x = F.max_pooling_2d(F.relu(self.stem(x)), 3, 2, 1, cover_all=False)
        return self.fc(F.mean(self.blocks(x), axis=(2, 3)))


def training_step(
    images: np.ndarray,
    labels: np.ndarray,
    lr: float = 0.01,
    momentum: float = 0.9,
    device: Any = "@numpy",
):
    """A function that makes one training step and returns the loss; the batch is on the device."""
    network = L.Classifier(ResNet18())
    network.compute_accuracy = False
    optimizer = chainer.optimizers.CorrectedMomentumSGD(lr=lr, momentum=momentum).setup(
        network
    )
    images, labels = placed(network, device, images, labels)

    def step():
        optimizer.update(network, images, labels)
        return float(network.loss.array)

    return step


def batches(
    images: np.ndarray, labels: np.ndarray, count: int, lr: float, momentum: float
) -> Iterator[None]:
    """Compute batches, of which `count` make an update, one after the other."""
    network = ResNet18()
    optimizer = chainer.optimizers.CorrectedMomentumSGD(lr=lr, momentum=momentum).setup(
        network
    )
    labels = labels.astype(np.int32)
    while True:
        network.cleargrads()
        for number in range(count):
            (F.softmax_cross_entropy(network(images), labels) / count).backward()
            if number == count - 1:
                optimizer.update()
            yield


def placed(network: chainer.Link, device: Any, images: np.ndarray, labels: np.ndarray):
    """Move a network to a device, and return the batch there."""
    place = chainer.get_device(device)
    network.to_device(place)
    return place.send(images), place.send(labels.astype(np.int32))
