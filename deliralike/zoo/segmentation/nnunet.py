"""nnU-Net's networks: the plain one and the one with a residual encoder, in 1, 2 and 3 dimensions.

nnU-Net's paper plans widths, kernels and strides for each dataset; here they are settings, and the
defaults those of a common plan in 3D.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims, each_output, numbered
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class NNUNet(Model):
    """The base of nnU-Net's networks: an encoder, a decoder over its stages, and outputs.

    There is an output at each size.

    The reference keeps the blocks of one convolution twice (as ``conv``, ``norm`` and in
    ``all_modules``) and the encoder also as ``decoder.encoder``. So do we: these are one block
    under several names, and the state has them all. A file may have any of the names.

    ``decoder.deep_supervision`` may be switched after training, as nnU-Net's trainer does.
    """

    start_values = {
        # nnU-Net's `InitWeights_He` passes by convolutions with one axis; here they start as all
        # others.
        "*conv.weight": HeNormal("in", 0.01),
        "*all_modules.0.weight": HeNormal("in", 0.01),
        "*transpconvs.*.weight": HeNormal("in", 0.01),
        "*seg_layers.*.weight": HeNormal("in", 0.01),
        "*.bias": ZEROS,
    }
    factors: tuple[int, ...]
    several: bool

    @property
    def head_paths(self) -> tuple[str, ...]:  # type: ignore[override]
        """One layer for each size, from the coarsest to the finest."""
        return tuple(
            f"decoder.seg_layers.{stage}"
            for stage in range(len(self.decoder.seg_layers))
        )

    def forward(self, x):
        return self.decoder.outputs(list(self.forward_stages(x).values()))

    def forward_stages(self, x):
        """Return the encoder's stages from fine to coarse, then the decoder's, by their paths.

        The decoder's stages go from coarse to fine.
        """
        depth = len(self.encoder.stages)
        medical.divides(
            self, x, self.factors, f"encoder.stages.{depth - 1}", self.several
        )
        skips = self.encoder(x)
        decoded = self.decoder(skips)
        return numbered("encoder.stages.", skips) | numbered("decoder.stages.", decoded)

    def adapt_state(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Leave one name for each array.

        A file with all names may then be adapted, and an older one may lack some.
        """
        return medical.without_twins(self, state)

    def _build(
        self,
        residual: bool,
        in_channels: int,
        num_classes: int,
        features_per_stage: Sequence[int],
        kernel_sizes: Sizes | Sequence[Sizes],
        strides: Sequence[Sizes],
        blocks: int | Sequence[int],
        n_conv_per_stage_decoder: int | Sequence[int],
        deep_supervision: bool,
        **options: Any,
    ) -> None:
        """Build the encoder, with so many blocks in each stage, and the decoder."""
        what = type(self).__name__
        features = numbers(features_per_stage, "features_per_stage", what, least=2)
        depth = len(features)
        kernels = medical.per_stage(kernel_sizes, depth, "kernel_sizes", what)
        strides = medical.per_stage(strides, depth, "strides", what)
        blocks = medical.per_stage(blocks, depth, "n_blocks_per_stage", what)
        counts = medical.per_stage(
            n_conv_per_stage_decoder, depth - 1, "n_conv_per_stage_decoder", what
        )
        self.encoder = Encoder(
            residual,
            in_channels,
            features,
            kernels,
            strides,
            numbers(blocks, "blocks", what),
            **options,
        )
        checks.positive(num_classes, "num_classes", what)
        self.factors = medical.reductions(strides, options["dims"])
        self.several = options["norm"] == "instance"
        self.decoder = Decoder(
            self.encoder,
            num_classes,
            counts,
            list(strides),
            list(features),
            list(kernels),
            deep_supervision,
            **options,
        )


