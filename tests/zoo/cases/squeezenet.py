"""SqueezeNet, beside torchvision's, with fewer and narrower blocks."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
Fire = Later("torchvision.models.squeezenet.Fire")
SqueezeNet = Later("torchvision.models.squeezenet.SqueezeNet")

NAMES = ("squeezenet1_0", "squeezenet1_1")
FULL = {name: partial(get_model, name) for name in NAMES}

SMALL = {
    "plan": (None, (4, 6), None, (5, 8), (4, 7)),
    "kernel": 7,
    "width": 8,
    "dropout": 0.0,
}


def reference():
    """Torchvision's class has no settings for its blocks, so they are put in here."""
    net = SqueezeNet("1_0", 5, 0.0)
    net.features = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(8, 4, 6, 6),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        Fire(12, 5, 8, 8),
        Fire(16, 4, 7, 7),
    )
    net.classifier[1] = nn.Conv2d(14, 5, 1)
    return net


CASES = [
    Case(
        "squeezenet1_0",
        SMALL | {"num_classes": 5},
        (3, 13, 28),
        reference=reference,
        covers=NAMES,
    ),
    Case(
        "squeezenet1_0",
        SMALL | {"num_classes": 0, "dims": 1, "plan": (None, (4, 6))},
        (3, 13),
        of="in 1d, headless",
    ),
]
