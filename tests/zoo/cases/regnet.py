"""RegNet, beside torchvision's."""

from functools import partial
from unittest.mock import patch

import torch

from deliralike import zoo
from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
regnet = Later("torchvision.models.regnet")

NAMES = zoo.list("regnet_*")


def full(name):
    """Torchvision works out depths and widths with PyTorch, which the meta device cannot do."""
    with (
        torch.device("cpu"),
        patch.object(regnet.found(), "_regnet", lambda params, *args, **kwargs: params),
    ):
        params = get_model(name)
    return regnet.RegNet(params)


FULL = {name: partial(full, name) for name in NAMES}

LAYERS, WIDTHS = (1, 2), (6, 16)  # the first stage is narrower than a group


def reference(squeeze):
    """Torchvision's with stages of these widths."""
    params = regnet.BlockParams(
        list(LAYERS), list(WIDTHS), [6, 8], [1.0, 1.0], [2, 2], squeeze
    )
    return regnet.RegNet(params, 5)


SMALL = {"layers": LAYERS, "widths": WIDTHS, "group_width": 8, "num_classes": 5}
CASES = [
    Case(
        "regnet_y_400mf",
        SMALL | {"squeeze": 0.5},
        (3, 17, 22),
        reference=partial(reference, 0.5),
        covers=NAMES,
    ),
    Case(
        "regnet_x_400mf",
        SMALL | {"squeeze": 0.0, "dims": 1, "num_classes": 0},
        (3, 35),
        of="in 1d, headless",
    ),
]
