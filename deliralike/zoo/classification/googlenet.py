"""GoogLeNet (Inception v1 with batch normalisation), as torchvision builds it.

Unlike the paper: batch normalisation after each convolution and no local response normalisation;
the branch that the paper calls 5x5 has 3x3 convolutions, an old slip that the published weights
were trained with.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import Normal
from deliralike.zoo.blocks import classifier, images, large_enough, run_stages
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register

Widths = tuple[int, int, int, int, int, int]

# table 1 of the paper: channels of the 1x1 branch, of the second branch inside and outside, of the
# third, of the pooled
_BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


class ConvNorm(Sequential):
    """A convolution without bias, a normalisation and a ReLU.

    The normalisation's epsilon is 0.001. This is torchvision's ``BasicConv2d``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
    ) -> None:
        nn = self.nn
        conv = (in_channels, out_channels, kernel_size, stride, padding)
        layers = {
            "conv": nn.Conv2d(*conv, bias=False),
            "bn": nn.BatchNorm2d(out_channels, eps=1e-3),
            "relu": nn.ReLU(),
        }
        super().__init__(layers)


class Mixed(Network):
    """Branches side by side, whose outputs are joined; each is a row of layers by name."""

    branches: ClassVar[tuple[tuple[str, ...], ...]]

    def forward(self, x):
        outputs = []
        for names in self.branches:
            y = x
            for name in names:
                y = getattr(self, name)(y)
            outputs.append(y)
        return self.nn.concatenate(outputs, 1)


class Inception(Mixed):
    """Four branches side by side: 1x1, 3x3 and again 3x3 convolutions, and a pooling.

    Source: Szegedy et al. 2015, arXiv 1409.4842, figure 2b. The third branch is 5x5 in the paper;
    torchvision, whose weights these are, has 3x3 (its issue 906).

    Shapes:
        ``(batch, in_channels, height, width)`` gives as many channels as the branches have
        together.
    """

    branches = (("branch1",), ("branch2",), ("branch3",), ("branch4",))

    def __init__(self, in_channels: int, widths: Widths) -> None:
        super().__init__()
        nn = self.nn
        one, inside, two, inside_three, three, pooled = widths
        self.branch1 = ConvNorm(in_channels, one, 1)
        self.branch2 = nn.Sequential(
            ConvNorm(in_channels, inside, 1), ConvNorm(inside, two, 3, padding=1)
        )
        self.branch3 = nn.Sequential(
            ConvNorm(in_channels, inside_three, 1),
            ConvNorm(inside_three, three, 3, padding=1),
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True),
            ConvNorm(in_channels, pooled, 1),
        )


class Auxiliary(Sequential):
    """A classifier from the middle of the network, for training.

    Source: section 5 of the paper; torchvision.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``.
    """

    def __init__(self, in_channels: int, num_classes: int, dropout: float) -> None:
        nn = self.nn
        layers = {
            # the paper's pooling gives this at 224 pixels
            "pool": nn.AdaptiveAvgPool2d(4),
            "conv": ConvNorm(in_channels, 128, 1),
            "flatten": nn.Flatten(),
            "fc1": nn.Linear(128 * 16, 1024),
            "relu": nn.ReLU(),
            "dropout": nn.Dropout(dropout),
            "fc2": nn.Linear(1024, num_classes),
        }
        super().__init__(layers)


