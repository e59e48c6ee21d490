"""Perceptrons and LeNet, beside what their papers say, written with PyTorch's functions."""

from functools import partial

import torch.nn.functional as F
from torch import nn

from tests.zoo.case import Case


class Perceptron(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        pairs = zip(widths[:-1], widths[1:], strict=True)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.dropout(F.gelu(layer(x)))
        return self.layers[-1](x)


class LeNet(nn.Module):
    """For images of 21 by 21."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = (
            nn.Linear(144, 120),
            nn.Linear(120, 84),
            nn.Linear(84, 10),
        )

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


CASES = [
    Case(
        "mlp",
        {
            "in_features": 7,
            "out_features": 3,
            "hidden": (9, 5),
            "activation": "gelu",
            "dropout": 0.0,
        },
        batch=5,
        reference=partial(Perceptron, 7, 9, 5, 3),
    ),
    Case("lenet", {"image_size": 21}, batch=3, reference=LeNet),
]
