"""V-Net, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

VNet = Later("monai.networks.nets.VNet")

FULL = {"vnet": VNet}


def dry(*args, **settings):
    """The reference without its dropout, which it has in two stages whatever it is told."""
    network = VNet(
        *args, dropout_prob_down=None, dropout_prob_up=(None, 0.0), **settings
    )
    network.up_tr64.dropout2.p = network.up_tr32.dropout2.p = 0.0
    return network


CASES = [
    Case(
        "vnet",
        {
            "dropout": 0.0,
            "skip_dropout": 0.0,
            "in_channels": 2,
            "out_channels": 2,
            "dims": 2,
        },
        (2, 16, 32),
        zero=("*up_conv.bias",),
        reference=partial(dry, 2, 2, 2),
    ),
]
