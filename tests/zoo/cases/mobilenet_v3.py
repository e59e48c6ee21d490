"""MobileNetV3, beside torchvision's."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
InvertedResidualConfig = Later("torchvision.models.mobilenetv3.InvertedResidualConfig")
MobileNetV3 = Later("torchvision.models.mobilenetv3.MobileNetV3")

NAMES = ("mobilenet_v3_large", "mobilenet_v3_small")
FULL = {name: partial(get_model, name) for name in NAMES}

BLOCKS = (
    (3, 16, 16, True, "ReLU", 1),
    (5, 24, 16, False, "ReLU", 2),
    (3, 40, 24, True, "Hardswish", 2),
    (5, 40, 24, True, "Hardswish", 1),
)


class ExactHardsigmoid(nn.Module):
    """PyTorch's own takes a sixth in single precision for its gradient, whatever the type of the
    input."""

    def forward(self, x):
        return nn.functional.relu6(x + 3.0) / 6.0


def reference():
    """The same rows as torchvision writes them, each with the channels that come in."""
    rows, width = [], 16
    for kernel, inside, outside, squeeze, activation, stride in BLOCKS:
        kind = {"ReLU": "RE", "Hardswish": "HS"}[activation]
        rows.append(
            InvertedResidualConfig(
                width, kernel, inside, outside, squeeze, kind, stride, 1, 1.0
            )
        )
        width = outside
    net = MobileNetV3(rows, 24, 5, dropout=0.0)
    for block in net.modules():
        if hasattr(block, "scale_activation"):
            block.scale_activation = ExactHardsigmoid()
    return net


ZERO = (
    "features.*.block.[23].1.bias",
)  # of a projection: what follows it is normalised
SMALL = {"blocks": BLOCKS, "hidden": 24, "num_classes": 5, "dropout": 0.0}
CASES = [
    Case(
        "mobilenet_v3_large",
        SMALL,
        (3, 17, 22),
        reference=reference,
        covers=NAMES,
        zero=ZERO,
    ),
]
