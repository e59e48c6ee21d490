"""SqueezeNet 1.0 and 1.1, as torchvision builds them.

Version 1.0 follows the paper. Its authors published version 1.1 later: the same accuracy for 2.4
times fewer multiply-adds.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeUniform, Normal
from deliralike.zoo.blocks import by_dims, images, large_enough, run_stages
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import numbers

Plan = tuple[tuple[int, int] | None, ...]

# each fire block's squeezed and expanded channels; None is a pooling
_1_0 = (
    None,
    (16, 64),
    (16, 64),
    (32, 128),
    None,
    (32, 128),
    (48, 192),
    (48, 192),
    (64, 256),
    None,
    (64, 256),
)
_1_1 = (
    None,
    (16, 64),
    (16, 64),
    None,
    (32, 128),
    (32, 128),
    None,
    (48, 192),
    (48, 192),
    (64, 256),
    (64, 256),
)


class Fire(Network):
    """A 1x1 convolution to few channels, then 1x1 and 3x3 convolutions side by side.

    Source: Iandola et al. 2016, arXiv 1602.07360, figure 1; torchvision.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, 2 * expand, *size)``.
    """

    def __init__(
        self, in_channels: int, squeeze: int, expand: int, dims: int = 2
    ) -> None:
        super().__init__()
        conv = by_dims(self.nn, dims, "Conv")
        self.squeeze = conv(in_channels, squeeze, 1)
        self.squeeze_activation = self.nn.ReLU()
        self.expand1x1 = conv(squeeze, expand, 1)
        self.expand1x1_activation = self.nn.ReLU()
        self.expand3x3 = conv(squeeze, expand, 3, padding=1)
        self.expand3x3_activation = self.nn.ReLU()

    def forward(self, x):
        x = self.squeeze_activation(self.squeeze(x))  # (batch, squeeze, *size)
        sides = [
            self.expand1x1_activation(self.expand1x1(x)),
            self.expand3x3_activation(self.expand3x3(x)),
        ]
        return self.nn.concatenate(sides, 1)


class SqueezeNet(Model):
    """A convolution, fire blocks with poolings between them, and a 1x1 convolution to the classes.

    Source: Iandola et al. 2016, arXiv 1602.07360, and the authors' version 1.1; names, order,
    shapes and start values are those of ``torchvision.models.squeezenet``.

    Args:
        plan: What follows the first convolution: the squeezed and the expanded channels of a fire
            block, or None for a pooling.
        kernel: Size of the first convolution.
        width: Its channels.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        dropout: Before the last convolution.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``. The first convolution halves
        the size without padding; the poolings halve it, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``features.0``), or is too small for the last pooling: the least size is 21 for version
            1.0, 17 for 1.1.
    """

    stem_paths = ("features.0",)
    can_stop = True
    start_values = {
        "*.weight": HeUniform("in"),
        "classifier.1.weight": Normal(0.01),
        "*.bias": ZEROS,
    }

    def __init__(
        self,
        plan: Sequence[Sequence[int] | None] = _1_1,
        kernel: int = 3,
        width: int = 64,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        nn = self.nn
        plan = _plan(plan)
        conv, pool, average = by_dims(nn, dims, "Conv", "MaxPool", "AdaptiveAvgPool")
        blocks = [conv(in_channels, width, kernel, stride=2), nn.ReLU()]
        ends = []
        for row in plan:
            if row is None:
                ends.append(len(blocks))
                blocks.append(pool(3, stride=2, ceil_mode=True))
            else:
                squeeze, expand = row
                blocks.append(Fire(width, squeeze, expand, dims))
                width = 2 * expand
        ends.append(len(blocks))
        self.features = nn.Sequential(*blocks)
        self.ends = tuple((f"features.{end - 1}", end) for end in ends)
        self.least = 2 * (2 ** plan.count(None) - 1) + kernel
        last = nn.Identity()
        if num_classes != 0:
            last = conv(
                width, checks.positive(num_classes, "num_classes", "SqueezeNet"), 1
            )
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), last, nn.ReLU(), average(1)
        )
        self.num_classes = num_classes

    @property
    def head_paths(self):  # type: ignore[override]
        """The last convolution."""
        return ("classifier.1",) if self.num_classes else ()

    def forward(self, x):
        last = self.last_stage(x)
        return self.nn.flatten(self.classifier(last))

    def forward_stages(self, x, until=None):
        """Return what comes before each pooling, / 2 to / 8, and the last block, / 16."""
        large_enough(self, x, self.least, self.ends[-1][0])
        return run_stages(self.features, x, self.ends, until)


def _plan(plan: Any) -> Plan:
    rows = () if plan is None or isinstance(plan, int | str) else tuple(plan)
    if not rows or any(row is not None and len(row) != 2 for row in rows):
        raise SettingError(
            f"SqueezeNet: plan={plan!r}; wanted pairs of squeezed and expanded channels, or None"
        )
    for row in rows:
        if row is not None:
            numbers(row, "plan", "SqueezeNet")
    return rows


# name: (what follows the first convolution, its kernel, its channels, parameters)
_VARIANTS = {
    "squeezenet1_0": (_1_0, 7, 96, 1_248_424),
    "squeezenet1_1": (_1_1, 3, 64, 1_235_496),
}

register_each(
    SqueezeNet,
    by_column(("plan", "kernel", "width"), _VARIANTS),
    dims=(1, 2, 3),
    source="Iandola et al. 2016, arXiv 1602.07360; torchvision",
    shape=images(224),
)
