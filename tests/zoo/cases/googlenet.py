"""GoogLeNet, beside torchvision's, with fewer and narrower blocks."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
GoogLeNet = Later("torchvision.models.googlenet.GoogLeNet")
Inception = Later("torchvision.models.googlenet.Inception")
InceptionAux = Later("torchvision.models.googlenet.InceptionAux")

FULL = {"googlenet": partial(get_model, "googlenet", init_weights=False)}

BLOCKS = {
    "3a": (4, 3, 5, 2, 3, 4),
    "4a": (3, 4, 5, 3, 4, 2),
    "4d": (5, 2, 6, 3, 3, 4),
    "5a": (4, 5, 6, 2, 3, 3),
}


def reference():
    """Torchvision's class has no settings for its blocks, so they are put in here."""
    net = GoogLeNet(5, init_weights=False, dropout=0.0, transform_input=True)
    for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        setattr(net, f"inception{name}", nn.Identity())
    width = 192
    for name, (one, inside, two, inside_three, three, pooled) in BLOCKS.items():
        setattr(
            net,
            f"inception{name}",
            Inception(width, one, inside, two, inside_three, three, pooled),
        )
        width = one + two + three + pooled
    net.aux1, net.aux2 = (
        InceptionAux(14, 5, dropout=0.0),
        InceptionAux(18, 5, dropout=0.0),
    )
    net.fc = nn.Linear(width, 5)
    return net


def call(net, x):
    """Torchvision's outputs in training are a named tuple."""
    y = net(x)
    return tuple(y) if isinstance(y, tuple) else y


CASES = [
    Case(
        "googlenet",
        {
            "blocks": BLOCKS,
            "num_classes": 5,
            "dropout": 0.0,
            "dropout_aux": 0.0,
            "transform_input": True,
        },
        (3, 35, 47),
        reference=reference,
        call=call,
    ),
]
