"""ConvNeXts, beside torchvision's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

get_model = Later("torchvision.models.get_model")
CNBlockConfig = Later("torchvision.models.convnext.CNBlockConfig")
ConvNeXt = Later("torchvision.models.convnext.ConvNeXt")

SMALLER = tuple(f"convnext_{size}" for size in ("atto", "femto", "pico", "nano"))
NAMES = tuple(f"convnext_{size}" for size in ("tiny", "small", "base", "large"))
FULL = {name: partial(get_model, name) for name in NAMES}

SMALL = {
    "layers": (1, 2),
    "widths": (8, 12),
    "layer_scale": 0.5,
    "stochastic_depth": 0.0,
    "num_classes": 5,
}


def reference():
    """Torchvision's network with stages of these widths."""
    return ConvNeXt([CNBlockConfig(8, 12, 1), CNBlockConfig(12, None, 2)], 0.0, 0.5, 5)


CASES = [
    Case("convnext_tiny", SMALL, (3, 19, 17), covers=NAMES, reference=reference),
    Case(
        "convnext_atto", SMALL, (3, 19, 17), covers=SMALLER
    ),  # tests/zoo/test_timm_names.py
]
