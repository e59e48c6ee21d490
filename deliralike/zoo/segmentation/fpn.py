"""The feature pyramid network, as segmentation_models_pytorch's FPN.

The paper's pyramid with the head for semantic segmentation that its authors added later; sums of
branches, group normalisation.
"""

from collections.abc import Mapping
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeUniform
from deliralike.zoo.blocks import by_dims, images
from deliralike.zoo.encoders import (
    DECODER_START,
    EncoderDecoder,
    depth_of,
    segmentation_head,
)
from deliralike.zoo.registry import register


class FPN(EncoderDecoder):
    """A pyramid of four levels; their sum at the finest size gives the classes.

    Source: Kirillov et al. 2017, http://presentations.cocodataset.org/COCO17-Stuff-FAIR.pdf, and
    Lin et al. 2017, arXiv 1612.03144; names, order, shapes and start values are those of
    segmentation_models_pytorch's ``FPN``.

    Args:
        encoder: A classifier: a name of the zoo, an `Architecture`, or a class written once.
        encoder_depth: How often the encoder halves the size, 3 to 5; the decoder takes its last
            four sizes.
        pyramid_channels: Width of the pyramid.
        segmentation_channels: Width of the levels that are added up; a multiple of 32, the groups
            of the normalisation.
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3, as the encoder can have.
        dropout: Probability of dropping a channel before the head in training.
        encoder_settings: Further settings of the encoder.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size)``; each axis is a
        multiple of ``2 ** encoder_depth``.

    Raises:
        UnknownName: The zoo has no such encoder.
        SettingError: A setting makes no sense, or the encoder has no stage at a size that the
            decoder takes.
        ShapeError: The size is no such multiple.
    """

    start_values = DECODER_START | {
        "decoder.p5.weight": HeUniform(),
        "decoder.p?.skip_conv.weight": HeUniform(),
        "decoder.p*.bias": ZEROS,
    }

    def __init__(
        self,
        encoder: Any = "resnet34",
        encoder_depth: int = 5,
        pyramid_channels: int = 256,
        segmentation_channels: int = 128,
        num_classes: int = 1,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.2,
        encoder_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        depth = depth_of(encoder_depth, 3, "FPN")
        self.multiple = 2**depth
        channels = self.encode_with(
            encoder, range(depth - 3, depth + 1), in_channels, dims, encoder_settings
        )
        width = segmentation_channels
        self.decoder = Decoder(channels, pyramid_channels, width, dropout, dims)
        upsampling = 2 ** (depth - 3)
        self.segmentation_head = segmentation_head(
            self.nn, width, num_classes, 1, dims, upsampling
        )


class Decoder(Network):
    """A pyramid from the coarsest level to the finest, whose levels are then added.

    Each level doubles the size of the one before and adds the encoder's stage.

    Shapes:
        The encoder's stages, from the finest to the coarsest; gives ``(batch, width, *finest)``.
    """

    def __init__(
        self,
        channels: tuple[int, ...],
        pyramid: int,
        width: int,
        dropout: float,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, drop = by_dims(nn, dims, "Conv", "Dropout")
        c2, c3, c4, c5 = channels
        self.p5 = conv(c5, pyramid, 1)
        self.p4 = Level(pyramid, c4, dims)
        self.p3 = Level(pyramid, c3, dims)
        self.p2 = Level(pyramid, c2, dims)
        blocks = [_upwards(nn, pyramid, width, count, dims) for count in (3, 2, 1, 0)]
        self.seg_blocks = nn.ModuleList(blocks)
        self.dropout = drop(dropout)

    def forward(self, features, size):
        c2, c3, c4, c5 = features
        p5 = self.p5(c5)
        p4 = self.p4(p5, c4)
        p3 = self.p3(p4, c3)
        p2 = self.p2(p3, c2)
        levels = []
        for block, level in zip(self.seg_blocks, (p5, p4, p3, p2), strict=True):
            levels.append(block(level))
        return self.dropout(sum(levels[1:], levels[0]))


class Level(Network):
    """Double the size and add a stage of the encoder, brought to the pyramid's width."""

    def __init__(self, channels: int, skip_channels: int, dims: int) -> None:
        super().__init__()
        self.skip_conv = by_dims(self.nn, dims, "Conv")(skip_channels, channels, 1)

    def forward(self, x, skip):
        x = self.nn.interpolate(x, scale_factor=2.0, mode="nearest")
        return x + self.skip_conv(skip)


def _upwards(
    nn: Any, in_channels: int, out_channels: int, doublings: int, dims: int
) -> Any:
    """Make 3x3 convolutions, each followed by a linear doubling of the size.

    With no doublings it is a single convolution. Group normalisation has 32 groups.
    """
    conv = by_dims(nn, dims, "Conv")
    blocks = []
    for _ in range(max(1, doublings)):
        layers = nn.Sequential(
            conv(in_channels, out_channels, 3, padding=1, bias=False),
            nn.GroupNorm(32, out_channels),
            nn.ReLU(),
        )
        double = nn.Identity()
        if doublings:
            double = nn.Upsample(scale_factor=2.0, mode="linear", align_corners=True)
        blocks.append(nn.Sequential({"block": layers, "upsample": double}))
        in_channels = out_channels
    return nn.Sequential({"block": nn.Sequential(*blocks)})


register(
    FPN,
    name="fpn",
    task="segmentation",
    dims=(1, 2, 3),
    source=(
        "Kirillov et al. 2017; Lin et al. 2017, arXiv 1612.03144; segmentation_models_pytorch FPN"
    ),
    shape=images(224),
)
