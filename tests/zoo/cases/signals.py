"""InceptionTime, TCN and WaveNet, beside the same computed from the papers' formulas.

Convolutions are sums over the taps of their kernels, each a product with the shifted input.
"""

import warnings
from functools import partial

import torch
from torch import nn

from deliralike.zoo import Input
from tests.zoo.case import Case


def shifted(x, steps):
    """The signal some steps later (or earlier where negative), with zeros where there was none."""
    time = x.shape[-1]
    result = torch.zeros_like(x)
    if steps >= 0:
        result[..., steps:] = x[..., : max(time - steps, 0)]
    else:
        result[..., :steps] = x[..., -steps:]
    return result


def convolved(x, conv, weight, after=0):
    """A convolution whose last tap is `after` steps ahead."""
    taps = weight.shape[-1]
    y = 0.0 if conv.bias is None else conv.bias[:, None]
    for tap in range(taps):
        steps = (taps - 1 - tap) * conv.dilation[0] - after
        y = y + torch.einsum("oi,bit->bot", weight[:, :, tap], shifted(x, steps))
    return y


class Block(nn.Module):
    """TCN's: figure 1b of the paper."""

    def __init__(self, width_in, width, kernel_size, dilation):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            for name, channels in (("conv1", width_in), ("conv2", width)):
                conv = nn.Conv1d(channels, width, kernel_size, dilation=dilation)
                setattr(self, name, nn.utils.weight_norm(conv))
        self.dropout = nn.Dropout(0.0)
        self.downsample = nn.Conv1d(width_in, width, 1) if width_in != width else None

    def forward(self, x):
        y = x
        for conv in (self.conv1, self.conv2):
            length = conv.weight_v.flatten(1).norm(dim=1)[:, None, None]
            y = self.dropout(
                convolved(y, conv, conv.weight_g * conv.weight_v / length).relu()
            )
        x = x if self.downsample is None else self.downsample(x)
        return (x + y).relu()


class TCN(nn.Module):
    def __init__(self, outputs, width_in, widths, kernel_size):
        super().__init__()
        blocks = []
        for number, width in enumerate(widths):
            blocks.append(Block(width_in, width, kernel_size, 2**number))
            width_in = width
        self.tcn = nn.Module()
        self.tcn.network = nn.Sequential(*blocks)
        self.linear = nn.Linear(widths[-1], outputs)

    def forward(self, x):
        return self.linear(self.tcn.network(x)[:, :, -1])


class Layer(nn.Module):
    """WaveNet's: equation 2 and figure 4."""

    def __init__(self, width, gate_width, skip_width, kernel_size, dilation, is_last):
        super().__init__()
        self.filter = nn.Conv1d(width, gate_width, kernel_size, dilation=dilation)
        self.gate = nn.Conv1d(width, gate_width, kernel_size, dilation=dilation)
        self.residual = None if is_last else nn.Conv1d(gate_width, width, 1)
        self.skip = nn.Conv1d(gate_width, skip_width, 1)


class WaveNet(nn.Module):
    def __init__(
        self, levels, outputs, dilations, width, gate_width, skip_width, kernel_size
    ):
        super().__init__()
        self.levels = levels
        self.causal = nn.Conv1d(levels, width, kernel_size)
        last = len(dilations) - 1
        self.layers = nn.ModuleList(
            Layer(width, gate_width, skip_width, kernel_size, dilation, number == last)
            for number, dilation in enumerate(dilations)
        )
        self.post1 = nn.Conv1d(skip_width, skip_width, 1)
        self.post2 = nn.Conv1d(skip_width, outputs, 1)

    def forward(self, samples):
        one_hot = torch.eye(self.levels, dtype=torch.float64)[samples].mT
        x = convolved(one_hot, self.causal, self.causal.weight)
        total = 0.0
        for layer in self.layers:
            content = convolved(x, layer.filter, layer.filter.weight).tanh()
            y = content * convolved(x, layer.gate, layer.gate.weight).sigmoid()
            total = total + layer.skip(y)
            if layer.residual is not None:
                x = x + layer.residual(y)
        return self.post2(self.post1(total.relu()).relu())


