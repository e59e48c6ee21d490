"""The plain U-Net in 1, 2 and 3 dimensions, as MONAI's BasicUNet.

Unlike the paper: padded convolutions (outputs of the input's size), instance normalisation, leaky
ReLU, dropout on request.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.layers.containers import Sequential
from deliralike.zoo.blocks import by_dims, large_enough
from deliralike.zoo.medical import Convolution, volume
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class UNet(Model):
    """A U-Net that halves the size several times and doubles it again.

    Shortcuts join the levels of equal size.

    Source: Ronneberger et al. 2015, arXiv 1505.04597, and Falk et al. 2019, doi
    10.1038/s41592-018-0261-2. Structure, names and order are those of MONAI's ``BasicUNet``
    (conv_0, down_1 …, upcat_4 …, final_conv); any number of levels.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels, for example classes.
        features: The width of each level from the finest to the coarsest, then the width before the
            last convolution.
        dims: Number of spatial axes: 1, 2 or 3.
        norm: ``"instance"`` (with scale and shift), ``"batch"``, ``"group"`` or None.
        num_groups: Groups of the group normalisation.
        negative_slope: Of the leaky ReLUs.
        bias: Whether the convolutions before a normalisation have biases.
        dropout: Probability of dropping an element after each normalisation in training.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)`` for any size of at
        least ``2 ** levels``, where ``levels = len(features) - 2``. An odd size is rounded down on
        the way down; on the way up the last element along such an axis is repeated.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``conv_0.conv_0.conv``) or is too small, also for the coarsest level's normalisation
            (the error names it).
    """

    stem_paths = ("conv_0.conv_0.conv",)
    head_paths = ("final_conv",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 2,
        features: Sequence[int] = (32, 32, 64, 128, 256, 32),
        dims: int = 2,
        norm: str | None = "instance",
        num_groups: int = 8,
        negative_slope: float = 0.1,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        *widths, last = numbers(features, "features", "UNet", least=3)
        nn = self.nn
        options = {
            "norm": norm,
            "num_groups": num_groups,
            "negative_slope": negative_slope,
            "bias": bias,
            "dropout": dropout,
            "dims": dims,
        }
        self.levels = len(widths) - 1
        self.conv_0 = TwoConv(in_channels, widths[0], **options)
        for level in range(1, self.levels + 1):
            down = {
                "max_pooling": by_dims(nn, dims, "MaxPool")(2),
                "convs": TwoConv(widths[level - 1], widths[level], **options),
            }
            setattr(self, f"down_{level}", nn.Sequential(down))
        for level in range(self.levels, 0, -1):
            fine = widths[level - 1]
            out = fine if level > 1 else last
            halves = level > 1  # as the reference: the finest level keeps all channels
            block = UpCat(widths[level], fine, out, halves, **options)
            setattr(self, f"upcat_{level}", block)
        self.final_conv = by_dims(nn, dims, "Conv")(last, out_channels, 1)

    def forward(self, x):
        return self.final_conv(self.forward_stages(x)["upcat_1"])

    def forward_stages(self, x):
        """Return the levels on the way down and on the way up again.

        Those of the way down are ``(batch, features[level], *size / 2**level)``.
        """
        large_enough(self, x, 2**self.levels, f"down_{self.levels}")
        x = self.conv_0(x)
        stages = {"conv_0": x}
        for level in range(1, self.levels + 1):
            x = getattr(self, f"down_{level}")(x)
            stages[f"down_{level}"] = x
        skips = list(stages.values())[:-1]
        for level in range(self.levels, 0, -1):
            x = getattr(self, f"upcat_{level}")(x, skips.pop())
            stages[f"upcat_{level}"] = x
        return stages


class TwoConv(Sequential):
    """Two 3x3 convolutions, each with normalisation, dropout and leaky ReLU.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``.
    """

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        options |= {"act": "leaky_relu", "affine": True}
        layers = {
            "conv_0": Convolution(in_channels, out_channels, **options),
            "conv_1": Convolution(out_channels, out_channels, **options),
        }
        super().__init__(layers)


class UpCat(Network):
    """Double the size, join with the finer level, then two convolutions.

    Shapes:
        ``(batch, in_channels, *coarse)`` and ``(batch, skip_channels, *size)`` give
        ``(batch, out_channels, *size)``.
    """

    def __init__(
        self,
        in_channels: int,
        skip_channels: int,
        out_channels: int,
        halves: bool,
        **options: Any,
    ) -> None:
        super().__init__()
        width = in_channels // 2 if halves else in_channels
        deconv = by_dims(self.nn, options["dims"], "ConvTranspose")
        double = {"deconv": deconv(in_channels, width, 2, stride=2)}
        self.upsample = self.nn.Sequential(double)
        self.convs = TwoConv(skip_channels + width, out_channels, **options)

    def forward(self, x, skip):
        nn = self.nn
        x = self.upsample(x)  # (batch, width, *2 * coarse)
        sizes = zip(skip.shape[2:], x.shape[2:], strict=True)
        missing = [(0, fine - size) for fine, size in sizes]  # 0 or 1
        x = nn.pad(x, missing, mode="replicate")
        return self.convs(nn.concatenate([skip, x], dim=1))


_SOURCE = (
    "Ronneberger et al. 2015, arXiv 1505.04597; Falk et al. 2019, doi 10.1038/s41592-018-0261-2; "
    "MONAI BasicUNet"
)

register(
    UNet,
    name="unet",
    task="segmentation",
    dims=(1, 2, 3),
    source=_SOURCE,
    shape=volume((1024, 256, 96)),
)
