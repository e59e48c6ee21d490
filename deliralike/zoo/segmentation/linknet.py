"""LinkNet with a classifier as its encoder, as segmentation_models_pytorch's Linknet.

It follows the paper, on any encoder.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.start import HeUniform
from deliralike.zoo.blocks import by_dims, images
from deliralike.zoo.encoders import (
    HEAD_START,
    EncoderDecoder,
    depth_of,
    segmentation_head,
)
from deliralike.zoo.mobile import ConvNormActivation
from deliralike.zoo.registry import register

LAST = 32  # the width before the head


class LinkNet(EncoderDecoder):
    """A decoder whose blocks double the size and add the encoder's stage of equal size.

    Transposed convolutions double the size.

    Source: Chaurasia and Culurciello 2017, arXiv 1707.03718; names, order, shapes and start values
    are those of segmentation_models_pytorch's ``Linknet``.

    Args:
        encoder: A classifier: a name of the zoo, an `Architecture`, or a class written once. Its
            stages have at least 4 channels.
        encoder_depth: How often the encoder halves the size, 1 to 5.
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3, as the encoder can have.
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

    # The transposed convolutions, decoder.blocks.*.block.1.0, start as PyTorch's: the reference
    # passes them by.
    start_values = HEAD_START | {"decoder.blocks.*.block.[02].0.weight": HeUniform()}

    def __init__(
        self,
        encoder: Any = "resnet34",
        encoder_depth: int = 5,
        num_classes: int = 1,
        in_channels: int = 3,
        dims: int = 2,
        encoder_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        depth = depth_of(encoder_depth, 1, "LinkNet")
        self.multiple = 2**depth
        channels = self.encode_with(
            encoder, range(1, depth + 1), in_channels, dims, encoder_settings
        )
        self.decoder = Decoder(channels, dims)
        self.segmentation_head = segmentation_head(self.nn, LAST, num_classes, 1, dims)


class Decoder(Network):
    """One block for each halving of the encoder.

    Shapes:
        The encoder's stages, from the finest to the coarsest; gives ``(batch, 32, *size)``.
    """

    def __init__(self, channels: tuple[int, ...], dims: int) -> None:
        super().__init__()
        widths = (*reversed(channels), LAST)
        blocks = [_block(self.nn, *pair, dims) for pair in pairwise(widths)]
        self.blocks = self.nn.ModuleList(blocks)

    def forward(self, features, size):
        *skips, x = features
        for block in self.blocks:
            x = block(x)
            if skips:
                x = x + skips.pop()
        return x


def _block(nn: Any, in_channels: int, out_channels: int, dims: int) -> Any:
    """Make a doubling of the size between two 1x1 convolutions, at a quarter of the channels.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *2 * size)``.
    """
    deconv, norm = by_dims(nn, dims, "ConvTranspose", "BatchNorm")
    width = in_channels // 4
    double = [deconv(width, width, 4, stride=2, padding=1), norm(width), nn.ReLU()]
    layers = nn.Sequential(
        ConvNormActivation(in_channels, width, 1, dims=dims),
        nn.Sequential(*double),
        ConvNormActivation(width, out_channels, 1, dims=dims),
    )
    return nn.Sequential({"block": layers})


register(
    LinkNet,
    name="linknet",
    task="segmentation",
    dims=(1, 2, 3),
    source="Chaurasia and Culurciello 2017, arXiv 1707.03718; segmentation_models_pytorch Linknet",
    shape=images(224),
)
