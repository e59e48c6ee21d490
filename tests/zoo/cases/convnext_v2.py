"""ConvNeXt V2, beside timm's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

create_model = Later("timm.create_model")
ConvNeXt = Later("timm.models.convnext.ConvNeXt")

SMALLER = tuple(f"convnextv2_{size}" for size in ("atto", "femto", "pico", "nano"))
LARGER = tuple(
    f"convnextv2_{size}" for size in ("tiny", "small", "base", "large", "huge")
)
FULL = {name: partial(create_model, name) for name in (*SMALLER, *LARGER)}

SMALL = {"layers": (1, 2, 1, 1), "widths": (8, 12, 9, 10), "num_classes": 5}
REFERENCE = partial(
    ConvNeXt,
    depths=(1, 2, 1, 1),
    dims=(8, 12, 9, 10),
    num_classes=5,
    use_grn=True,
    ls_init_value=None,
)

CASES = [
    Case("convnextv2_tiny", SMALL, (3, 67, 41), covers=LARGER, reference=REFERENCE),
    Case(
        "convnextv2_atto",
        SMALL,
        (3, 67, 41),
        covers=SMALLER,
        reference=partial(REFERENCE, conv_mlp=True),
    ),
]
