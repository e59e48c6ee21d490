"""ShuffleNetV2, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
ShuffleNetV2 = Later("torchvision.models.ShuffleNetV2")

NAMES = (
    "shufflenet_v2_x0_5",
    "shufflenet_v2_x1_0",
    "shufflenet_v2_x1_5",
    "shufflenet_v2_x2_0",
)
FULL = {name: partial(get_model, name) for name in NAMES}

LAYERS, WIDTHS = (1, 3, 1), (6, 8, 12, 14, 10)
CASES = [
    Case(
        "shufflenet_v2_x0_5",
        {"layers": LAYERS, "widths": WIDTHS, "num_classes": 5},
        (3, 33, 34),
        covers=NAMES,
        reference=partial(ShuffleNetV2, list(LAYERS), list(WIDTHS), 5),
        zero=("*.branch2.4.bias", "*.branch1.1.bias"),
    ),
]
