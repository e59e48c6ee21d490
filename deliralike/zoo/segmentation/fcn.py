"""Fully convolutional networks, as torchvision builds them.

The base of torchvision's other segmentation networks is here too.

Unlike the paper: a dilated ResNet instead of VGG, no skips from finer stages, and linear
interpolation instead of learned transposed convolutions.
"""

from collections.abc import Mapping
from typing import Any

from deliralike.zoo.blocks import by_dims, images
from deliralike.zoo.encoders import Encoder
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.summary import architecture_of

# How a backbone is asked to dilate its last stages as torchvision does.
_DILATION = "replace_stride_with_dilation"


class BackboneSegmentation(Model):
    """The base of torchvision's segmentation networks.

    They have a dilated `backbone`, a `classifier` and, if wanted, an `aux_classifier`.

    The outputs are resized to the input's size. A derived class calls `run_on`, and creates the
    heads.
    """

    backbone: Any
    classifier: Any
    aux_classifier: Any

    @property
    def stem_paths(self):  # type: ignore[override]
        """The backbone's stem."""
        return tuple(
            f"backbone.{path}" for path in getattr(self.backbone, "stem_paths", ())
        )

    @property
    def head_paths(self):  # type: ignore[override]
        """The last layer of each head."""
        if self.aux_classifier is None:
            return ("classifier.4",)
        return ("classifier.4", "aux_classifier.4")

    def run_on(
        self,
        backbone: Any,
        in_channels: int,
        dims: int,
        settings: Mapping[str, Any] | None,
    ) -> tuple[int, int]:
        """Build the backbone, dilated where it can be.

        Returns:
            The channels of its last stage, and of the one before, which the auxiliary head reads.
        """
        by_dims(self.nn, dims, "Conv")
        own = dict(settings or {})
        if _DILATION in architecture_of(backbone).settings:
            own.setdefault(_DILATION, (False, True, True))
        plan = Encoder.of(backbone, in_channels, dims, own)
        self.backbone = plan.build()
        *_, self.aux_stage, self.out_stage = plan.stages
        stages = plan.stages
        return stages[self.out_stage].channels, stages[self.aux_stage].channels

    def add_aux_head(
        self,
        wanted: bool,
        in_channels: int,
        num_classes: int,
        dropout: float,
        dims: int,
    ) -> None:
        """Create the auxiliary head, a `fcn_head`, where it is wanted."""
        self.aux_classifier = None
        if wanted:
            self.aux_classifier = fcn_head(
                self.nn, in_channels, num_classes, dropout, dims
            )

    def forward(self, x):
        stages = self.forward_stages(x)
        outputs = {"out": self.classifier(stages[self.out_stage])}
        if self.aux_classifier is not None:
            outputs["aux"] = self.aux_classifier(stages[self.aux_stage])
        size = tuple(x.shape[2:])
        for name, y in outputs.items():
            outputs[name] = self.nn.interpolate(y, size=size, mode="linear")
        return outputs

    def forward_stages(self, x):
        """Return the backbone's stages."""
        return self.backbone.forward_stages(x)


class FCN(BackboneSegmentation):
    """A fully convolutional network: a dilated classifier, and two convolutions.

    Source: Long et al. 2015, arXiv 1411.4038; names, order, shapes and start values are those of
    ``torchvision.models.segmentation.fcn``.

    Args:
        backbone: A classifier: a name of the zoo, an `Architecture`, or a class written once. Its
            last two stages are dilated if it can do that.
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3, as the backbone can have.
        aux_loss: Whether there is an auxiliary head on the last but one stage.
        dropout: Of the head in training.
        aux_dropout: Of the auxiliary head.
        backbone_settings: Further settings of the backbone.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``{"out": (batch, num_classes, *size)}``, and
        ``"aux"`` as well with `aux_loss`, in evaluation too.

    Raises:
        UnknownName: The zoo has no such backbone.
        SettingError: A setting makes no sense.
    """

    def __init__(
        self,
        backbone: Any = "resnet50",
        num_classes: int = 21,
        in_channels: int = 3,
        dims: int = 2,
        aux_loss: bool = False,
        dropout: float = 0.1,
        aux_dropout: float = 0.1,
        backbone_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        width, aux_width = self.run_on(backbone, in_channels, dims, backbone_settings)
        self.classifier = fcn_head(self.nn, width, num_classes, dropout, dims)
        self.add_aux_head(aux_loss, aux_width, num_classes, aux_dropout, dims)


def fcn_head(
    nn: Any, in_channels: int, num_classes: int, dropout: float, dims: int
) -> Any:
    """Make a 3x3 convolution to a quarter of the channels, and a 1x1 convolution to the classes."""
    conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
    width = in_channels // 4
    return nn.Sequential(
        conv(in_channels, width, 3, padding=1, bias=False),
        norm(width),
        nn.ReLU(),
        nn.Dropout(dropout),
        conv(width, num_classes, 1),
    )


for _name in ("resnet50", "resnet101"):
    register(
        FCN,
        name=f"fcn_{_name}",
        variant={"backbone": _name},
        task="segmentation",
        dims=(1, 2, 3),
        source="Long et al. 2015, arXiv 1411.4038; torchvision",
        shape=images(520),
    )
