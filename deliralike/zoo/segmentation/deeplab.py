"""DeepLab V3 and V3+, as torchvision and segmentation_models_pytorch build them.

Unlike the paper: a batch normalisation in each branch (as in the authors' code), dropout in the
pyramid, and no conditional random field behind it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.layers.containers import Sequential
from deliralike.zoo.blocks import by_dims, images
from deliralike.zoo.encoders import EncoderDecoder, depth_of, segmentation_head
from deliralike.zoo.registry import register
from deliralike.zoo.segmentation.fcn import BackboneSegmentation
from deliralike.zoo.setting_checks import numbers


class ASPP(Network):
    """Atrous spatial pyramid pooling.

    A 1x1 convolution, dilated 3x3 convolutions and the average of all positions, side by side.

    Source: Chen et al. 2017, arXiv 1706.05587, figure 5; torchvision.

    Args:
        in_channels, out_channels: Before and after.
        rates: The dilations.
        separable: Depthwise convolutions followed by 1x1 ones instead of the dilated ones.
        dropout: Probability of dropping an element of the result in training.
        dims: Number of spatial axes.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        rates: Sequence[int],
        separable: bool,
        dropout: float,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        kernels = [conv(in_channels, out_channels, 1, bias=False)]
        for rate in rates:
            if separable:
                kernels.append(Separable(in_channels, out_channels, rate, dims))
            else:
                kernels.append(
                    conv(in_channels, out_channels, 3, 1, rate, rate, bias=False)
                )
        branches = [
            nn.Sequential(kernel, norm(out_channels), nn.ReLU()) for kernel in kernels
        ]
        self.convs = nn.ModuleList(
            [*branches, Average(in_channels, out_channels, dims)]
        )
        self.project = nn.Sequential(
            conv(len(self.convs) * out_channels, out_channels, 1, bias=False),
            norm(out_channels),
            nn.ReLU(),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        return self.project(
            self.nn.concatenate([branch(x) for branch in self.convs], dim=1)
        )


class Average(Sequential):
    """The average over all positions, a 1x1 convolution, normalisation and ReLU.

    The result is spread over the input's size again.
    """

    def __init__(self, in_channels: int, out_channels: int, dims: int) -> None:
        nn = self.nn
        conv, norm, pool = by_dims(nn, dims, "Conv", "BatchNorm", "AdaptiveAvgPool")
        super().__init__(
            pool(1),
            conv(in_channels, out_channels, 1, bias=False),
            norm(out_channels),
            nn.ReLU(),
        )

    def forward(self, x):
        y = super().forward(x)  # (batch, out_channels, 1, ...)
        return self.nn.interpolate(y, size=tuple(x.shape[2:]), mode="linear")


class Separable(Sequential):
    """A dilated 3x3 convolution of each channel by itself, then a 1x1 convolution."""

    def __init__(
        self, in_channels: int, out_channels: int, rate: int, dims: int
    ) -> None:
        conv = by_dims(self.nn, dims, "Conv")
        super().__init__(
            conv(in_channels, in_channels, 3, 1, rate, rate, in_channels, bias=False),
            conv(in_channels, out_channels, 1, bias=False),
        )


def deeplab_head(
    nn: Any,
    in_channels: int,
    num_classes: int,
    rates: Sequence[int],
    dropout: float,
    dims: int,
) -> Any:
    """Make the pyramid with 256 channels, a 3x3 and a 1x1 convolution to the classes."""
    conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
    return nn.Sequential(
        ASPP(
            in_channels, 256, numbers(rates, "rates", "DeepLab"), False, dropout, dims
        ),
        conv(256, 256, 3, padding=1, bias=False),
        norm(256),
        nn.ReLU(),
        conv(256, num_classes, 1),
    )


class TorchvisionDeepLabV3(BackboneSegmentation):
    """Dilated features of a classifier, and atrous spatial pyramid pooling.

    Source: Chen et al. 2017, arXiv 1706.05587; names, order, shapes and start values are those of
    ``torchvision.models.segmentation.deeplabv3``.

    Args:
        backbone, num_classes, in_channels, dims, aux_loss, aux_dropout, backbone_settings: As in
            `FCN`.
        rates: The dilations of the head.
        dropout: Of the pyramid in training.

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
        rates: Sequence[int] = (12, 24, 36),
        dropout: float = 0.5,
        aux_dropout: float = 0.1,
        backbone_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        width, aux_width = self.run_on(backbone, in_channels, dims, backbone_settings)
        self.classifier = deeplab_head(
            self.nn, width, num_classes, rates, dropout, dims
        )
        self.add_aux_head(aux_loss, aux_width, num_classes, aux_dropout, dims)


class DeepLabV3(EncoderDecoder):
    """Atrous spatial pyramid pooling on an encoder whose last stages are dilated.

    Source: Chen et al. 2017, arXiv 1706.05587; names, order, shapes and start values are those of
    segmentation_models_pytorch's ``DeepLabV3``.

    Args:
        encoder: A classifier: a name of the zoo, an `Architecture`, or a class written once.
        encoder_depth: How often the encoder halves the size, 1 to 5, where it is not dilated.
        output_stride: 8 or 16: how small the encoder's last stage may be; 32 for an encoder without
            dilation.
        decoder_channels: Width of the decoder.
        rates: The dilations of the decoder.
        separable: Whether its convolutions are separable.
        num_classes: Number of output channels.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3, as the encoder can have.
        dropout: Of the pyramid in training.
        encoder_settings: Further settings of the encoder.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size)``; each axis is a
        multiple of ``min(2 ** encoder_depth, output_stride)``.

    Raises:
        UnknownName: The zoo has no such encoder.
        SettingError: A setting makes no sense, or the encoder has no stage at a size that the
            decoder takes, or no setting output_stride.
        ShapeError: The size is no such multiple.
    """

    # PyTorch's own: the reference leaves them as they are, unlike those of its other networks.
    start_values = {}

    def __init__(
        self,
        encoder: Any = "resnet34",
        encoder_depth: int = 5,
        output_stride: int = 8,
        decoder_channels: int = 256,
        rates: Sequence[int] = (12, 24, 36),
        separable: bool = False,
        num_classes: int = 1,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.5,
        encoder_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        depth = depth_of(encoder_depth, 1, "DeepLabV3")
        width = decoder_channels
        rates = numbers(rates, "rates", "DeepLab")
        (channels,) = self.encode_with(
            encoder, (depth,), in_channels, dims, encoder_settings, output_stride
        )
        multiple = min(2**depth, output_stride)
        self.multiple = multiple
        self.decoder = Decoder(channels, width, rates, separable, dropout, dims)
        self.segmentation_head = segmentation_head(
            self.nn, width, num_classes, 1, dims, multiple
        )


class Decoder(Network):
    """The pyramid and a 3x3 convolution.

    Shapes:
        A list of ``(batch, in_channels, *coarse)``; gives ``(batch, out_channels, *coarse)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        rates: Sequence[int],
        separable: bool,
        dropout: float,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        self.aspp = ASPP(in_channels, out_channels, rates, separable, dropout, dims)
        self.conv = conv(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn = norm(out_channels)
        self.relu = nn.ReLU()

    def forward(self, features, size):
        x = self.aspp(features[-1])
        return self.relu(self.bn(self.conv(x)))


class DeepLabV3Plus(EncoderDecoder):
    """Atrous spatial pyramid pooling, joined with the encoder's stage at a quarter of the size.

    Source: Chen et al. 2018, arXiv 1802.02611; names, order, shapes and start values are those of
    segmentation_models_pytorch's ``DeepLabV3Plus``.

    Args:
        encoder, encoder_depth: The depth is 3 to 5.
        output_stride, decoder_channels, rates, separable, dropout: As in `DeepLabV3`, with other
            defaults.
        num_classes, in_channels, dims, encoder_settings: As in `DeepLabV3`.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size)``; each axis is a
        multiple of ``min(2 ** encoder_depth, output_stride)``.

    Raises:
        UnknownName: The zoo has no such encoder.
        SettingError: A setting makes no sense, or the encoder has no stage at a size that the
            decoder takes, or no setting output_stride.
        ShapeError: The size is no such multiple.
    """

    start_values = {}  # as DeepLabV3

    def __init__(
        self,
        encoder: Any = "resnet34",
        encoder_depth: int = 5,
        output_stride: int = 16,
        decoder_channels: int = 256,
        rates: Sequence[int] = (12, 24, 36),
        separable: bool = True,
        num_classes: int = 1,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.5,
        encoder_settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        depth = depth_of(encoder_depth, 3, "DeepLabV3Plus")
        width = decoder_channels
        rates = numbers(rates, "rates", "DeepLab")
        fine, coarse = self.encode_with(
            encoder, (2, depth), in_channels, dims, encoder_settings, output_stride
        )
        self.multiple = min(2**depth, output_stride)
        upsampling = self.multiple // 4
        self.decoder = JoiningDecoder(
            fine, coarse, width, rates, separable, dropout, dims, upsampling
        )
        self.segmentation_head = segmentation_head(
            self.nn, width, num_classes, 1, dims, 4
        )


class JoiningDecoder(Network):
    """The pyramid, joined with a finer stage of the encoder.

    Both have a quarter of the input's size.

    Shapes:
        ``(batch, fine_channels, *size / 4)`` and ``(batch, in_channels, *coarse)``; gives
        ``(batch, out_channels, *size / 4)``.
    """

    def __init__(
        self,
        fine_channels: int,
        in_channels: int,
        out_channels: int,
        rates: Sequence[int],
        separable: bool,
        dropout: float,
        dims: int,
        upsampling: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        self.aspp = nn.Sequential(
            ASPP(in_channels, out_channels, rates, separable, dropout, dims),
            Separable(out_channels, out_channels, 1, dims),
            norm(out_channels),
            nn.ReLU(),
        )
        self.up = nn.Upsample(
            scale_factor=float(upsampling), mode="linear", align_corners=True
        )
        self.block1 = nn.Sequential(
            conv(fine_channels, 48, 1, bias=False), norm(48), nn.ReLU()
        )
        self.block2 = nn.Sequential(
            Separable(48 + out_channels, out_channels, 1, dims),
            norm(out_channels),
            nn.ReLU(),
        )

    def forward(self, features, size):
        fine, coarse = features
        coarse = self.up(self.aspp(coarse))  # (batch, out_channels, *size / 4)
        fine = self.block1(fine)  # (batch, 48, *size / 4)
        return self.block2(self.nn.concatenate([coarse, fine], dim=1))


_SOURCE = "Chen et al. 2017, arXiv 1706.05587"

for _name in ("resnet50", "resnet101"):
    register(
        TorchvisionDeepLabV3,
        name=f"deeplabv3_{_name}",
        variant={"backbone": _name},
        task="segmentation",
        dims=(1, 2, 3),
        source=f"{_SOURCE}; torchvision",
        shape=images(520),
    )

register(
    DeepLabV3,
    name="deeplabv3",
    task="segmentation",
    dims=(1, 2, 3),
    source=f"{_SOURCE}; segmentation_models_pytorch DeepLabV3",
    shape=images(224),
)

register(
    DeepLabV3Plus,
    name="deeplabv3plus",
    task="segmentation",
    dims=(1, 2, 3),
    source="Chen et al. 2018, arXiv 1802.02611; segmentation_models_pytorch DeepLabV3Plus",
    shape=images(224),
)
