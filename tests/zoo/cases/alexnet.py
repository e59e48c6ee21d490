"""AlexNet, beside torchvision's, with smaller linear layers."""

from functools import partial

import torch
from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
AlexNet = Later("torchvision.models.AlexNet")

FULL = {"alexnet": partial(get_model, "alexnet")}


def reference():
    """Torchvision's convolutions; its linear layers have no settings, so they are put in here."""
    with torch.device("meta"):
        net = AlexNet()
    net.features.to_empty(device="cpu").apply(
        lambda layer: getattr(layer, "reset_parameters", list)()
    )
    net.classifier = nn.Sequential(
        nn.Dropout(0.0),
        nn.Linear(9216, 12),
        nn.ReLU(),
        nn.Dropout(0.0),
        nn.Linear(12, 12),
        nn.ReLU(),
        nn.Linear(12, 5),
    )
    return net


CASES = [
    Case(
        "alexnet",
        {"num_classes": 5, "dropout": 0.0, "hidden": 12},
        (3, 63, 70),
        reference=reference,
    )
]
