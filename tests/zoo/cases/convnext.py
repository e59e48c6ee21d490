"""ConvNeXts, beside torchvision's."""

from functools import partial

import torchvision
from torchvision.models.convnext import CNBlockConfig, ConvNeXt

from tests.zoo.case import Case

NAMES = tuple(f"convnext_{size}" for size in ("tiny", "small", "base", "large"))
FULL = {name: partial(torchvision.models.get_model, name) for name in NAMES}

SMALL = {"layers": (1, 2), "widths": (8, 12), "layer_scale": 0.5, "stochastic_depth": 0.0, "num_classes": 5}

CASES = [
    Case("convnext_tiny", SMALL, (3, 19, 17), covers=NAMES,
         reference=partial(ConvNeXt, [CNBlockConfig(8, 12, 1), CNBlockConfig(12, None, 2)], 0.0, 0.5, 5)),
]  # fmt: skip