class GoogLeNet(Model):
    """Nine inception blocks after three convolutions, with two auxiliary classifiers for training.

    Source: Szegedy et al. 2015, arXiv 1409.4842; names, order, shapes, start values and batch
    normalisation are those of ``torchvision.models.googlenet``.

    Args:
        blocks: The channels of the branches by block, ``"3a"`` to ``"5b"``; those left out are not
            there. Auxiliary classifiers look at ``"4a"`` and ``"4d"``.
        aux_logits: Whether to have them. Torchvision's weights come with them, and it leaves them
            out after loading.
        num_classes: Number of outputs; 0 for no head (nor auxiliary ones): the pooled features.
        in_channels: Number of input channels.
        transform_input: The input is normalised as torchvision's models want it; take it back to
            what the published weights were trained with. Needs three channels.
        dropout: Before the linear layer.
        dropout_aux: In the auxiliary classifiers.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; in training, with
        auxiliary classifiers, a tuple of three such: the output, the later auxiliary one (after
        ``"4d"``), the earlier one (after ``"4a"``).

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``conv1.conv``), or is smaller than 15 along an axis.
    """

    stem_paths = ("conv1.conv",)
    can_stop = True
    # torchvision cuts them at 2, which is 200 standard deviations
    start_values = {"*conv.weight": Normal(0.01), "*fc*.weight": Normal(0.01)}

    def __init__(
        self,
        blocks: Mapping[str, Widths] = _BLOCKS,
        aux_logits: bool = True,
        num_classes: int = 1000,
        in_channels: int = 3,
        transform_input: bool = False,
        dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ) -> None:
        super().__init__()
        check_input_settings("GoogLeNet", in_channels, transform_input)
        nn = self.nn
        self.transform_input = transform_input
        self.num_classes = num_classes
        self.aux_logits = bool(aux_logits) and num_classes != 0
        self.names = _names(blocks, self.aux_logits)
        self.conv1 = ConvNorm(in_channels, 64, 7, 2, 3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = ConvNorm(64, 64, 1)
        self.conv3 = ConvNorm(64, 192, 3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        width = 192
        outputs = {}
        for name in self.names:
            one, _, two, _, three, pooled = blocks[name]
            setattr(self, f"inception{name}", Inception(width, blocks[name]))
            width = one + two + three + pooled
            outputs[name] = width
        if self.aux_logits:
            self.aux1 = Auxiliary(outputs["4a"], num_classes, dropout_aux)
            self.aux2 = Auxiliary(outputs["4d"], num_classes, dropout_aux)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = classifier(nn, width, num_classes, "GoogLeNet")

    @property
    def head_paths(self):  # type: ignore[override]
        """The last linear layer, and those of the auxiliary classifiers."""
        if not self.num_classes:
            return ()
        return ("fc", "aux1.fc2", "aux2.fc2") if self.aux_logits else ("fc",)

    def forward(self, x):
        stages = self.forward_stages(x)
        *_, last = stages.values()
        y = self.nn.flatten(self.avgpool(last))
        y = self.fc(self.dropout(y))
        if self.training and self.aux_logits:
            return y, self.aux2(stages["inception4d"]), self.aux1(stages["inception4a"])
        return y

    def forward_stages(self, x, until=None):
        """Return the first convolution, / 2, the third, / 4, and each block.

        The blocks 3 have / 8, the blocks 4 / 16 and the blocks 5 / 32.
        """
        large_enough(self, x, 15, "maxpool3")
        layers = [self.conv1, self.maxpool1, self.conv2, self.conv3]
        ends = [("conv1", 1), ("conv3", 4)]
        number = ""
        for name in self.names:
            if name[0] != number:
                number = name[0]
                layers.append(getattr(self, f"maxpool{int(number) - 1}"))
            layers.append(getattr(self, f"inception{name}"))
            ends.append((f"inception{name}", len(layers)))
        if self.transform_input:
            x = as_trained(self.nn, x)
        return run_stages(layers, x, ends, until)


def check_input_settings(what: str, in_channels: Any, transform_input: bool) -> None:
    """Refuse to transform an input that has not three channels.

    Raises:
        SettingError: It has another number of them.
    """
    if transform_input and in_channels != 3:
        raise SettingError(
            f"{what}: transform_input=True is for three channels, not in_channels={in_channels}"
        )


def as_trained(nn: Any, x: Any) -> Any:
    """Bring an image normalised by ImageNet's means and deviations to the range from -1 to 1.

    Torchvision does the same.

    Shapes:
        ``(batch, 3, height, width)`` gives the same shape.
    """
    means = (0.485, 0.456, 0.406)
    deviations = (0.229, 0.224, 0.225)
    channels = []
    for i, (mean, deviation) in enumerate(zip(means, deviations, strict=True)):
        channels.append(x[:, i : i + 1] * (deviation / 0.5) + (mean - 0.5) / 0.5)
    return nn.concatenate(channels, 1)


def _names(blocks: Any, auxiliary: bool) -> tuple[str, ...]:
    """Return the blocks in the order in which they run."""
    known = isinstance(blocks, Mapping) and set(blocks) <= set(_BLOCKS)
    if not known or any(len(row) != 6 for row in blocks.values()):
        raise SettingError(
            f"GoogLeNet: blocks={blocks!r}; wanted six numbers of channels for '3a' to '5b'"
        )
    names = tuple(name for name in _BLOCKS if name in blocks)
    every_number = {name[0] for name in names} == set("345")
    lacks_auxiliary = auxiliary and not {"4a", "4d"} <= set(names)
    if not every_number or lacks_auxiliary:
        raise SettingError(
            f"GoogLeNet: blocks are {', '.join(names)}; wanted some of 3, 4 and 5, and '4a' and "
            "'4d' for aux_logits"
        )
    return names


register(
    GoogLeNet,
    name="googlenet",
    source="Szegedy et al. 2015, arXiv 1409.4842; torchvision",
    shape=images(224),
    parameters=13_004_888,  # torchvision's 6,624,904 are without the auxiliary classifiers
)
