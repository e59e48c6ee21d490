"""The U-Net with a classifier as its encoder, as segmentation_models_pytorch's Unet.

Unlike the paper: a pre-trained classifier on the way down, padded convolutions, batch
normalisation, nearest neighbours instead of transposed convolutions, and outputs of the input's
size.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from deliralike.network.base import Network
from deliralike.zoo.blocks import images
from deliralike.zoo.encoders import (
    DECODER_START,
    EncoderDecoder,
    depth_of,
    segmentation_head,
)
from deliralike.zoo.mobile import ConvNormActivation
from deliralike.zoo.registry import Architecture, register
from deliralike.zoo.setting_checks import numbers


class EncoderUNet(EncoderDecoder):
    """An encoder, and a decoder that doubles the size step by step.

    Each step joins the encoder's stage of equal size.

    Source: Ronneberger et al. 2015, arXiv 1505.04597; names, order, shapes and start values are
    those of segmentation_models_pytorch's ``Unet``.

    Args:
        encoder: A classifier: a name of the zoo, an `Architecture`, or a class written once.
        encoder_depth: How often the encoder halves the size, 1 to 5.
        decoder_channels: The width of each block of the decoder, from the coarsest to the finest.
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3, as the encoder can have.
        encoder_settings: Further settings of the encoder.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size)`` for any size.

    Raises:
        UnknownName: The zoo has no such encoder.
        SettingError: A setting makes no sense, or the encoder has no stage at a size that the
            decoder takes.
    """

    start_values = DECODER_START
    least_depth: ClassVar[int] = 1

    def __init__(
        self,
        encoder: Any = "resnet34",
        encoder_depth: int = 5,
        decoder_channels: Sequence[int] = (256, 128, 64, 32, 16),
        num_classes: int = 1,
        in_channels: int = 3,
        dims: int = 2,
        encoder_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        what = type(self).__name__
        depth = depth_of(encoder_depth, self.least_depth, what)
        out = numbers(decoder_channels, "decoder_channels", what, count=depth)
        channels = self.encode_with(
            encoder, range(1, depth + 1), in_channels, dims, encoder_settings
        )
        self.decoder = self._make_decoder(channels, out, has_center(encoder), dims)
        self.segmentation_head = segmentation_head(
            self.nn, out[-1], num_classes, 3, dims
        )

    def _make_decoder(
        self,
        channels: tuple[int, ...],
        out: tuple[int, ...],
        center: bool,
        dims: int,
    ) -> Any:
        return Decoder(channels, out, center, dims)


class Decoder(Network):
    """One block for each halving of the encoder.

    Shapes:
        The encoder's stages, from the finest to the coarsest, and the size of the input; gives
        ``(batch, decoder_channels[-1], *size)``.
    """

    def __init__(
        self,
        channels: tuple[int, ...],
        out: tuple[int, ...],
        center: bool,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        width = channels[-1]
        self.center = doubled(nn, width, width, dims) if center else nn.Identity()
        befores = (width, *out)
        skips = (*reversed(channels[:-1]), 0)
        blocks = []
        for before, skip, after in zip(befores, skips, out, strict=False):
            blocks.append(Block(before, skip, after, dims))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, features, size):
        *skips, x = features
        x = self.center(x)
        *blocks, last = self.blocks
        for block, skip in zip(blocks, reversed(skips), strict=True):
            x = block(x, skip.shape[2:], skip)
        return last(x, size)


class Block(Network):
    """Resize to the skip's size, join with it, then two convolutions.

    Shapes:
        ``(batch, in_channels, *coarse)`` and ``(batch, skip_channels, *size)`` give
        ``(batch, out_channels, *size)``.
    """

    def __init__(
        self, in_channels: int, skip_channels: int, out_channels: int, dims: int
    ) -> None:
        super().__init__()
        self.conv1 = ConvNormActivation(
            in_channels + skip_channels, out_channels, dims=dims
        )
        self.conv2 = ConvNormActivation(out_channels, out_channels, dims=dims)

    def forward(self, x, size, skip=None):
        x = self.nn.interpolate(x, size=tuple(size))
        if skip is not None:
            x = self.nn.concatenate([x, skip], dim=1)
        return self.conv2(self.conv1(x))


def doubled(nn: Any, in_channels: int, out_channels: int, dims: int) -> Any:
    """Make two 3x3 convolutions, each normalised and followed by a ReLU."""
    return nn.Sequential(
        ConvNormActivation(in_channels, out_channels, dims=dims),
        ConvNormActivation(out_channels, out_channels, dims=dims),
    )


def has_center(encoder: Any) -> bool:
    """Whether the reference puts two convolutions between this encoder and the decoder.

    It depends on the encoder's name.
    """
    name = encoder.name if isinstance(encoder, Architecture) else str(encoder)
    return name.startswith("vgg")


register(
    EncoderUNet,
    name="encoder_unet",
    task="segmentation",
    dims=(1, 2, 3),
    source="Ronneberger et al. 2015, arXiv 1505.04597; segmentation_models_pytorch Unet",
    shape=images(224),
)
