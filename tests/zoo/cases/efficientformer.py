"""EfficientFormers, beside timm's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

create_model = Later("timm.create_model")
EfficientFormer = Later("timm.models.efficientformer.EfficientFormer")

NAMES = tuple(f"efficientformer_{size}" for size in ("l1", "l3", "l7"))
FULL = {name: partial(create_model, name) for name in NAMES}

SMALL = {
    "image_size": 49,
    "layers": (1, 3),
    "widths": (6, 8),
    "num_vit": 2,
    "num_classes": 5,
}
REFERENCE = partial(
    EfficientFormer, depths=(1, 3), embed_dims=(6, 8), num_vit=2, num_classes=5
)


def both_heads():
    """timm's network, whose two heads come one by one in training."""
    model = REFERENCE(num_vit=3)
    model.set_distilled_training()
    return model


ZERO = (
    "stem.conv?.bias",
    "stages.?.blocks.0.mlp.fc?.bias",
    "stages.?.downsample.conv.bias",
)

CASES = [
    Case("efficientformer_l1", SMALL, covers=NAMES, reference=REFERENCE, zero=ZERO),
    Case(
        "efficientformer_l1",
        SMALL | {"num_vit": 3, "distilled_training": True},
        of="with both heads",
        reference=both_heads,
        zero=ZERO,
    ),
]
