"""InceptionTime, a classifier of signals of one or several channels.

It is the paper's network; the paper's classifier averages the softmax of five of them that started
differently.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, XavierUniform
from deliralike.zoo.blocks import classifier, in_turn
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers

# Keras' batch normalisation, which the authors' code uses.
EPS = 1e-3
MOMENTUM = 0.01


class InceptionModule(Network):
    """Convolutions of several lengths beside each other, and one after a pooling.

    Source: Ismail Fawaz et al. 2020, arXiv 1909.04939, figure 2.

    Args:
        in_channels: Channels of the input; a single one is not narrowed.
        width: Channels of each branch.
        kernel_sizes: The lengths of the convolutions.
        bottleneck: Channels after the 1x1 convolution before them; 0 for none.

    Shapes:
        ``(batch, in_channels, time)`` gives ``(batch, (len(kernel_sizes) + 1) * width, time)``.
    """

    def __init__(
        self, in_channels: int, width: int, kernel_sizes: Sequence[int], bottleneck: int
    ) -> None:
        super().__init__()
        nn = self.nn
        self.bottleneck = None
        inside = in_channels
        if bottleneck and in_channels > 1:
            inside = bottleneck
            self.bottleneck = nn.Conv1d(in_channels, inside, 1, bias=False)
        convolutions = []
        for kernel_size in kernel_sizes:
            convolutions.append(
                nn.Conv1d(inside, width, kernel_size, padding="same", bias=False)
            )
        self.convs = nn.ModuleList(convolutions)
        self.maxconvpool = nn.Sequential(
            nn.MaxPool1d(3, stride=1, padding=1),
            nn.Conv1d(in_channels, width, 1, bias=False),
        )
        self.bn = nn.BatchNorm1d((len(convolutions) + 1) * width, EPS, MOMENTUM)

    def forward(self, x):
        # (batch, inside, time)
        y = x if self.bottleneck is None else self.bottleneck(x)
        branches = [conv(y) for conv in self.convs]
        branches.append(self.maxconvpool(x))
        return self.nn.relu(self.bn(self.nn.cat(branches, 1)))


class InceptionBlock(Network):
    """Modules in a row, with a shortcut around every three of them.

    Shapes:
        ``(batch, in_channels, time)`` gives ``(batch, channels, time)``.
    """

    def __init__(
        self, in_channels: int, layers: int, width: int, **options: Any
    ) -> None:
        super().__init__()
        nn = self.nn
        channels = width * (len(options["kernel_sizes"]) + 1)
        modules = [InceptionModule(in_channels, width, **options)]
        for _ in range(1, layers):
            modules.append(InceptionModule(channels, width, **options))
        shortcuts = []
        for number in range(layers // 3):
            start = in_channels if number == 0 else channels
            conv = nn.Conv1d(start, channels, 1, bias=False)
            shortcuts.append(
                nn.Sequential(conv, nn.BatchNorm1d(channels, EPS, MOMENTUM))
            )
        self.inception = nn.ModuleList(modules)
        self.shortcut = nn.ModuleList(shortcuts)

    def group(self, number: int, x):
        """Run up to three modules, and the shortcut around them if they are three."""
        y = x
        start = 3 * number
        for at in range(start, min(start + 3, len(self.inception))):
            y = self.inception[at](y)
        if number >= len(self.shortcut):
            return y
        return self.nn.relu(y + self.shortcut[number](x))


class InceptionTime(Model):
    """Inception modules with shortcuts, the mean over time, and a linear layer.

    Source: Ismail Fawaz et al. 2020, arXiv 1909.04939. Widths, lengths and start values are those
    of the authors' code; the names follow tsai's ``InceptionTime``.

    Args:
        num_classes: Number of outputs; 0 for no head: the mean features.
        in_channels: Number of channels of the signals.
        layers: The number of modules.
        width: Channels of each branch of a module.
        kernel_sizes: The lengths of the convolutions of a module.
        bottleneck: Channels after the 1x1 convolution before them; 0 for none.

    Shapes:
        ``(batch, in_channels, time)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels.
    """

    head_paths = ("fc",)
    can_stop = True
    start_values = {
        "*bottleneck.weight": XavierUniform(),
        "*convs.*.weight": XavierUniform(),
        "*maxconvpool.1.weight": XavierUniform(),
        "*shortcut.*.0.weight": XavierUniform(),
        "fc.weight": XavierUniform(),
        "fc.bias": ZEROS,
    }

    def __init__(
        self,
        num_classes: int = 2,
        in_channels: int = 1,
        layers: int = 6,
        width: int = 32,
        kernel_sizes: Sequence[int] = (40, 20, 10),
        bottleneck: int = 32,
    ) -> None:
        super().__init__()
        checks.positive(layers, "layers", "InceptionTime")
        kernel_sizes = numbers(kernel_sizes, "kernel_sizes", "InceptionTime")
        if bottleneck != 0:
            checks.positive(bottleneck, "bottleneck", "InceptionTime")
        self.groups = (layers + 2) // 3
        self.inceptionblock = InceptionBlock(
            in_channels, layers, width, kernel_sizes=kernel_sizes, bottleneck=bottleneck
        )
        channels = width * (len(kernel_sizes) + 1)
        self.fc = classifier(self.nn, channels, num_classes, "InceptionTime")

    def forward(self, x):
        last = self.last_stage(x)
        return self.fc(self.nn.mean(last, 2))

    def forward_stages(self, x, until=None):
        """Return the output after every three modules, ``group0`` and so on."""
        steps: dict[str, Any] = {}
        for number in range(self.groups):
            steps[f"group{number}"] = partial(self.inceptionblock.group, number)
        return in_turn(x, steps, until)


register(
    InceptionTime,
    name="inception_time",
    task="signal classification",
    dims=(1,),
    source="Ismail Fawaz et al. 2020, arXiv 1909.04939",
    shape=lambda settings: (settings["in_channels"], 128),
)