class PlainConvUNet(NNUNet):
    """nnU-Net's default network: two convolutions at each of several sizes, down and up again.

    Source: Isensee et al. 2021, doi 10.1038/s41592-020-01008-z. Names, order and shapes, the tied
    ones included, are those of ``dynamic_network_architectures``' ``PlainConvUNet``, start values
    those that nnU-Net gives it.

    Args:
        in_channels: Number of input channels.
        num_classes: Number of output channels.
        features_per_stage: The width of each stage, from the finest to the coarsest.
        kernel_sizes: Of each stage: odd numbers, or tuples with one for each axis; one number for
            all stages.
        strides: By what each stage divides the size: numbers, or tuples with one for each axis.
        n_conv_per_stage: Convolutions in each stage of the encoder, or one number for all.
        n_conv_per_stage_decoder: The same for the decoder, which has one stage less, from the
            coarsest to the finest.
        dims: Number of spatial axes: 1, 2 or 3.
        norm: ``"instance"`` (with scale and shift), ``"batch"`` or None.
        dropout: Probability of dropping a channel in training, after each convolution. With dropout
            a normalisation's second name is ``all_modules.2``, as in the reference.
        deep_supervision: Whether to give the outputs of all sizes; in evaluation too, as the
            reference does.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes, *size / strides[0])``; with
        `deep_supervision` a list of these from the finest to the coarsest but one. The sizes must
        be multiples of the product of all strides along their axis.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple, or the coarsest stage would have a single element
            (the error names it); or the input has another number of axes or channels (the error
            names the layer).
    """

    stem_paths = ("encoder.stages.0.0.convs.0.conv",)

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 2,
        features_per_stage: Sequence[int] = (32, 64, 128, 256, 320, 320),
        kernel_sizes: Sizes | Sequence[Sizes] = 3,
        strides: Sequence[Sizes] = (1, 2, 2, 2, 2, 2),
        n_conv_per_stage: int | Sequence[int] = 2,
        n_conv_per_stage_decoder: int | Sequence[int] = 2,
        dims: int = 3,
        norm: str | None = "instance",
        dropout: float = 0.0,
        deep_supervision: bool = False,
    ) -> None:
        super().__init__()
        self._build(
            False,
            in_channels,
            num_classes,
            features_per_stage,
            kernel_sizes,
            strides,
            n_conv_per_stage,
            n_conv_per_stage_decoder,
            deep_supervision,
            dims=dims,
            norm=norm,
            dropout=dropout,
        )


class ResidualEncoderUNet(NNUNet):
    """nnU-Net's network with residual blocks on the way down ("ResEnc").

    Source: Isensee et al. 2024, arXiv 2404.09556; the blocks are those of ResNet-D, He et al. 2019,
    arXiv 1812.01187. Names, order and shapes, the tied ones included, are those of
    ``dynamic_network_architectures``' ``ResidualEncoderUNet``, start values those that nnU-Net
    gives it: each residual branch starts at zero.

    Args:
        n_blocks_per_stage: Residual blocks in each stage of the encoder, or one number for all.
        in_channels, num_classes, features_per_stage, kernel_sizes, strides: See `PlainConvUNet`.
        n_conv_per_stage_decoder, dims, norm, deep_supervision: See `PlainConvUNet`.
        dropout: Probability of dropping a channel in training, after the convolutions of the stem
            and the decoder, and after the first one of a block.

    Shapes:
        As `PlainConvUNet`.

    Raises:
        SettingError, ShapeError: As `PlainConvUNet`.
    """

    stem_paths = ("encoder.stem.convs.0.conv",)
    start_values = {
        **NNUNet.start_values,
        "*blocks.*.conv2.norm.weight": ZEROS,
        "*blocks.*.conv2.all_modules.1.weight": ZEROS,
    }

    def __init__(
        self,
        in_channels: int = 1,
        num_classes: int = 2,
        features_per_stage: Sequence[int] = (32, 64, 128, 256, 320, 320),
        kernel_sizes: Sizes | Sequence[Sizes] = 3,
        strides: Sequence[Sizes] = (1, 2, 2, 2, 2, 2),
        n_blocks_per_stage: int | Sequence[int] = (1, 3, 4, 6, 6, 6),
        n_conv_per_stage_decoder: int | Sequence[int] = 1,
        dims: int = 3,
        norm: str | None = "instance",
        dropout: float = 0.0,
        deep_supervision: bool = False,
    ) -> None:
        super().__init__()
        self._build(
            True,
            in_channels,
            num_classes,
            features_per_stage,
            kernel_sizes,
            strides,
            n_blocks_per_stage,
            n_conv_per_stage_decoder,
            deep_supervision,
            dims=dims,
            norm=norm,
            dropout=dropout,
        )


