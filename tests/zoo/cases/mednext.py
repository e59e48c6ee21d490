"""MedNeXt, beside MONAI's."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case

create_mednext = Later("monai.networks.nets.mednext.create_mednext")
MedNeXt = Later("monai.networks.nets.mednext.MedNeXt")

NAMES = tuple(f"mednext_{size}" for size in "sbml")
FULL = {name: partial(create_mednext, name[-1]) for name in NAMES}


def reference(dims, **more):
    """MONAI's network of two levels and the one between, with other numbers everywhere."""
    return MedNeXt(
        spatial_dims=dims,
        init_filters=3,
        in_channels=2,
        out_channels=2,
        encoder_expansion_ratio=(2, 3),
        bottleneck_expansion_ratio=1,
        decoder_expansion_ratio=(3, 2),
        kernel_size=3,
        use_residual_connection=True,
        blocks_down=(1, 2),
        blocks_bottleneck=1,
        blocks_up=(1, 1),
        **more,
    )


SMALL = {
    "in_channels": 2,
    "out_channels": 2,
    "features": 3,
    "blocks": (1, 2, 1, 1, 1),
    "expansions": (2, 3, 1, 3, 2),
}
CASES = [
    Case(
        NAMES[0],
        SMALL | {"deep_supervision": True, "dims": 2},
        (2, 8, 12),
        covers=NAMES,
        reference=partial(reference, 2, deep_supervision=True),
        zero=("*.conv1.bias",),  # what follows it is normalised
    ),
    Case(
        NAMES[0],
        SMALL,
        (2, 4, 8, 4),
        of="in 3d",
        reference=partial(reference, 3),
        zero=("*.conv1.bias",),
    ),
]
