"""Densely connected networks, as torchvision builds them.

Unlike the paper's, the head's pooling takes images of any size, and no layer has dropout unless
asked for.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo.blocks import by_dims, classifier, images, in_turn, large_enough
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers, positive


class DenseLayer(Network):
    """The layer of a dense block: normalisation, 1x1 and normalisation, 3x3 convolution.

    Its output is the channels that it adds.

    Source: Huang et al. 2017, arXiv 1608.06993, section 3 ("DenseNet-B"); torchvision.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, growth_rate, *size)``.
    """

    def __init__(
        self,
        in_channels: int,
        growth_rate: int,
        bottleneck: int,
        dropout: float = 0.0,
        dims: int = 2,
    ) -> None:
        super().__init__()
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        self.norm1 = norm(in_channels)
        self.relu1 = self.nn.ReLU()
        self.conv1 = conv(in_channels, bottleneck, 1, bias=False)
        self.norm2 = norm(bottleneck)
        self.relu2 = self.nn.ReLU()
        self.conv2 = conv(bottleneck, growth_rate, 3, padding=1, bias=False)
        self.dropout = self.nn.Dropout(dropout)

    def forward(self, x):
        y = self.conv1(self.relu1(self.norm1(x)))  # (batch, bottleneck, *size)
        y = self.conv2(self.relu2(self.norm2(y)))  # (batch, growth_rate, *size)
        return self.dropout(y)


class DenseBlock(Network):
    """Layers that each read the block's input and the outputs of all layers before.

    The output is all of it together.

    Shapes:
        ``(batch, in_channels, *size)`` gives
        ``(batch, in_channels + layers * growth_rate, *size)``.
    """

    def __init__(
        self,
        layers: int,
        in_channels: int,
        growth_rate: int,
        bottleneck: int,
        dropout: float = 0.0,
        dims: int = 2,
    ) -> None:
        super().__init__()
        self.layers = layers
        for i in range(layers):
            width = in_channels + i * growth_rate
            layer = DenseLayer(width, growth_rate, bottleneck, dropout, dims)
            setattr(self, f"denselayer{i + 1}", layer)

    def forward(self, x):
        maps = [x]
        for i in range(self.layers):
            layer = getattr(self, f"denselayer{i + 1}")
            maps.append(layer(self.nn.concatenate(maps, 1)))
        return self.nn.concatenate(maps, 1)


class Transition(Network):
    """Half the channels and half the size: normalisation, 1x1 convolution, average pooling.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, in_channels // 2, *size / 2)``, rounded
        down.
    """

    def __init__(self, in_channels: int, dims: int = 2) -> None:
        super().__init__()
        conv, norm, pool = by_dims(self.nn, dims, "Conv", "BatchNorm", "AvgPool")
        self.norm = norm(in_channels)
        self.relu = self.nn.ReLU()
        self.conv = conv(in_channels, in_channels // 2, 1, bias=False)
        self.pool = pool(2, 2)

    def forward(self, x):
        return self.pool(self.conv(self.relu(self.norm(x))))


class Features(Network):
    """All layers before the pooling.

    They are the stem, dense blocks with transitions between them, and the last normalisation.
    """

    def __init__(
        self,
        growth_rate: int,
        layers: tuple[int, ...],
        width: int,
        bottleneck: int,
        dropout: float,
        in_channels: int,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.layers = layers
        conv, norm, pool = by_dims(nn, dims, "Conv", "BatchNorm", "MaxPool")
        self.conv0 = conv(in_channels, width, 7, stride=2, padding=3, bias=False)
        self.norm0 = norm(width)
        self.relu0 = nn.ReLU()
        self.pool0 = pool(3, stride=2, padding=1)
        for i, count in enumerate(layers, start=1):
            block = DenseBlock(count, width, growth_rate, bottleneck, dropout, dims)
            setattr(self, f"denseblock{i}", block)
            width += count * growth_rate
            if i < len(layers):
                setattr(self, f"transition{i}", Transition(width, dims))
                width //= 2
        setattr(self, f"norm{len(layers) + 1}", norm(width))
        # not in place: what comes before it is a stage of its own
        self.relu = nn.ReLU()
        self.width = width

    def forward(self, x):
        *_, last = in_turn(x, self.steps()).values()
        return self.relu(last)

    def steps(self):
        """Return the stem, each block, and the normalisation and ReLU after each block.

        With them a block's transition begins. segmentation_models_pytorch cuts the network there
        for its decoders; the last normalisation has no ReLU there.
        """
        steps = {"stem": self._stem}
        last = len(self.layers)
        for i in range(1, last + 1):
            steps[f"denseblock{i}"] = partial(self._block, i)
            name = f"transition{i}.relu" if i < last else f"norm{i + 1}"
            steps[name] = partial(self._normalised, i)
        return steps

    def _stem(self, x):
        return self.relu0(self.norm0(self.conv0(x)))

    def _block(self, i, x):
        x = self.pool0(x) if i == 1 else self._reduced(i - 1, x)
        return getattr(self, f"denseblock{i}")(x)

    def _reduced(self, i, x):
        transition = getattr(self, f"transition{i}")
        return transition.pool(transition.conv(x))

    def _normalised(self, i, x):
        if i == len(self.layers):
            return getattr(self, f"norm{i + 1}")(x)
        transition = getattr(self, f"transition{i}")
        return transition.relu(transition.norm(x))


_OLD = re.compile(r"(denselayer\d+\.(?:norm|conv))([12]\.)")


def _old_names(names: Sequence[str]) -> dict[str, str]:
    return {name: _OLD.sub(r"\1.\2", name) for name in names}


class DenseNet(Model):
    """A densely connected network ("DenseNet-BC") in 1, 2 and 3 dimensions.

    It has bottlenecks and compression; the names are the same in all dimensions.

    Source: Huang et al. 2017, arXiv 1608.06993; names, order, shapes and start values are those of
    ``torchvision.models.densenet``. Its published files have older names (``denselayer1.norm.1``
    for ``denselayer1.norm1``): the key map ``"old"``.

    Args:
        growth_rate: The channels that each layer adds.
        layers: The number of layers in each dense block.
        width: Channels of the stem.
        bottleneck: The channels between the two convolutions of a layer, in multiples of the growth
            rate.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: After each layer.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the stem quarters the size,
        rounding up, each transition halves it, rounding down.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``features.conv0``), or is too small for a transition: the least size is 29 with four
            blocks.
    """

    stem_paths = ("features.conv0",)
    head_paths = ("classifier",)
    can_stop = True
    start_values = {
        "*conv?.weight": HeNormal("in"),
        "*.conv.weight": HeNormal("in"),
        "classifier.bias": ZEROS,
    }
    keymaps = (KeyMap("old", _old_names),)

    def __init__(
        self,
        growth_rate: int = 32,
        layers: Sequence[int] = (6, 12, 24, 16),
        width: int = 64,
        bottleneck: int = 4,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = {"growth_rate": growth_rate, "width": width, "bottleneck": bottleneck}
        positive("DenseNet", in_channels=in_channels, **sizes)
        layers = numbers(layers, "layers", "DenseNet")
        # The last transition's input has two elements; it is 2 ** (len(layers) - 2) times smaller
        # than the first one's.
        self.least = 4 * 2 ** (len(layers) - 1) - 3
        self.features = Features(
            growth_rate,
            layers,
            width,
            bottleneck * growth_rate,
            dropout,
            in_channels,
            dims,
        )
        self.avgpool = by_dims(self.nn, dims, "AdaptiveAvgPool")(1)
        self.classifier = classifier(
            self.nn, self.features.width, num_classes, "DenseNet"
        )

    def forward(self, x):
        *_, last = self.forward_stages(x).values()
        x = self.avgpool(self.features.relu(last))
        return self.classifier(self.nn.flatten(x))

    def forward_stages(self, x, until=None):
        """Return the stem, / 2, and each dense block, / 4 to / 32, as it is and normalised."""
        large_enough(self, x, self.least, f"transition{len(self.features.layers) - 1}")
        return in_turn(x, self.features.steps(), until)


# name: (growth rate, layers of each block, channels of the stem, parameters)
_VARIANTS = {
    "densenet121": (32, (6, 12, 24, 16), 64, 7_978_856),
    "densenet161": (48, (6, 12, 36, 24), 96, 28_681_000),
    "densenet169": (32, (6, 12, 32, 32), 64, 14_149_480),
    "densenet201": (32, (6, 12, 48, 32), 64, 20_013_928),
}

for _name, (_growth_rate, _layers, _width, _count) in _VARIANTS.items():
    _variant: dict[str, Any] = {"layers": _layers}
    if _width != 64:
        _variant |= {"growth_rate": _growth_rate, "width": _width}
    register(
        DenseNet,
        name=_name,
        variant=_variant,
        dims=(1, 2, 3),
        source="Huang et al. 2017, arXiv 1608.06993; torchvision",
        shape=images(224),
        parameters=_count,
    )
