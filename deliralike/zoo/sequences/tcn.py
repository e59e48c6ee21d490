"""The temporal convolutional network (TCN): causal, dilated convolutions over a sequence.

It is the paper's generic network, with the sizes of its experiment on pixels of MNIST.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import Constant, Normal, fan_in_uniform
from deliralike.zoo.blocks import classifier, in_turn
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers, positive


class CausalConv(Network):
    """A dilated convolution that sees no later step, with normalised weights.

    A kernel is the direction of `weight_v` times the length `weight_g`: Salimans and Kingma 2016,
    arXiv 1602.07868, with the names of ``torch.nn.utils.weight_norm``. The lengths start at what
    the length of `weight_v` is on average.

    Shapes:
        ``(batch, in_channels, time)`` gives ``(batch, out_channels, time)``.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, dilation: int
    ) -> None:
        super().__init__()
        nn = self.nn
        self.in_channels = in_channels
        self.dilation = dilation
        self.before = (kernel_size - 1) * dilation
        start = fan_in_uniform(in_channels * kernel_size)
        self.bias = nn.Parameter((out_channels,), start)
        self.weight_g = nn.Parameter((out_channels, 1, 1), Constant(3**-0.5))
        self.weight_v = nn.Parameter((out_channels, in_channels, kernel_size), start)

    def forward(self, x):
        checks.channels(self, x, self.in_channels, 1)
        nn = self.nn
        lengths = nn.sqrt(nn.sum(self.weight_v * self.weight_v, (1, 2), keepdim=True))
        kernels = self.weight_v * (self.weight_g / lengths)
        x = nn.pad(x, (self.before, 0))
        return nn.conv(x, kernels, self.bias, dilation=self.dilation)


class TemporalBlock(Network):
    """Two causal convolutions, each with ReLU and dropout, and a shortcut.

    Source: Bai et al. 2018, arXiv 1803.01271, figure 1b.

    Shapes:
        ``(batch, in_channels, time)`` gives ``(batch, channels, time)``.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        kernel_size: int,
        dilation: int,
        dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.conv1 = CausalConv(in_channels, channels, kernel_size, dilation)
        self.conv2 = CausalConv(channels, channels, kernel_size, dilation)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        self.downsample = None
        if in_channels != channels:
            self.downsample = nn.Conv1d(in_channels, channels, 1)

    def forward(self, x):
        nn = self.nn
        y = self.dropout1(nn.relu(self.conv1(x)))
        y = self.dropout2(nn.relu(self.conv2(y)))
        if self.downsample is not None:
            x = self.downsample(x)
        return nn.relu(y + x)


def _blocks(
    nn: Any, channels: int, widths: Sequence[int], kernel_size: int, dropout: float
) -> Any:
    """Make blocks in a row; each doubles the dilation of the one before it."""
    blocks = []
    for number, width in enumerate(widths):
        block = TemporalBlock(channels, width, kernel_size, 2**number, dropout)
        blocks.append(block)
        channels = width
    return nn.Sequential({"network": nn.Sequential(*blocks)})


PARAMETRIZED = KeyMap(
    "torch.nn.utils.parametrizations",
    by_patterns(
        {
            r"(.*)\.weight_g": r"\1.parametrizations.weight.original0",
            r"(.*)\.weight_v": r"\1.parametrizations.weight.original1",
            r"(.*)": r"\1",
        }
    ),
)


class TCN(Model):
    """Causal convolutions over a sequence, and a linear layer on the last step, or on every step.

    Source: Bai et al. 2018, arXiv 1803.01271; names and start values follow the authors' code. Each
    output depends on that step and the ``receptive_field - 1`` steps before it.

    Args:
        num_classes: Number of outputs; 0 for no head: the features.
        in_channels: Number of channels of the sequences.
        widths: The channels of each block.
        kernel_size: The number of steps that a convolution joins.
        dropout: Probability of dropping an element after each convolution.
        every_step: Whether every step has outputs, instead of the last one alone.

    Shapes:
        ``(batch, in_channels, time)`` gives ``(batch, num_classes)``, or ``(batch, num_classes,
        time)`` with `every_step`.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names
            ``tcn.network.0.conv1``.
    """

    head_paths = ("linear",)
    can_stop = True
    keymaps = (PARAMETRIZED,)
    ignored_names = r"\.net\."  # what the authors' blocks hold a second time
    start_values = {"*downsample.weight": Normal(0.01)}

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        widths: Sequence[int] = (25, 25, 25, 25, 25, 25, 25, 25),
        kernel_size: int = 7,
        dropout: float = 0.05,
        every_step: bool = False,
    ) -> None:
        super().__init__()
        positive("TCN", in_channels=in_channels, kernel_size=kernel_size)
        widths = numbers(widths, "widths", "TCN")
        self.every_step = bool(every_step)
        self.receptive_field = 1 + 2 * (kernel_size - 1) * (2 ** len(widths) - 1)
        self.tcn = _blocks(self.nn, in_channels, widths, kernel_size, dropout)
        self.linear = classifier(self.nn, widths[-1], num_classes, "TCN")

    def forward(self, x):
        last = self.last_stage(x)
        if not self.every_step:
            return self.linear(last[:, :, -1])
        steps_first = self.nn.transpose(last, 1, 2)  # (batch, time, channels)
        return self.nn.transpose(self.linear(steps_first), 1, 2)

    def forward_stages(self, x, until=None):
        """Return the blocks, ``network.0`` and so on, each ``(batch, channels, time)``."""
        steps: dict[str, Any] = {}
        for number, block in enumerate(self.tcn.network):
            steps[f"network.{number}"] = block
        return in_turn(x, steps, until)


register(
    TCN,
    name="tcn",
    task="signal classification",
    dims=(1,),
    source="Bai et al. 2018, arXiv 1803.01271",
    shape=lambda settings: (settings["in_channels"], 784),
)
