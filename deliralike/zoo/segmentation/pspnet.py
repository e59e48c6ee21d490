"""The pyramid scene parsing network, as segmentation_models_pytorch's PSPNet.

Unlike the paper: an encoder that stops at an eighth of the size instead of a dilated one, and no
auxiliary loss.
"""

from collections.abc import Mapping
from typing import Any

from deliralike.network.base import Network
from deliralike.zoo.blocks import by_dims, images
from deliralike.zoo.encoders import (
    DECODER_START,
    EncoderDecoder,
    depth_of,
    segmentation_head,
)
from deliralike.zoo.mobile import ConvNormActivation
from deliralike.zoo.registry import register

SIZES = (1, 2, 3, 6)


class PSPNet(EncoderDecoder):
    """The encoder's last stage beside its averages over 1, 2, 3 and 6 windows along each axis.

    Source: Zhao et al. 2017, arXiv 1612.01105; names, order, shapes and start values are those of
    segmentation_models_pytorch's ``PSPNet``.

    Args:
        encoder: A classifier: a name of the zoo, an `Architecture`, or a class written once.
        encoder_depth: How often the encoder halves the size, 1 to 5. The paper's network: 5, with
            output_stride=8.
        psp_channels: Width of the decoder's output.
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3, as the encoder can have.
        dropout: Probability of dropping a channel before the head in training.
        output_stride: 8 or 16 to dilate the encoder's last stages; 32 for none.
        encoder_settings: Further settings of the encoder.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size)``; each axis is a
        multiple of ``min(2 ** encoder_depth, output_stride)``.

    Raises:
        UnknownName: The zoo has no such encoder.
        SettingError: A setting makes no sense, or the encoder has no stage at a size that the
            decoder takes.
        ShapeError: The size is no such multiple.
    """

    start_values = DECODER_START

    def __init__(
        self,
        encoder: Any = "resnet34",
        encoder_depth: int = 3,
        psp_channels: int = 512,
        num_classes: int = 1,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.2,
        output_stride: int = 32,
        encoder_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        depth = depth_of(encoder_depth, 1, "PSPNet")
        (channels,) = self.encode_with(
            encoder, (depth,), in_channels, dims, encoder_settings, output_stride
        )
        self.multiple = min(2**depth, output_stride)
        self.decoder = Decoder(channels, psp_channels, dropout, dims)
        self.segmentation_head = segmentation_head(
            self.nn, psp_channels, num_classes, 3, dims, upsampling=self.multiple
        )


class Decoder(Network):
    """The pyramid, a 1x1 convolution and dropout.

    Shapes:
        A list of ``(batch, in_channels, *coarse)``; gives ``(batch, out_channels, *coarse)``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, dropout: float, dims: int
    ) -> None:
        super().__init__()
        self.psp = Pyramid(in_channels, dims)
        width = in_channels + len(SIZES) * (in_channels // 4)
        self.conv = ConvNormActivation(width, out_channels, 1, dims=dims)
        self.dropout = by_dims(self.nn, dims, "Dropout")(dropout)

    def forward(self, features, size):
        return self.dropout(self.conv(self.psp(features[-1])))


class Pyramid(Network):
    """The input beside its averages over several numbers of windows.

    Each of the averages is brought back to the input's size.
    """

    def __init__(self, in_channels: int, dims: int) -> None:
        super().__init__()
        width = in_channels // 4
        blocks = [Averages(in_channels, width, size, dims) for size in SIZES]
        self.blocks = self.nn.ModuleList(blocks)

    def forward(self, x):
        averages = [block(x) for block in self.blocks]
        return self.nn.concatenate([*averages, x], dim=1)


class Averages(Network):
    """Averages over `size` windows along each axis, and a 1x1 convolution.

    A linear resize brings them to the input's size.
    """

    def __init__(
        self, in_channels: int, out_channels: int, size: int, dims: int
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, pool = by_dims(nn, dims, "Conv", "AdaptiveAvgPool")
        if size == 1:
            # As in the reference no normalisation: in training it would see one value a sample.
            conv = conv(in_channels, out_channels, 1)
            convolution = nn.Sequential(conv, nn.Identity(), nn.ReLU())
        else:
            convolution = ConvNormActivation(in_channels, out_channels, 1, dims=dims)
        self.pool = nn.Sequential(pool(size), convolution)

    def forward(self, x):
        y = self.pool(x)  # (batch, out_channels, size, ...)
        size = tuple(x.shape[2:])
        return self.nn.interpolate(y, size=size, mode="linear", align_corners=True)


register(
    PSPNet,
    name="pspnet",
    task="segmentation",
    dims=(1, 2, 3),
    source="Zhao et al. 2017, arXiv 1612.01105; segmentation_models_pytorch PSPNet",
    shape=images(224),
)
