"""Wave, written once: a port of before.wave."""

import numpy as np

from deliralike import Network
from deliralike.nn.layers.convolution import Conv1d


class Causal(Conv1d):
    """A convolution that does not look ahead."""

    def __init__(self, inputs, outputs, kernel, dilation=1):
        super().__init__(inputs, outputs, kernel, dilation=dilation)
        self.before = (kernel - 1) * dilation

    def forward(self, x):
        return super().forward(self.nn.pad(x, (self.before, 0)))


class Gated(Network):
    def __init__(self, width, skips, dilation):
        super().__init__()
        nn = self.nn
        self.dilated = Causal(width, 2 * width, 2, dilation=dilation)
        self.next = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, skips, 1)

    def forward(self, x, length):
        nn = self.nn
        signal, gate = nn.split(self.dilated(x), x.shape[1], dim=1)
        y = nn.tanh(signal) * nn.sigmoid(gate)
        return self.next(y) + x, self.skip(y)[:, :, -length:]


class Wave(Network):
    def __init__(self, dilations=(1, 2, 4) * 2, channels=1, width=4, skips=6):
        super().__init__()
        nn = self.nn
        self.reach = sum(dilations)
        window = np.hanning(7)[1:-1].astype("float32")
        smooth = (window / window.sum()).reshape(1, 1, -1)
        self.smooth = nn.Buffer(smooth)
        self.first = Causal(channels, width, 2)
        self.gated = nn.ModuleList()
        for dilation in dilations:
            self.gated += [Gated(width, skips, dilation)]
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skips, channels, 1))

    def forward(self, x):
        nn = self.nn
        x = nn.conv1d(x, self.smooth, padding=self.smooth.shape[-1] // 2)
        length = int(x.shape[2]) - self.reach
        x, skips = self.first(x), []
        for block in self.gated:
            x, skip = block(x, length)
            skips.append(skip)
        return self.last(nn.sum(nn.stack(skips), dim=0))
