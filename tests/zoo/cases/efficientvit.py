"""EfficientViT, beside timm's, which attends in double precision here."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.llama import in_double_precision

create_model = Later("timm.create_model")
EfficientVit = Later("timm.models.efficientvit_mit.EfficientVit")

NAMES = tuple(f"efficientvit_b{number}" for number in range(4))
FULL = {name: partial(create_model, name) for name in NAMES}

SMALL = {
    "widths": (4, 5, 6, 8, 12),
    "depths": (2, 2, 1, 2, 1),
    "head_dim": 4,
    "head_widths": (10, 7),
    "num_classes": 5,
}


def call(reference, x):
    with in_double_precision():
        return reference(x)


CASES = [
    Case(
        NAMES[0],
        SMALL | {"in_channels": 2},
        (2, 37, 45),
        covers=NAMES,
        # a 1x1 convolution with a normalisation comes next, which takes away what is constant
        zero=(
            "stem.res1.*.point_conv.norm.bias",
            "stages.0.*.point_conv.norm.bias",
            "stages.3.blocks.1.local_module.*.point_conv.norm.bias",
        ),
        reference=partial(EfficientVit, 2, **SMALL),
        call=call,
    ),
]
