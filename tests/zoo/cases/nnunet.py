"""nnU-Net's networks, beside those of its own package of architectures."""

from functools import partial

from torch import nn

from tests.references import Later
from tests.zoo.case import Case

PlainConvUNet = Later("dynamic_network_architectures.architectures.unet.PlainConvUNet")
ResidualEncoderUNet = Later(
    "dynamic_network_architectures.architectures.unet.ResidualEncoderUNet"
)


def reference(
    kind,
    in_channels,
    features,
    kernels,
    strides,
    counts,
    classes,
    decoder,
    dims=3,
    bias=True,
    norm=True,
    supervised=True,
):
    """A network as nnU-Net makes it from its plans."""
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    norms = (
        (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
        if norm
        else (nn.BatchNorm1d, nn.BatchNorm2d)
    )
    return kind(
        in_channels,
        len(features),
        features,
        conv,
        kernels,
        strides,
        counts,
        classes,
        decoder,
        bias,
        norms[dims - 1],
        {"eps": 1e-5, "affine": True},
        None,
        None,
        nn.LeakyReLU,
        {"inplace": True},
        supervised,
    )


FEATURES, STRIDES = (32, 64, 128, 256, 320, 320), (1, 2, 2, 2, 2, 2)
RESENC = partial(
    reference,
    ResidualEncoderUNet,
    1,
    FEATURES,
    3,
    STRIDES,
    (1, 3, 4, 6, 6, 6),
    2,
    1,
    supervised=False,
)
FULL = {
    "nnunet": partial(
        reference, PlainConvUNet, 1, FEATURES, 3, STRIDES, 2, 2, 2, supervised=False
    ),
    "nnunet_resenc_m": RESENC,
    "nnunet_resenc_l": RESENC,
    "nnunet_resenc_xl": RESENC,
}

KERNELS, STEPS = (
    ((1, 3, 3), 3, 3),
    (1, (1, 2, 2), (2, 2, 1)),
)  # anisotropic, as for images with thick slices

CASES = [
    Case(
        "nnunet",
        {
            "features_per_stage": (3, 4, 5),
            "kernel_sizes": KERNELS,
            "strides": STEPS,
            "in_channels": 2,
            "num_classes": 3,
            "deep_supervision": True,
            "n_conv_per_stage": (1, 2, 1),
            "n_conv_per_stage_decoder": (1, 2),
        },
        (2, 4, 8, 6),
        zero=("*.conv.bias", "*.all_modules.0.bias"),
        reference=partial(
            reference,
            PlainConvUNet,
            2,
            (3, 4, 5),
            [(1, 3, 3), (3, 3, 3), (3, 3, 3)],
            [(1, 1, 1), (1, 2, 2), (2, 2, 1)],
            (1, 2, 1),
            3,
            (1, 2),
        ),
    ),
    Case(
        "nnunet",
        {
            "features_per_stage": (3, 4),
            "strides": (1, 2),
            "dims": 2,
            "norm": "batch",
            "n_conv_per_stage": 1,
            "n_conv_per_stage_decoder": 1,
        },
        (1, 6, 10),
        of="of two stages",
        zero=("*.conv.bias", "*.all_modules.0.bias"),
        reference=partial(
            reference,
            PlainConvUNet,
            1,
            (3, 4),
            3,
            (1, 2),
            1,
            2,
            1,
            dims=2,
            norm=False,
            supervised=False,
        ),
    ),
    Case(
        "nnunet_resenc_m",
        {
            "features_per_stage": (3, 4, 4),
            "strides": STEPS,
            "n_blocks_per_stage": (1, 2, 1),
            "deep_supervision": True,
        },
        (1, 4, 8, 6),
        covers=("nnunet_resenc_m", "nnunet_resenc_l", "nnunet_resenc_xl"),
        zero=("*.conv.bias", "*.all_modules.0.bias"),
        reference=partial(
            reference,
            ResidualEncoderUNet,
            1,
            (3, 4, 4),
            3,
            [(1, 1, 1), (1, 2, 2), (2, 2, 1)],
            (1, 2, 1),
            2,
            1,
        ),
    ),
]
