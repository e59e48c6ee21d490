"""MobileNetV4, beside timm's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.vit import Renamed

create_model = Later("timm.create_model")
MobileNetV3 = Later("timm.models.mobilenetv3.MobileNetV3")
decode_arch_def = Later("timm.models._efficientnet_builder.decode_arch_def")

NAMES = tuple(
    f"mobilenetv4_conv_{size}" for size in ("small_050", "small", "medium", "large")
)
FULL = {name: partial(Renamed, partial(create_model, name), {}, name) for name in NAMES}

# Each kind of block, with each of its convolutions left out, and with a shortcut and without.
STAGES = (
    ("cn_r1_k3_s2_e1_c8", "er_r2_k3_s1_e2_c8"),
    ("uir_r1_a5_k3_s2_e2_c16", "uir_r1_a3_k0_s1_e1_c16"),
    ("uir_r1_a0_k3_s2_e2_c24", "uir_r1_a0_k0_s1_e2_c24"),
    ("uir_r1_a3_k0_s2_e1_c8",),
)


def reference():
    """timm's network of these blocks."""
    return MobileNetV3(
        block_args=decode_arch_def(list(map(list, STAGES))),
        num_classes=5,
        stem_size=8,
        head_bias=False,
        head_norm=True,
        num_features=1280,
        act_layer="relu",
        layer_scale_init_value=None,
    )


SETTINGS = {"stages": STAGES, "stem_width": 8, "width_mult": 1.0, "num_classes": 5}
CASES = [
    Case(
        NAMES[1],
        SETTINGS,
        (3, 33, 46),
        covers=NAMES,
        reference=partial(Renamed, reference, SETTINGS, NAMES[1]),
        # what follows them is normalised
        zero=("*.dw_start.1.bias", "*.pw_proj.1.bias"),
    ),
]