class ConvBlock(Network):
    """A convolution, then (where wanted) dropout, normalisation and activation.

    Each stands under two names.

    The reference's ``ConvDropoutNormReLU``.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        *,
        dims: int,
        norm: str | None,
        active: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        nn = self.nn
        kernel = medical.odd(kernel_size, dims)
        padding = tuple((k - 1) // 2 for k in kernel)
        conv = by_dims(nn, dims, "Conv")
        self.conv = conv(in_channels, out_channels, kernel, stride, padding, bias=bias)
        steps = [self.conv]
        if dropout:
            self.dropout = by_dims(nn, dims, "Dropout")(dropout)
            steps.append(self.dropout)
        if norm is not None:
            self.norm = medical.normalisation(nn, norm, out_channels, dims)
            steps.append(self.norm)
        if active:
            self.nonlin = nn.LeakyReLU()
            steps.append(self.nonlin)
        self.all_modules = nn.Sequential(*steps)

    def forward(self, x):
        return self.all_modules(x)


class ResidualBlock(Network):
    """A residual branch of two `ConvBlock`.

    The shortcut averages over the stride and changes the width.

    The reference's ``BasicBlockD``.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        **options: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        dims = options["dims"]
        bare = options | {"active": False, "dropout": 0.0}
        self.conv1 = ConvBlock(
            in_channels, out_channels, kernel_size, stride, **options
        )
        self.conv2 = ConvBlock(out_channels, out_channels, kernel_size, **bare)
        self.nonlin2 = nn.LeakyReLU()
        stride = geometry.steps(stride, dims, "strides")
        changes = []
        if max(stride) > 1:
            changes.append(by_dims(nn, dims, "AvgPool")(stride, stride))
        if in_channels != out_channels:
            changes.append(
                ConvBlock(in_channels, out_channels, 1, **bare | {"bias": False})
            )
        self.skip = nn.Sequential(*changes) if changes else None

    def forward(self, x):
        y = self.conv2(self.conv1(x))
        return self.nonlin2(y + (x if self.skip is None else self.skip(x)))


def _convs(nn: Any, *stage: Any, **options: Any) -> Any:
    """Make several `ConvBlock` in a row; the arguments are those of `_row`."""
    return nn.Sequential({"convs": _row(nn, ConvBlock, *stage, **options)})


def _row(
    nn: Any,
    kind: type[Network],
    count: int,
    in_channels: int,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    **options: Any,
) -> Any:
    """Make several blocks of a kind in a row, the first with the stride."""
    blocks = [kind(in_channels, out_channels, kernel_size, stride, **options)]
    for _ in range(1, count):
        blocks.append(kind(out_channels, out_channels, kernel_size, 1, **options))
    return nn.Sequential(*blocks)


