"""Residual blocks: a method that makes stages, a norm that is an argument, in-place additions."""

from functools import partial
from typing import Callable, Optional

import torch
from torch import Tensor, nn


def pointwise(inputs: int, outputs: int, step: int = 1) -> nn.Conv2d:
    """A convolution over one place."""
    return nn.Conv2d(inputs, outputs, kernel_size=1, stride=step, bias=False)


class Unit(nn.Module):
    """Narrow, convolve, widen, and add what came in."""

    widening = 3

    def __init__(
        self,
        inputs: int,
        width: int,
        step: int = 1,
        shortcut: Optional[nn.Module] = None,
        norm: Optional[Callable[..., nn.Module]] = None,
    ) -> None:
        super().__init__()
        norm = norm or nn.BatchNorm2d
        self.narrow = pointwise(inputs, width)
        self.norm1 = norm(width)
        self.spatial = nn.Conv2d(
            width, width, 3, step, 1, groups=2, bias=False
        )  # halves the size
        self.norm2 = norm(width)
        self.widen = pointwise(width, width * self.widening)
        self.norm3 = norm(width * self.widening)
        self.act = nn.ReLU(inplace=True)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)

        y = self.act(self.norm1(self.narrow(x)))
        y = self.act(self.norm2(self.spatial(y)))
        y = self.norm3(self.widen(y))

        y += kept
        return self.act(y)


class Residual(nn.Module):
    def __init__(
        self,
        depths: tuple[int, ...] = (1, 2),
        classes: int = 10,
        norm: Callable[..., nn.Module] = partial(nn.BatchNorm2d, momentum=0.05),
        start_at_zero: bool = True,
    ) -> None:
        super().__init__()
        self.channels = 8
        self.stem = nn.Sequential(
            nn.Conv2d(3, self.channels, kernel_size=5, stride=2, padding=2, bias=False),
            norm(self.channels),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        stages = [
            self._stage(4 + 2 * at, depth, at + 1, norm)
            for at, depth in enumerate(depths)
        ]
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(self.channels, classes)

        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(
                    layer.weight, mode="fan_out", nonlinearity="relu"
                )
            elif start_at_zero and isinstance(layer, Unit):
                nn.init.zeros_(layer.norm3.weight)

    def _stage(self, width: int, depth: int, step: int, norm) -> nn.Sequential:
        outputs = width * Unit.widening
        shortcut = nn.Sequential(pointwise(self.channels, outputs, step), norm(outputs))
        units = [Unit(self.channels, width, step, shortcut, norm)]
        self.channels = outputs
        for _ in range(depth - 1):
            units.append(Unit(self.channels, width, norm=norm))
        return nn.Sequential(*units)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        x = torch.flatten(self.pool(x), 1)
        return self.head(x)
