"""MNASNet, beside torchvision's."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
mnasnet = Later("torchvision.models.mnasnet")

NAMES = ("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3")
FULL = {name: partial(get_model, name) for name in NAMES}

STACKS = ((24, 3, 2, 2, 2), (40, 5, 2, 1, 1))


def unversioned():
    """Torchvision's class reads a version from the metadata of files, which a plain dict of arrays
    has not."""

    class Unversioned(mnasnet.MNASNet):
        _load_from_state_dict = nn.Module._load_from_state_dict

    return Unversioned


def reference():
    """Torchvision's class always has six stacks, so four are taken out and two replaced."""
    net = unversioned()(0.5, 5, dropout=0.0)
    first, last = list(net.layers[:8]), list(net.layers[14:])
    last[0] = nn.Conv2d(24, 1280, 1, bias=False)  # 40 * 0.5 rounds to 24
    momentum = mnasnet._BN_MOMENTUM
    stacks = [
        mnasnet._stack(8, 16, 3, 2, 2, 2, momentum),
        mnasnet._stack(16, 24, 5, 2, 1, 1, momentum),
    ]
    net.layers = nn.Sequential(*first, *stacks, *last)
    return net


CASES = [
    Case(
        "mnasnet0_5",
        {"stacks": STACKS, "width_mult": 0.5, "num_classes": 5, "dropout": 0.0},
        (3, 17, 22),
        covers=NAMES,
        reference=reference,
        zero=("layers.7.bias", "layers.*.layers.7.bias"),
    ),
]
