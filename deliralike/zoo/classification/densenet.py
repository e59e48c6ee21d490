"""Densely connected networks, as torchvision builds them.

Unlike the paper's, the head's pooling takes images of any size, and no layer has dropout unless
asked for.
"""

import re
from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo.blocks import by_dims, classifier, images, large_enough, run_stages
from deliralike.zoo.keymaps import KeyMap
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import numbers


class DenseLayer(Sequential):
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
        dropout: float,
        dims: int,
    ) -> None:
        nn = self.nn
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        layers = {
            "norm1": norm(in_channels),
            "relu1": nn.ReLU(),
            "conv1": conv(in_channels, bottleneck, 1, bias=False),
            "norm2": norm(bottleneck),
            "relu2": nn.ReLU(),
            "conv2": conv(bottleneck, growth_rate, 3, padding=1, bias=False),
            "dropout": nn.Dropout(dropout),
        }
        super().__init__(layers)


class DenseBlock(Network):
    """Layers that each read the block's input and the outputs of all layers before.

    The output is all of it together.

    Shapes:
        ``(batch, in_channels, *size)`` gives
        ``(batch, in_channels + layers * growth_rate, *size)``.
    """

    def __init__(self, layers: int, in_channels: int, growth_rate: int, *layer: Any):
        super().__init__()
        self.layers = layers
        for i in range(layers):
            width = in_channels + i * growth_rate
            setattr(self, f"denselayer{i + 1}", DenseLayer(width, growth_rate, *layer))

    def forward(self, x):
        maps = [x]
        for i in range(self.layers):
            layer = getattr(self, f"denselayer{i + 1}")
            maps.append(layer(self.nn.concatenate(maps, 1)))
        return self.nn.concatenate(maps, 1)


class Transition(Sequential):
    """Half the channels and half the size: normalisation, 1x1 convolution, average pooling.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, in_channels // 2, *size / 2)``, rounded
        down.
    """

    def __init__(self, in_channels: int, dims: int) -> None:
        conv, norm, pool = by_dims(self.nn, dims, "Conv", "BatchNorm", "AvgPool")
        layers = {
            "norm": norm(in_channels),
            "relu": self.nn.ReLU(),
            "conv": conv(in_channels, in_channels // 2, 1, bias=False),
            "pool": pool(2, 2),
        }
        super().__init__(layers)


def _features(
    nn: Any,
    layers: Sequence[int],
    growth_rate: int,
    width: int,
    in_channels: int,
    bottleneck: int,
    dropout: float,
    dims: int,
) -> tuple[dict[str, Any], int]:
    """Make all layers before the pooling, by name.

    They are the stem, dense blocks with transitions between them, and the last normalisation.

    Returns:
        The layers, and the channels of the last one.
    """
    conv, norm, pool = by_dims(nn, dims, "Conv", "BatchNorm", "MaxPool")
    features = {
        "conv0": conv(in_channels, width, 7, stride=2, padding=3, bias=False),
        "norm0": norm(width),
        "relu0": nn.ReLU(),
        "pool0": pool(3, stride=2, padding=1),
    }
    for i, count in enumerate(layers, start=1):
        block = DenseBlock(count, width, growth_rate, bottleneck, dropout, dims)
        features[f"denseblock{i}"] = block
        width += count * growth_rate
        if i < len(layers):
            features[f"transition{i}"] = Transition(width, dims)
            width //= 2
    features[f"norm{len(layers) + 1}"] = norm(width)
    # not in place: what comes before it is a stage of its own
    return features | {"relu": nn.ReLU()}, width


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
        layers = numbers(layers, "layers", "DenseNet")
        # The last transition's input has two elements; it is 2 ** (len(layers) - 2) times smaller
        # than the first one's.
        self.least = 4 * 2 ** (len(layers) - 1) - 3
        nn = self.nn
        features, width = _features(
            nn,
            layers,
            growth_rate,
            width,
            in_channels,
            bottleneck * growth_rate,
            dropout,
            dims,
        )
        self.features = nn.Sequential(features)
        self.ends = _ends(len(layers))
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        self.classifier = classifier(nn, width, num_classes, "DenseNet")

    def forward(self, x):
        last = self.last_stage(x)
        x = self.avgpool(self.features.relu(last))
        return self.classifier(self.nn.flatten(x))

    def forward_stages(self, x, until=None):
        """Return the stem, / 2, and each dense block, / 4 to / 32, as it is and normalised."""
        before_last, _ = self.ends[-3]
        large_enough(self, x, self.least, before_last.removesuffix(".relu"))
        layers: list[Any] = []
        for layer in self.features:
            layers += layer if isinstance(layer, Transition) else [layer]
        return run_stages(layers, x, self.ends, until)


def _ends(blocks: int) -> tuple[tuple[str, int], ...]:
    """Return the names of the stages, each with the number of layers up to its end.

    A transition has four layers, and ends a stage after its normalisation and ReLU.
    segmentation_models_pytorch cuts the network there for its decoders; the last normalisation has
    no ReLU there.
    """
    ends = [("stem", 3)]
    for i in range(1, blocks + 1):
        end = 5 * i
        ends.append((f"denseblock{i}", end))
        last = (f"norm{i + 1}", end + 1)
        ends.append((f"transition{i}.relu", end + 2) if i < blocks else last)
    return tuple(ends)


# name: (growth rate, layers of each block, channels of the stem, parameters)
_VARIANTS = {
    "densenet121": (32, (6, 12, 24, 16), 64, 7_978_856),
    "densenet161": (48, (6, 12, 36, 24), 96, 28_681_000),
    "densenet169": (32, (6, 12, 32, 32), 64, 14_149_480),
    "densenet201": (32, (6, 12, 48, 32), 64, 20_013_928),
}

register_each(
    DenseNet,
    by_column(("growth_rate", "layers", "width"), _VARIANTS),
    dims=(1, 2, 3),
    source="Huang et al. 2017, arXiv 1608.06993; torchvision",
    shape=images(224),
)
