"""Residual, written once: a port of before.residual."""

from functools import partial

from deliralike import Network


def pointwise(nn, inputs: int, outputs: int, step: int = 1):
    """A convolution over one place."""
    return nn.Conv2d(inputs, outputs, kernel_size=1, stride=step, bias=False)


class Unit(Network):
    """Narrow, convolve, widen, and add what came in."""

    widening = 3

    def __init__(
        self,
        inputs: int,
        width: int,
        step: int = 1,
        shortcut=None,
        norm=None,
    ) -> None:
        super().__init__()
        nn = self.nn
        norm = norm or nn.BatchNorm2d
        self.narrow = pointwise(nn, inputs, width)
        self.norm1 = norm(width)
        self.spatial = nn.Conv2d(
            width, width, 3, step, 1, groups=2, bias=False
        )  # halves the size
        self.norm2 = norm(width)
        self.widen = pointwise(nn, width, width * self.widening)
        self.norm3 = norm(width * self.widening)
        self.act = nn.ReLU()
        self.shortcut = shortcut

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)

        y = self.act(self.norm1(self.narrow(x)))
        y = self.act(self.norm2(self.spatial(y)))
        y = self.norm3(self.widen(y))

        y = y + kept
        return self.act(y)


class Residual(Network):
    def __init__(
        self,
        depths: tuple[int, ...] = (1, 2),
        classes: int = 10,
        norm="partial(BatchNorm2d, momentum=0.05)",
        start_at_zero: bool = True,
    ) -> None:
        super().__init__()
        nn = self.nn
        if norm == "partial(BatchNorm2d, momentum=0.05)":
            norm = partial(nn.BatchNorm2d, momentum=0.05)
        self.channels = 8
        self.stem = nn.Sequential(
            nn.Conv2d(3, self.channels, kernel_size=5, stride=2, padding=2, bias=False),
            norm(self.channels),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        stages = [
            self._stage(4 + 2 * at, depth, at + 1, norm)
            for at, depth in enumerate(depths)
        ]
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(self.channels, classes)

    def _stage(self, width: int, depth: int, step: int, norm):
        nn = self.nn
        outputs = width * Unit.widening
        shortcut = nn.Sequential(
            pointwise(nn, self.channels, outputs, step), norm(outputs)
        )
        units = [Unit(self.channels, width, step, shortcut, norm)]
        self.channels = outputs
        for _ in range(depth - 1):
            units.append(Unit(self.channels, width, norm=norm))
        return nn.Sequential(*units)

    def forward(self, x):
        x = self.stages(self.stem(x))
        x = self.nn.flatten(self.pool(x), 1)
        return self.head(x)
