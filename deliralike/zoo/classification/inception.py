"""Inception v3, as torchvision builds it.

Unlike the paper: one auxiliary classifier, whose output is for training only. Its averages count
the padding, as the published weights want it.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import Normal
from deliralike.zoo.blocks import classifier, images, large_enough, run_stages
from deliralike.zoo.classification.googlenet import (
    ConvNorm,
    Mixed,
    as_trained,
    check_input_settings,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers

# kernel, stride, padding
ROW = ((1, 7), 1, (0, 3))
COLUMN = ((7, 1), 1, (3, 0))


class InceptionA(Mixed):
    """1x1, 5x5, two 3x3 convolutions, and an average: figure 5 of the paper.

    The average over 3x3 counts the zeros of the padding, here and in the blocks below (torchvision;
    TensorFlow, from which the weights come, does not count them).

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``224 + pool_features`` channels.
    """

    branches = (
        ("branch1x1",),
        ("branch5x5_1", "branch5x5_2"),
        ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"),
        ("pool", "branch_pool"),
    )

    def __init__(self, in_channels: int, pool_features: int) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(in_channels, 64, 1)
        self.branch5x5_1 = ConvNorm(in_channels, 48, 1)
        self.branch5x5_2 = ConvNorm(48, 64, 5, padding=2)
        self.branch3x3dbl_1 = ConvNorm(in_channels, 64, 1)
        self.branch3x3dbl_2 = ConvNorm(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = ConvNorm(96, 96, 3, padding=1)
        self.pool = self.nn.AvgPool2d(3, stride=1, padding=1)
        self.branch_pool = ConvNorm(in_channels, pool_features, 1)


class InceptionB(Mixed):
    """Half the size: a 3x3 convolution, two of them, and a maximum. Source: figure 10 of the paper.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``480 + in_channels`` channels and half the
        size, rounded down.
    """

    branches = (
        ("branch3x3",),
        ("branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"),
        ("pool",),
    )

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.branch3x3 = ConvNorm(in_channels, 384, 3, 2)
        self.branch3x3dbl_1 = ConvNorm(in_channels, 64, 1)
        self.branch3x3dbl_2 = ConvNorm(64, 96, 3, padding=1)
        self.branch3x3dbl_3 = ConvNorm(96, 96, 3, 2)
        self.pool = self.nn.MaxPool2d(3, stride=2)


class InceptionC(Mixed):
    """Convolutions over 7 elements along one axis after the other, once and twice.

    Source: figure 6 of the paper.

    Shapes:
        ``(batch, in_channels, height, width)`` gives 768 channels.
    """

    branches = (
        ("branch1x1",),
        ("branch7x7_1", "branch7x7_2", "branch7x7_3"),
        (
            "branch7x7dbl_1",
            "branch7x7dbl_2",
            "branch7x7dbl_3",
            "branch7x7dbl_4",
            "branch7x7dbl_5",
        ),
        ("pool", "branch_pool"),
    )

    def __init__(self, in_channels: int, inside: int) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(in_channels, 192, 1)
        self.branch7x7_1 = ConvNorm(in_channels, inside, 1)
        self.branch7x7_2 = ConvNorm(inside, inside, *ROW)
        self.branch7x7_3 = ConvNorm(inside, 192, *COLUMN)
        self.branch7x7dbl_1 = ConvNorm(in_channels, inside, 1)
        self.branch7x7dbl_2 = ConvNorm(inside, inside, *COLUMN)
        self.branch7x7dbl_3 = ConvNorm(inside, inside, *ROW)
        self.branch7x7dbl_4 = ConvNorm(inside, inside, *COLUMN)
        self.branch7x7dbl_5 = ConvNorm(inside, 192, *ROW)
        self.pool = self.nn.AvgPool2d(3, stride=1, padding=1)
        self.branch_pool = ConvNorm(in_channels, 192, 1)


class InceptionD(Mixed):
    """Half the size again: 3x3; 7 elements along each axis and 3x3; a maximum.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``512 + in_channels`` channels and half the
        size, rounded down.
    """

    branches = (
        ("branch3x3_1", "branch3x3_2"),
        ("branch7x7x3_1", "branch7x7x3_2", "branch7x7x3_3", "branch7x7x3_4"),
        ("pool",),
    )

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.branch3x3_1 = ConvNorm(in_channels, 192, 1)
        self.branch3x3_2 = ConvNorm(192, 320, 3, 2)
        self.branch7x7x3_1 = ConvNorm(in_channels, 192, 1)
        self.branch7x7x3_2 = ConvNorm(192, 192, *ROW)
        self.branch7x7x3_3 = ConvNorm(192, 192, *COLUMN)
        self.branch7x7x3_4 = ConvNorm(192, 192, 3, 2)
        self.pool = self.nn.MaxPool2d(3, stride=2)


class InceptionE(Network):
    """Convolutions over 3 elements along one axis and along the other, side by side.

    Source: figure 7 of the paper.

    Shapes:
        ``(batch, in_channels, height, width)`` gives 2048 channels.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.branch1x1 = ConvNorm(in_channels, 320, 1)
        self.branch3x3_1 = ConvNorm(in_channels, 384, 1)
        self.branch3x3_2a = ConvNorm(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3_2b = ConvNorm(384, 384, (3, 1), padding=(1, 0))
        self.branch3x3dbl_1 = ConvNorm(in_channels, 448, 1)
        self.branch3x3dbl_2 = ConvNorm(448, 384, 3, padding=1)
        self.branch3x3dbl_3a = ConvNorm(384, 384, (1, 3), padding=(0, 1))
        self.branch3x3dbl_3b = ConvNorm(384, 384, (3, 1), padding=(1, 0))
        self.pool = self.nn.AvgPool2d(3, stride=1, padding=1)
        self.branch_pool = ConvNorm(in_channels, 192, 1)

    def forward(self, x):
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        branches = [
            self.branch1x1(x),
            self.branch3x3_2a(single),
            self.branch3x3_2b(single),
            self.branch3x3dbl_3a(double),
            self.branch3x3dbl_3b(double),
            self.branch_pool(self.pool(x)),
        ]
        return self.nn.concatenate(branches, 1)


class Auxiliary(Sequential):
    """A classifier from the middle of the network, for training: figure 8 of the paper.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``.
    """

    def __init__(self, in_channels: int, num_classes: int) -> None:
        nn = self.nn
        layers = {
            "pool": nn.AvgPool2d(5, stride=3),
            "conv0": ConvNorm(in_channels, 128, 1),
            "conv1": ConvNorm(128, 768, 5),  # (batch, 768, 1, 1) at 299 pixels
            "average": nn.AdaptiveAvgPool2d(1),
            "flatten": nn.Flatten(),
            "fc": nn.Linear(768, num_classes),
        }
        super().__init__(layers)


class Inception3(Model):
    """Five convolutions and eleven inception blocks, with an auxiliary classifier for training.

    Source: Szegedy et al. 2016, arXiv 1512.00567; names, order, shapes and start values are those
    of ``torchvision.models.inception``.

    Args:
        pool_features: The channels of the average in each of the blocks ``Mixed_5b``, ``Mixed_5c``
            …
        channels_7x7: The channels inside the blocks ``Mixed_6b``, ``Mixed_6c`` …
        last: The number of blocks ``Mixed_7b``, ``Mixed_7c`` …
        aux_logits: Whether to have the auxiliary classifier, which looks at the last of the blocks
            ``Mixed_6``. Torchvision's weights come with it, and it is left out there after loading.
        num_classes: Number of outputs; 0 for no head (nor an auxiliary one): the pooled features,
            as the Fréchet inception distance takes them.
        in_channels: Number of input channels.
        transform_input: The input is normalised as torchvision's models want it; take it back to
            what the published weights were trained with. Needs three channels.
        dropout: Before the linear layer.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; in training, with
        the auxiliary classifier, a tuple of two such: the output and the auxiliary one. Images have
        299 pixels, at least 75.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``Conv2d_1a_3x3.conv``), or is smaller than 75 along an axis, in training with the
            auxiliary classifier than 299.
    """

    stem_paths = ("Conv2d_1a_3x3.conv",)
    can_stop = True
    # Torchvision cuts them at 2, which is 20 standard deviations. It means to give AuxLogits.conv1
    # 0.01, but says so to the block, where it is not looked for.
    start_values = {
        "*conv.weight": Normal(0.1),
        "fc.weight": Normal(0.1),
        "AuxLogits.fc.weight": Normal(0.001),
    }

    def __init__(
        self,
        pool_features: Sequence[int] = (32, 64, 64),
        channels_7x7: Sequence[int] = (128, 160, 160, 192),
        last: int = 2,
        aux_logits: bool = True,
        num_classes: int = 1000,
        in_channels: int = 3,
        transform_input: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_input_settings("Inception3", in_channels, transform_input)
        nn = self.nn
        self.transform_input = transform_input
        self.num_classes = num_classes
        self.Conv2d_1a_3x3 = ConvNorm(in_channels, 32, 3, 2)
        self.Conv2d_2a_3x3 = ConvNorm(32, 32, 3)
        self.Conv2d_2b_3x3 = ConvNorm(32, 64, 3, padding=1)
        self.maxpool1 = nn.MaxPool2d(3, stride=2)
        self.Conv2d_3b_1x1 = ConvNorm(64, 80, 1)
        self.Conv2d_4a_3x3 = ConvNorm(80, 192, 3)
        self.maxpool2 = nn.MaxPool2d(3, stride=2)
        first = _by_letter("Mixed_5", pool_features, "pool_features")
        middle = _by_letter("Mixed_6", channels_7x7, "channels_7x7")
        checks.positive(last, "last", "Inception3")
        final = [f"Mixed_7{letter}" for letter in _LETTERS[:last]]
        self.names = (*first, "Mixed_6a", *middle, "Mixed_7a", *final)
        width = 192
        for name, features in first.items():
            setattr(self, name, InceptionA(width, features))
            width = 224 + features
        self.Mixed_6a = InceptionB(width)
        width += 480
        for name, inside in middle.items():
            setattr(self, name, InceptionC(width, inside))
            width = 768
        self.AuxLogits = (
            Auxiliary(width, num_classes) if aux_logits and num_classes != 0 else None
        )
        self.Mixed_7a = InceptionD(width)
        width += 512
        for name in final:
            setattr(self, name, InceptionE(width))
            width = 2048
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = classifier(nn, width, num_classes, "Inception3")

    @property
    def head_paths(self):  # type: ignore[override]
        """The last linear layer, and that of the auxiliary classifier."""
        if not self.num_classes:
            return ()
        return ("fc",) if self.AuxLogits is None else ("fc", "AuxLogits.fc")

    def forward(self, x):
        auxiliary = self.AuxLogits if self.training else None
        if auxiliary is not None:
            large_enough(self, x, 299, "AuxLogits")
        stages = self.forward_stages(x)
        *_, last = stages.values()
        y = self.dropout(self.avgpool(last))
        y = self.fc(self.nn.flatten(y))
        if auxiliary is None:
            return y
        last_middle = self.names[self.names.index("Mixed_7a") - 1]
        return y, auxiliary(stages[last_middle])

    def forward_stages(self, x, until=None):
        """Return the convolutions before each pooling, / 2 and / 4, and each block.

        The blocks 5 have about / 8, the blocks 6 / 16 and the blocks 7 / 32.
        """
        large_enough(self, x, 75, "Mixed_7a")
        layers = [
            self.Conv2d_1a_3x3,
            self.Conv2d_2a_3x3,
            self.Conv2d_2b_3x3,
            self.maxpool1,
            self.Conv2d_3b_1x1,
            self.Conv2d_4a_3x3,
            self.maxpool2,
        ]
        ends = [("Conv2d_2b_3x3", 3), ("Conv2d_4a_3x3", 6)]
        for name in self.names:
            layers.append(getattr(self, name))
            ends.append((name, len(layers)))
        if self.transform_input:
            x = as_trained(self.nn, x)
        return run_stages(layers, x, ends, until)


_LETTERS = "bcdefghijklmnopqrstuvwxyz"


def _by_letter(prefix: str, widths: Any, name: str) -> dict[str, int]:
    """Return the widths of blocks by name: the prefix and a letter from b on."""
    if isinstance(widths, int | str) or not 0 < len(widths) <= len(_LETTERS):
        raise SettingError(
            f"Inception3: {name}={widths!r}; wanted a number for each block"
        )
    widths = numbers(widths, name, "Inception3")
    return {
        prefix + letter: width for letter, width in zip(_LETTERS, widths, strict=False)
    }


register(
    Inception3,
    name="inception_v3",
    source="Szegedy et al. 2016, arXiv 1512.00567; torchvision",
    shape=images(299),
    parameters=27_161_264,
)
