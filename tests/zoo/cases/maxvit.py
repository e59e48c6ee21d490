"""MaxViT, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
MaxVit = Later("torchvision.models.maxvit.MaxVit")

FULL = {"maxvit_t": partial(get_model, "maxvit_t")}

SMALL = {
    "stem_channels": 6,
    "block_channels": (8, 12),
    "block_layers": (1, 1),
    "partition_size": 3,
    "head_dim": 4,
    "stochastic_depth": 0.0,
    "num_classes": 5,
}

CASES = [
    Case(
        "maxvit_t",
        SMALL,
        (3, 21, 21),
        reference=partial(
            MaxVit, (21, 21), 6, 3, [8, 12], [1, 1], 4, 0.0, num_classes=5
        ),
        zero=("*.pre_norm.bias",),
    ),
]
