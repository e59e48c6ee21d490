"""Torchvision's FCN and DeepLab V3, beside torchvision's; on a narrow VGG, since it cannot narrow
residual networks."""

from functools import partial

from tests.references import Later
from tests.zoo.case import Case
from tests.zoo.cases import mobilenet_v3
from tests.zoo.cases.encoders import NARROW, WIDTHS, smp, without_dropout

get_model = Later("torchvision.models.get_model")
DeepLabHead = Later("torchvision.models.segmentation.deeplabv3.DeepLabHead")
DeepLabV3 = Later("torchvision.models.segmentation.deeplabv3.DeepLabV3")
_deeplabv3_mobilenetv3 = Later(
    "torchvision.models.segmentation.deeplabv3._deeplabv3_mobilenetv3"
)
FCN = Later("torchvision.models.segmentation.fcn.FCN")
FCNHead = Later("torchvision.models.segmentation.fcn.FCNHead")
_lraspp_mobilenetv3 = Later(
    "torchvision.models.segmentation.lraspp._lraspp_mobilenetv3"
)

MOBILES = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
RESNETS = {
    name: (f"{name}_resnet50", f"{name}_resnet101") for name in ("fcn", "deeplabv3")
}
FULL = {
    name: partial(get_model, name, weights=None, weights_backbone=None)
    for names in (*RESNETS.values(), MOBILES)
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


MOBILE = {"blocks": mobilenet_v3.BLOCKS, "num_classes": 3}
ZERO = (
    "backbone.*.block.[23].1.bias",
)  # of a projection: what follows it is normalised


def mobile_reference(make):
    """Torchvision's network on a dilated MobileNetV3 of these blocks, without dropout."""
    return without_dropout(make(mobilenet_v3.reference(dilated=True), 3))


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
    Case(
        "deeplabv3_mobilenet_v3_large",
        {**MOBILE, "aux_loss": True, "dropout": 0.0, "aux_dropout": 0.0},
        (3, 33, 47),
        call=outputs,
        zero=ZERO,
        reference=partial(mobile_reference, partial(_deeplabv3_mobilenetv3, aux=True)),
    ),
    Case(
        "lraspp_mobilenet_v3_large",
        MOBILE,
        (3, 33, 47),
        call=outputs,
        zero=ZERO,
        reference=partial(mobile_reference, _lraspp_mobilenetv3),
    ),
]