class Module(nn.Module):
    """InceptionTime's: figure 2."""

    def __init__(self, width_in, width, kernel_sizes, bottleneck):
        super().__init__()
        inside = bottleneck if width_in > 1 else width_in
        self.bottleneck = (
            nn.Conv1d(width_in, inside, 1, bias=False) if width_in > 1 else None
        )
        self.convs = nn.ModuleList(
            nn.Conv1d(inside, width, k, bias=False) for k in kernel_sizes
        )
        pool = nn.Identity()
        self.maxconvpool = nn.Sequential(
            pool, nn.Conv1d(width_in, width, 1, bias=False)
        )
        self.bn = nn.BatchNorm1d(
            width * (len(kernel_sizes) + 1), eps=1e-3, momentum=0.01
        )

    def forward(self, x):
        y = x if self.bottleneck is None else self.bottleneck(x)
        # TensorFlow's "same": an even kernel has its longer side ahead
        branches = [
            convolved(y, c, c.weight, after=c.kernel_size[0] // 2) for c in self.convs
        ]
        around = [x.roll(1, -1), x, x.roll(-1, -1)]
        around[0][..., 0] = around[2][..., -1] = -torch.inf
        branches.append(self.maxconvpool(torch.stack(around).amax(0)))
        return self.bn(torch.cat(branches, 1)).relu()


class InceptionTime(nn.Module):
    def __init__(self, outputs, width_in, layers, width, kernel_sizes, bottleneck):
        super().__init__()
        wide = width * (len(kernel_sizes) + 1)
        widths = [width_in] + [wide] * (layers - 1)
        self.inceptionblock = nn.Module()
        self.inceptionblock.inception = nn.ModuleList(
            Module(each, width, kernel_sizes, bottleneck) for each in widths
        )
        self.inceptionblock.shortcut = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(widths[3 * number], wide, 1, bias=False),
                nn.BatchNorm1d(wide, eps=1e-3, momentum=0.01),
            )
            for number in range(layers // 3)
        )
        self.fc = nn.Linear(wide, outputs)

    def forward(self, x):
        before = x
        for number, module in enumerate(self.inceptionblock.inception):
            x = module(x)
            if number % 3 == 2:
                before = x = (
                    x + self.inceptionblock.shortcut[number // 3](before)
                ).relu()
        return self.fc(x.mean(2))


CASES = [
    Case(
        "tcn",
        {
            "num_classes": 3,
            "in_channels": 2,
            "widths": (4, 4, 5),
            "kernel_size": 3,
            "dropout": 0.0,
        },
        (2, 17),
        reference=partial(TCN, 3, 2, (4, 4, 5), 3),
    ),
    Case(
        "tcn",
        {
            "num_classes": 3,
            "in_channels": 2,
            "widths": (8, 9),
            "kernel_size": 3,
            "dropout": 0.0,
            "every_step": True,
        },
        (2, 11),
        of="at every step",
    ),
    Case(
        "wavenet",
        {
            "levels": 7,
            "num_classes": 6,
            "layers": 3,
            "stacks": 2,
            "width": 4,
            "gate_width": 5,
            "skip_width": 8,
            "kernel_size": 3,
        },
        Input((19,), below=7),
        reference=partial(WaveNet, 7, 6, (1, 2, 4) * 2, 4, 5, 8, 3),
    ),
    Case(
        "inception_time",
        {
            "num_classes": 3,
            "layers": 7,
            "width": 4,
            "kernel_sizes": (10, 5, 2),
            "bottleneck": 3,
        },
        (1, 21),
        batch=3,
        reference=partial(InceptionTime, 3, 1, 7, 4, (10, 5, 2), 3),
    ),
    Case(
        "inception_time",
        {
            "num_classes": 0,
            "in_channels": 2,
            "layers": 3,
            "width": 4,
            "kernel_sizes": (4, 3),
            "bottleneck": 0,
        },
        (2, 13),
        batch=3,
        of="headless",
    ),
]
