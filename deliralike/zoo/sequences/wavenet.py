"""WaveNet: a model of sound, sample by sample, with causal and dilated convolutions.

The paper states the structure and few of the sizes; the defaults here are those in common use (32
channels in the layers, 512 in the sum over them). Conditioning on a speaker or a text is left out.
"""

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo.inputs import Input
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.sequences.tokens import check_tokens
from deliralike.zoo.setting_checks import positive


def mu_law(signal: np.ndarray, levels: int = 256) -> np.ndarray:
    """Return the levels of a signal between -1 and 1, finer where it is small (ITU-T G.711).

    Example:
        >>> mu_law(np.array([-1.0, 0.0, 0.01, 1.0])).tolist()
        [0, 128, 157, 255]
    """
    mu = levels - 1
    compressed = np.sign(signal) * np.log1p(mu * np.abs(signal)) / np.log1p(mu)
    return ((compressed + 1) / 2 * mu + 0.5).astype(np.int64)


def signal_of(numbers: np.ndarray, levels: int = 256) -> np.ndarray:
    """Return the signal between -1 and 1 that has these levels; the way back from `mu_law`.

    Example:
        >>> mu_law(signal_of(np.array([0, 128, 157, 255]))).tolist()
        [0, 128, 157, 255]
    """
    mu = levels - 1
    compressed = 2 * np.asarray(numbers) / mu - 1
    return np.sign(compressed) * np.expm1(np.abs(compressed) * np.log1p(mu)) / mu


class GatedLayer(Network):
    """A causal convolution with a gate, and two 1x1 convolutions: to the next layer and to the sum.

    Source: van den Oord et al. 2016, arXiv 1609.03499, equation 2 and figure 4.

    Shapes:
        ``(batch, width, time)`` gives the next layer's input, of that shape, or None after the last
        layer; and ``(batch, skip_width, time)``.
    """

    def __init__(
        self,
        width: int,
        gate_width: int,
        skip_width: int,
        kernel_size: int,
        dilation: int,
        is_last: bool,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.before = (kernel_size - 1) * dilation
        self.filter = nn.Conv1d(width, gate_width, kernel_size, dilation=dilation)
        self.gate = nn.Conv1d(width, gate_width, kernel_size, dilation=dilation)
        self.residual = None if is_last else nn.Conv1d(gate_width, width, 1)
        self.skip = nn.Conv1d(gate_width, skip_width, 1)

    def forward(self, x):
        nn = self.nn
        padded = nn.pad(x, (self.before, 0))
        y = nn.tanh(self.filter(padded)) * nn.sigmoid(self.gate(padded))
        if self.residual is None:
            return None, self.skip(y)
        return x + self.residual(y), self.skip(y)


class WaveNet(Model):
    """The distribution of the next sample of a sound, given those up to each step.

    Source: van den Oord et al. 2016, arXiv 1609.03499. The output at a step depends on that sample
    and the ``receptive_field - 1`` samples before it; so the loss of a batch is
    ``cross_entropy(network(samples)[:, :, :-1], samples[:, 1:])``.

    Args:
        levels: The number of levels that a sample can have; see `mu_law`.
        num_classes: Number of outputs; 0 for no head: the features before the last convolution.
        layers: The number of layers in a stack; the dilation doubles from 1 on.
        stacks: The number of stacks.
        width: Channels between layers.
        gate_width: Channels of the convolutions with gates.
        skip_width: Channels of the sum over layers.
        kernel_size: The number of samples that a convolution joins.

    Shapes:
        Whole numbers ``(batch, time)`` give ``(batch, num_classes, time)``.

    Raises:
        SettingError: A setting makes no sense, or the input has no whole numbers.
        ShapeError: The input has another number of axes.
        IndexRangeError: A sample is not below `levels`.
    """

    def __init__(
        self,
        levels: int = 256,
        num_classes: int = 256,
        layers: int = 10,
        stacks: int = 5,
        width: int = 32,
        gate_width: int = 32,
        skip_width: int = 512,
        kernel_size: int = 2,
    ) -> None:
        super().__init__()
        positive("WaveNet", layers=layers, stacks=stacks)
        nn = self.nn
        self.levels = levels
        self.stacks = stacks
        self.before = kernel_size - 1
        self.receptive_field = 1 + (kernel_size - 1) * (1 + stacks * (2**layers - 1))
        self.causal = nn.Conv1d(levels, width, kernel_size)
        gated = []
        for number in range(stacks * layers):
            is_last = number == stacks * layers - 1
            dilation = 2 ** (number % layers)
            gated.append(
                GatedLayer(
                    width, gate_width, skip_width, kernel_size, dilation, is_last
                )
            )
        self.layers = nn.ModuleList(gated)
        self.post1 = nn.Conv1d(skip_width, skip_width, 1)
        self.post2 = nn.Identity()
        self.has_head = num_classes != 0
        if self.has_head:
            checks.positive(num_classes, "num_classes", "WaveNet")
            self.post2 = nn.Conv1d(skip_width, num_classes, 1)

    @property
    def head_paths(self):  # type: ignore[override]
        """The last convolution."""
        return ("post2",) if self.has_head else ()

    def forward(self, samples):
        nn = self.nn
        y = nn.relu(self.forward_stages(samples)["skips"])
        return self.post2(nn.relu(self.post1(y)))

    def forward_stages(self, samples):
        """Return the first convolution, each stack but the last, and the sum over all layers.

        They are called ``causal``, ``stack0`` and so on, and ``skips``; all are ``(batch, channels,
        time)``.
        """
        nn = self.nn
        check_tokens(self, samples)
        # (batch, levels, time)
        x = nn.one_hot(samples, self.levels, like=self.causal.weight)
        x = self.causal(nn.pad(x, (self.before, 0)))
        stages = {"causal": x}
        in_stack = len(self.layers) // self.stacks
        skips = 0.0
        for number, layer in enumerate(self.layers, start=1):
            x, skip = layer(x)
            skips = skips + skip
            if number % in_stack == 0 and x is not None:
                stages[f"stack{number // in_stack - 1}"] = x
        return stages | {"skips": skips}


register(
    WaveNet,
    name="wavenet",
    task="sound generation",
    dims=(1,),
    source="van den Oord et al. 2016, arXiv 1609.03499",
    shape=lambda settings: Input((8192,), below=settings["levels"]),
)
