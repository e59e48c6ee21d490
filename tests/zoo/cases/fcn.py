"""Torchvision's FCN and DeepLab V3, beside torchvision's; on a narrow VGG, since it cannot narrow
residual networks."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases.encoders import NARROW, WIDTHS, smp, without_dropout

get_model = Later("torchvision.models.get_model")
DeepLabHead = Later("torchvision.models.segmentation.deeplabv3.DeepLabHead")
DeepLabV3 = Later("torchvision.models.segmentation.deeplabv3.DeepLabV3")
FCN = Later("torchvision.models.segmentation.fcn.FCN")
FCNHead = Later("torchvision.models.segmentation.fcn.FCNHead")

RESNETS = {
    name: (f"{name}_resnet50", f"{name}_resnet101") for name in ("fcn", "deeplabv3")
}
FULL = {
    name: partial(get_model, name, weights=None, weights_backbone=None)
    for names in RESNETS.values()
    for name in names
}
BACKBONE = {
    "backbone": NARROW["encoder"],
    "backbone_settings": NARROW["encoder_settings"],
}


def reference(network, head):
    """Torchvision's network on a backbone that gives its last two stages, without dropout."""
    backbone = smp.encoders.get_encoder("vgg_narrow", weights=None)
    forward = backbone.forward
    backbone.forward = lambda x: dict(zip(("aux", "out"), forward(x)[-2:], strict=True))
    return without_dropout(
        network(backbone, head(WIDTHS[-1], 3), FCNHead(WIDTHS[-1], 3))
    )


def outputs(model, x):
    """A plain dict: the reference's is ordered, ours are by name."""
    return dict(model(x))


CASES = [
    Case(
        "fcn_resnet50",
        {
            **BACKBONE,
            "num_classes": 3,
            "aux_loss": True,
            "dropout": 0.0,
            "aux_dropout": 0.0,
        },
        (3, 64, 71),
        call=outputs,
        covers=RESNETS["fcn"],
        reference=partial(reference, FCN, FCNHead),
    ),
    Case(
        "deeplabv3_resnet50",
        {
            **BACKBONE,
            "num_classes": 3,
            "aux_loss": True,
            "dropout": 0.0,
            "aux_dropout": 0.0,
        },
        (3, 64, 71),
        call=outputs,
        covers=RESNETS["deeplabv3"],
        reference=partial(reference, DeepLabV3, DeepLabHead),
    ),
]
