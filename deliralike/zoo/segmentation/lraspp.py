"""Torchvision's segmentation networks on a dilated MobileNetV3: Lite R-ASPP and DeepLab V3.

They follow the paper, with torchvision's widths.
"""

from collections.abc import Sequence

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo.blocks import by_dims, images, run_stages
from deliralike.zoo.classification.mobilenet_v3 import LARGE, Row, scaled, trunk
from deliralike.zoo.mobile import make_divisible
from deliralike.zoo.registry import register
from deliralike.zoo.segmentation.deeplab import deeplab_head
from deliralike.zoo.segmentation.fcn import BackboneSegmentation


class MobileSegmentation(BackboneSegmentation):
    """The base of both networks: `backbone` is the row of a MobileNetV3's blocks.

    As in torchvision, its names do not have ``features``.
    """

    start_values = {
        "backbone.*.0.weight": HeNormal("out"),
        "backbone.*.fc?.weight": HeNormal("out"),
        "backbone.*.fc?.bias": ZEROS,
    }
    stem_paths = ("backbone.0.0",)

    def run_on_trunk(
        self, blocks: Sequence[Row], width_mult: float, in_channels: int, dims: int
    ) -> tuple[int, int]:
        """Build the backbone, dilated from its last halving on.

        Returns:
            The channels of its last stage, and of the third but last, which is at an eighth of the
            size.
        """
        # Torchvision ends a stage with each block that has a stride, where others end it before
        # that.
        halvings = [at for at, row in enumerate(blocks, start=1) if row[5] > 1]
        if len(halvings) < 2:
            raise SettingError(
                f"{type(self).__name__}: blocks={blocks!r}; wanted two or more that halve the size"
            )
        rows = scaled(blocks, width_mult)
        width = make_divisible(16 * width_mult)
        ends = (0, *halvings, len(rows) + 1)
        widths = (width, *(row[2] for row in rows))
        self.backbone = self.nn.Sequential(*trunk(rows, in_channels, width, True, dims))
        self.ends = tuple((f"backbone.{end}", end + 1) for end in ends)
        self.out_stage = self.ends[-1][0]
        self.aux_stage = self.ends[-4][0]
        return 6 * widths[-1], widths[ends[-4]]

    def forward_stages(self, x):
        """Return the first block, each block that halves the size, and the last block.

        A dilated block counts as one that halves the size.
        """
        return run_stages(self.backbone, x, self.ends)


class MobileDeepLabV3(MobileSegmentation):
    """DeepLab V3 on a dilated MobileNetV3.

    Source: Chen et al. 2017, arXiv 1706.05587; names, order, shapes and start values are those of
    ``torchvision.models.segmentation.deeplabv3``.

    Args:
        num_classes, in_channels, dims, aux_loss, rates, dropout, aux_dropout: As in
            `TorchvisionDeepLabV3`; the auxiliary head reads the stage at an eighth of the size.
        blocks, width_mult: As in `deliralike.zoo.classification.mobilenet_v3.MobileNetV3`.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``{"out": (batch, num_classes, *size)}``, and
        ``"aux"`` as well with `aux_loss`, in evaluation too.
    """

    def __init__(
        self,
        num_classes: int = 21,
        in_channels: int = 3,
        dims: int = 2,
        aux_loss: bool = False,
        rates: Sequence[int] = (12, 24, 36),
        dropout: float = 0.5,
        aux_dropout: float = 0.1,
        blocks: Sequence[Row] = LARGE,
        width_mult: float = 1.0,
    ) -> None:
        super().__init__()
        width, aux_width = self.run_on_trunk(blocks, width_mult, in_channels, dims)
        self.classifier = deeplab_head(
            self.nn, width, num_classes, rates, dropout, dims
        )
        self.add_aux_head(aux_loss, aux_width, num_classes, aux_dropout, dims)


class LRASPP(MobileSegmentation):
    """A gated convolution at a sixteenth of the size, joined with an eighth: small and quick.

    Source: Howard et al. 2019, arXiv 1905.02244, figure 10; names, order, shapes and start values
    are those of ``torchvision.models.segmentation.lraspp``.

    Args:
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        inter_channels: Width of the gated convolution.
        blocks, width_mult: As in `deliralike.zoo.classification.mobilenet_v3.MobileNetV3`.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``{"out": (batch, num_classes, *size)}``.
    """

    head_paths = ("classifier.low_classifier", "classifier.high_classifier")

    def __init__(
        self,
        num_classes: int = 21,
        in_channels: int = 3,
        dims: int = 2,
        inter_channels: int = 128,
        blocks: Sequence[Row] = LARGE,
        width_mult: float = 1.0,
    ) -> None:
        super().__init__()
        high, low = self.run_on_trunk(blocks, width_mult, in_channels, dims)
        self.classifier = LiteHead(low, high, num_classes, inter_channels, dims)

    def forward(self, x):
        stages = self.forward_stages(x)
        out = self.classifier(stages[self.aux_stage], stages[self.out_stage])
        return {"out": self._resized(out, tuple(x.shape[2:]))}


class LiteHead(Network):
    """A head that adds the classes from both stages.

    Shapes:
        ``(batch, low_channels, *fine)`` and ``(batch, high_channels, *coarse)`` give
        ``(batch, num_classes, *fine)``.
    """

    def __init__(
        self,
        low_channels: int,
        high_channels: int,
        num_classes: int,
        width: int,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, norm, pool = by_dims(
            self.nn, dims, "Conv", "BatchNorm", "AdaptiveAvgPool"
        )
        self.cbr = nn.Sequential(
            conv(high_channels, width, 1, bias=False), norm(width), nn.ReLU()
        )
        self.scale = nn.Sequential(
            pool(1), conv(high_channels, width, 1, bias=False), nn.Sigmoid()
        )
        self.low_classifier = conv(low_channels, num_classes, 1)
        self.high_classifier = conv(width, num_classes, 1)

    def forward(self, low, high):
        x = self.cbr(high) * self.scale(high)  # (batch, width, *coarse)
        x = self.nn.interpolate(x, size=tuple(low.shape[2:]), mode="linear")
        return self.low_classifier(low) + self.high_classifier(x)


register(
    MobileDeepLabV3,
    name="deeplabv3_mobilenet_v3_large",
    task="segmentation",
    dims=(1, 2, 3),
    source="Chen et al. 2017, arXiv 1706.05587; torchvision",
    shape=images(520),
)

register(
    LRASPP,
    name="lraspp_mobilenet_v3_large",
    task="segmentation",
    dims=(1, 2, 3),
    source="Howard et al. 2019, arXiv 1905.02244; torchvision",
    shape=images(520),
    parameters=3_221_538,
)
