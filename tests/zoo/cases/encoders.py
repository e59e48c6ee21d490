"""Encoders and decoders, beside segmentation_models_pytorch's."""

from functools import partial

import torch

from tests.references import Later, compute_on_cpu
from tests.zoo.case import Case

# Encoders that a test can afford, by the names under which the reference finds them, and ours for
# the same networks.
WIDTHS = (16, 8, 12, 8, 8)


def add_small_encoders(library):
    """Tell the reference of them."""
    compute_on_cpu(Later("timm.models.regnet.RegNet").found(), "_get_stage_args")
    vgg, resnet = library.encoders.vgg.VGGEncoder, library.encoders.resnet.ResNetEncoder
    blocks = Later("torchvision.models.resnet")
    encoders = library.encoders.encoders
    encoders["vgg_narrow"] = {
        "encoder": vgg,
        "params": {
            "config": [entry for width in WIDTHS for entry in (width, "M")],
            "out_channels": [*WIDTHS, WIDTHS[-1]],
            "init_weights": False,
        },
    }
    encoders["short"] = {
        "encoder": resnet,
        "params": {
            "block": blocks.BasicBlock,
            "layers": [1, 1, 1, 1],
            "out_channels": [3, 64, 64, 128, 256, 512],
        },
    }
    encoders["short_bottleneck"] = {
        "encoder": resnet,
        "params": {
            "block": blocks.Bottleneck,
            "layers": [1, 1, 2, 2],
            "width_per_group": 8,
            "out_channels": [3, 64, 256, 512, 1024, 2048],
        },
    }


smp = Later("segmentation_models_pytorch", add_small_encoders)


def decoder(kind, *args, **settings):
    """One of the reference's networks."""
    return getattr(smp, kind)(*args, **settings)


KINDS = {
    "encoder_unet": "Unet",
    "unetplusplus": "UnetPlusPlus",
    "fpn": "FPN",
    "pspnet": "PSPNet",
    "deeplabv3": "DeepLabV3",
    "deeplabv3plus": "DeepLabV3Plus",
}
DECODERS = {name: partial(decoder, kind) for name, kind in KINDS.items()}
FULL = {
    name: partial(decoder, encoder_weights=None) for name, decoder in DECODERS.items()
}
NARROW = {
    "encoder": "vgg11",
    "encoder_settings": {
        "layers": (1,) * 5,
        "widths": WIDTHS,
        "hidden": 4,
        "pooled": 1,
    },
}
SHORT = {"encoder": "resnet18", "encoder_settings": {"layers": (1,) * 4}}
SHORT_BOTTLENECK = {
    "encoder": "resnet50",
    "encoder_settings": {"layers": (1, 1, 2, 2), "width_per_group": 8},
}


def without_dropout(model):
    """Masks differ between libraries."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout | torch.nn.Dropout2d):
            module.p = 0.0
    return model


def reference(name, encoder, **settings):
    """A decoder of the reference on one of these encoders."""
    return without_dropout(DECODERS[name](encoder, encoder_weights=None, **settings))


CASES = [
    Case(
        "encoder_unet",
        {**NARROW, "decoder_channels": (6, 5, 6, 4, 4), "num_classes": 2},
        (3, 37, 45),
        reference=partial(
            reference,
            "encoder_unet",
            "vgg_narrow",
            decoder_channels=(6, 5, 6, 4, 4),
            classes=2,
        ),
    ),
    Case(
        "encoder_unet",
        {
            **NARROW,
            "encoder_depth": 2,
            "decoder_channels": (16, 17),
            "in_channels": 1,
        },
        (1, 35, 33),
        of="of two blocks",
        zero=("encoder.features.[369].*", "encoder.features.12.*"),
        reference=partial(
            reference,
            "encoder_unet",
            "vgg_narrow",
            encoder_depth=2,
            decoder_channels=(16, 17),
            in_channels=1,
        ),
    ),
    Case(
        "unetplusplus",
        {**NARROW, "encoder_depth": 4, "decoder_channels": (6, 5, 6, 4)},
        (3, 32, 48),
        zero=("decoder.center.*",),
        reference=partial(
            reference,
            "unetplusplus",
            "vgg_narrow",
            encoder_depth=4,
            decoder_channels=(6, 5, 6, 4),
        ),
    ),
    Case(
        "fpn",
        {
            **NARROW,
            "pyramid_channels": 6,
            "segmentation_channels": 32,
            "num_classes": 2,
            "dropout": 0.0,
        },
        (3, 64, 32),
        reference=partial(
            reference,
            "fpn",
            "vgg_narrow",
            decoder_pyramid_channels=6,
            decoder_segmentation_channels=32,
            classes=2,
        ),
    ),
    Case(
        "pspnet",
        {**SHORT, "psp_channels": 6, "dropout": 0.0},
        (3, 40, 32),
        zero=("encoder.layer[34].*",),
        reference=partial(reference, "pspnet", "short", psp_out_channels=6),
    ),
    Case(
        "deeplabv3",
        {
            **SHORT,
            "decoder_channels": 6,
            "rates": (1, 2, 3),
            "dropout": 0.0,
            "num_classes": 2,
        },
        (3, 24, 32),
        reference=partial(
            reference,
            "deeplabv3",
            "short",
            decoder_channels=6,
            decoder_atrous_rates=(1, 2, 3),
            classes=2,
        ),
    ),
    Case(
        "deeplabv3plus",
        {**SHORT, "decoder_channels": 6, "rates": (1, 2, 3), "dropout": 0.0},
        (3, 32, 48),
        reference=partial(
            reference,
            "deeplabv3plus",
            "short",
            decoder_channels=6,
            decoder_atrous_rates=(1, 2, 3),
        ),
    ),
    Case(
        "encoder_unet",
        {
            "encoder": "resnet8",
            "encoder_depth": 2,
            "decoder_channels": (5, 4),
            "dims": 3,
        },
        (3, 4, 6, 5),
        of="in 3d",
    ),
]