class Encoder(Network):
    """The way down; it returns the outputs of all stages as a list.

    Args:
        residual: Whether stages have residual blocks, after a stem.
    """

    def __init__(
        self,
        residual: bool,
        in_channels: int,
        features: Sequence[int],
        kernels: Sequence[Sizes],
        strides: Sequence[Sizes],
        counts: Sequence[int],
        **options: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        first = in_channels
        self.stem = None
        if residual:
            first = features[0]
            self.stem = _convs(nn, 1, in_channels, first, kernels[0], **options)
        before = (first, *features[:-1])
        stages = []
        for stage in zip(counts, before, features, kernels, strides, strict=True):
            if residual:
                row = _row(nn, ResidualBlock, *stage, **options)
                stages.append(nn.Sequential({"blocks": row}))
            else:
                stages.append(nn.Sequential(_convs(nn, *stage, **options)))
        self.stages = nn.Sequential(*stages)

    def forward(self, x):
        if self.stem is not None:
            x = self.stem(x)
        return each_output(x, self.stages)


class Decoder(Network):
    """The way up.

    Each stage has a transposed convolution, the encoder's output of that size, and convolutions.

    The reference also keeps the encoder here, though it runs before; its names stand in the state a
    second time.
    """

    def __init__(
        self,
        encoder: Any,
        num_classes: int,
        counts: Sequence[int],
        strides: Sequence[Sizes],
        features: Sequence[int],
        kernels: Sequence[Sizes],
        deep_supervision: bool,
        **options: Any,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv, transposed = by_dims(nn, options["dims"], "Conv", "ConvTranspose")
        self.deep_supervision = bool(deep_supervision)
        self.encoder = encoder
        # both from the coarsest decoder stage to the finest
        fine = features[-2::-1]
        coarse = features[:0:-1]
        stages = []
        for count, width, kernel in zip(counts, fine, kernels[-2::-1], strict=True):
            stages.append(_convs(nn, count, 2 * width, width, kernel, **options))
        self.stages = nn.ModuleList(stages)
        ups = []
        for before, width, stride in zip(coarse, fine, strides[:0:-1], strict=True):
            ups.append(transposed(before, width, stride, stride))
        self.transpconvs = nn.ModuleList(ups)
        self.seg_layers = nn.ModuleList([conv(width, num_classes, 1) for width in fine])

    def forward(self, skips):
        """Return the outputs of the stages, from the coarsest to the finest."""
        *skips, x = skips
        decoded = []
        for up, stage in zip(self.transpconvs, self.stages, strict=True):
            x = stage(self.nn.concatenate([up(x), skips.pop()], dim=1))
            decoded.append(x)
        return decoded

    def outputs(self, stages):
        """Return the classes from the finest stage.

        With deep supervision they are those of all stages of the decoder, the finest first.
        """
        layers = list(self.seg_layers)
        if not self.deep_supervision:
            return layers[-1](stages[-1])
        outputs = []
        for layer, x in zip(
            reversed(layers), reversed(stages[-len(layers) :]), strict=True
        ):
            outputs.append(layer(x))
        return outputs


_PLAIN = (
    "Isensee et al. 2021, doi 10.1038/s41592-020-01008-z; dynamic_network_architectures "
    "PlainConvUNet"
)
_RESENC = "Isensee et al. 2024, arXiv 2404.09556; dynamic_network_architectures ResidualEncoderUNet"

# name: (network, source, sides of a sample with 1, 2 and 3 axes)
# No parameter counts are published: nnU-Net fits the number of stages to the data. These are its
# stages for patches whose coarsest stage has 4 to 7 elements along an axis (at most 320 channels, a
# residual encoder of 1, 3, 4, 6, 6, 6 blocks and a decoder of 1). The presets M, L and XL are one
# network; what they change is the size of the patches.
_VARIANTS = {
    "nnunet": (PlainConvUNet, _PLAIN, (1024, 512, 128)),
    "nnunet_resenc_m": (ResidualEncoderUNet, _RESENC, (1024, 512, 128)),
    "nnunet_resenc_l": (ResidualEncoderUNet, _RESENC, (2048, 768, 160)),
    "nnunet_resenc_xl": (ResidualEncoderUNet, _RESENC, (4096, 1024, 192)),
}

for _name, (_network, _source, _sides) in _VARIANTS.items():
    register(
        _network,
        name=_name,
        task="segmentation",
        dims=(1, 2, 3),
        source=_source,
        shape=medical.volume(_sides),
    )
