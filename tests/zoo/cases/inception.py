"""Inception v3, beside torchvision's, with fewer and narrower blocks."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
Inception3 = Later("torchvision.models.inception.Inception3")
InceptionA = Later("torchvision.models.inception.InceptionA")
InceptionB = Later("torchvision.models.inception.InceptionB")
InceptionC = Later("torchvision.models.inception.InceptionC")
InceptionD = Later("torchvision.models.inception.InceptionD")
InceptionE = Later("torchvision.models.inception.InceptionE")

FULL = {"inception_v3": partial(get_model, "inception_v3", init_weights=False)}

SMALL = {
    "pool_features": (8,),
    "channels_7x7": (9,),
    "last": 1,
    "num_classes": 5,
    "dropout": 0.0,
}


def reference(aux_logits=False):
    """Torchvision's class has no settings for its blocks, so they are put in here."""
    net = Inception3(5, aux_logits, init_weights=False, dropout=0.0)
    for name in ("5c", "5d", "6c", "6d", "6e", "7c"):
        setattr(net, f"Mixed_{name}", nn.Identity())
    net.Mixed_5b, net.Mixed_6a, net.Mixed_6b = (
        InceptionA(192, 8),
        InceptionB(232),
        InceptionC(712, 9),
    )
    net.Mixed_7a, net.Mixed_7b = InceptionD(768), InceptionE(1280)
    return net


CASES = [
    Case(
        "inception_v3", SMALL | {"aux_logits": False}, (3, 75, 80), reference=reference
    )
]
