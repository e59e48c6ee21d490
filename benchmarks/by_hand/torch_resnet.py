"""ResNet-18 and its training step in plain PyTorch."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, width, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        widths = [64, 64, 128, 256, 512]
        for i in range(1, 5):
            blocks = (
                Block(widths[i - 1], widths[i], 1 if i == 1 else 2),
                Block(widths[i], widths[i]),
            )
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def training_step(
    images: np.ndarray, labels: np.ndarray, lr: float = 0.01, momentum: float = 0.9
):
    """A function that makes one training step from host arrays and returns the loss."""
    network = ResNet18()
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)

    def step():
        x, y = torch.from_numpy(images), torch.from_numpy(labels)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def batches(
    images: np.ndarray, labels: np.ndarray, count: int, lr: float, momentum: float
) -> Iterator[None]:
    """Compute batches, of which `count` make an update, one after the other."""
    network = ResNet18()
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    while True:
        optimizer.zero_grad()
        for number in range(count):
            (nn.functional.cross_entropy(network(x), y) / count).backward()
            if number == count - 1:
                optimizer.step()
            yield
