"""Pre-activation residual networks, beside timm's."""

from functools import partial

from deliralike import zoo
from tests.references import Later
from tests.zoo.case import Case

create_model = Later("timm.create_model")
timm = Later("timm.models.resnetv2")

NAMES = zoo.list("resnetv2_*")
BIG_TRANSFER = tuple(name for name in NAMES if name.endswith("_bit"))
BASIC = tuple(name for name in NAMES if zoo.find(name).settings["block"] == "basic")
FULL = {name: partial(create_model, name) for name in NAMES}


def standardised(*args, **settings):
    return timm.StdConv2d(*args, eps=1e-8, **settings)


def reference(widths, layers, stem_type, **settings):
    return timm.ResNetV2(layers, widths, 5, stem_type=stem_type, **settings)


def plain(*args, **settings):
    """With batch normalisation and plain convolutions."""
    layers = {"conv_layer": timm.create_conv2d, "norm_layer": timm.BatchNormAct2d}
    return reference(*args, **settings, **layers)


SMALL = {"layers": (1, 2), "num_classes": 5}
WIDE = {"widths": (128, 256)}
NARROW = {"widths": (32, 64)}
CASES = [
    Case(
        "resnetv2_50",
        SMALL | NARROW | {"stem_type": "tiered", "avg_down": True, "norm": "batch"},
        (3, 29, 23),
        reference=partial(plain, (32, 64), (1, 2), "tiered", avg_down=True),
        covers=tuple(name for name in NAMES if name not in (*BASIC, *BIG_TRANSFER)),
    ),
    Case(
        "resnetv2_50x1_bit",
        SMALL | WIDE | {"stem_width": 64},
        (3, 29, 23),
        reference=partial(
            reference, (128, 256), (1, 2), "fixed", conv_layer=standardised
        ),
        covers=BIG_TRANSFER,
    ),
    Case(
        "resnetv2_18",
        SMALL | {"widths": (64, 16), "stem_type": "deep", "avg_down": True},
        (3, 29, 23),
        reference=partial(
            plain, (64, 16), (1, 2), "deep", basic=True, bottle_ratio=1.0, avg_down=True
        ),
        covers=BASIC,
    ),
    Case(
        "resnetv2_50x1_bit",
        {"layers": (1, 1), "widths": (128, 128), "num_classes": 0, "dims": 1},
        (3, 65),
        of="in 1d, headless",
    ),
]
