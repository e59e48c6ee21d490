"""Residual networks for videos, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
video = Later("torchvision.models.video.resnet")

NAMES = ("r3d_18", "mc3_18", "r2plus1d_18")
FULL = {name: partial(get_model, name) for name in NAMES}
CONVOLUTIONS = {"3d": "Conv3DSimple", "2d": "Conv3DNoTemporal", "2+1d": "Conv2Plus1D"}
MIXED = ("2d", "3d", "2d", "2d")  # the later stages are wide
SPLIT = ("2+1d", "2+1d", "2d", "2d")


def reference(kinds, stem):
    """Torchvision's network with these kinds of convolutions."""
    makers = [getattr(video, CONVOLUTIONS[kind]) for kind in kinds]
    return video.VideoResNet(
        video.BasicBlock, makers, [1, 1, 1, 1], getattr(video, stem), 5
    )


SMALL = {"layers": (1, 1, 1, 1), "num_classes": 5}
CASES = [
    Case(
        "mc3_18",
        SMALL | {"kinds": MIXED},
        (3, 3, 17, 22),
        reference=partial(reference, MIXED, "BasicStem"),
        covers=("r3d_18", "mc3_18"),
    ),
    Case(
        "r2plus1d_18",
        SMALL | {"kinds": SPLIT},
        (3, 3, 17, 22),
        reference=partial(reference, SPLIT, "R2Plus1dStem"),
    ),
]
