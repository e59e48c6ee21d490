"""The networks that the checks build, in a module so that copies and pickles find them."""

import numpy as np

from deliralike.network.base import Network
from deliralike.nn.start import Constant, Normal, Uniform


class Small(Network):
    """Blocks out of alphabetical order, nested blocks, a list, a buffer and an own parameter."""

    def __init__(self, width=3, p=0.0):
        super().__init__()
        nn = self.nn
        self.stem = nn.Conv2d(2, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.drop = nn.Dropout(p)
        self.head = nn.Linear(width, 4)
        self.gain = nn.Parameter((width,), Uniform(0.5))
        self.calls = nn.Buffer(np.zeros((), np.int64))

    def forward(self, x):
        """Compute the outputs."""
        nn = self.nn
        self.calls = self.calls + 1
        x = nn.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(nn.mean(x, (2, 3)) * self.gain))


class Block(Network):
    """A residual block with a start of its own."""

    def __init__(self, width):
        super().__init__()
        self.conv = self.nn.Conv2d(width, width, 1)

    def forward(self, x):
        """Compute the outputs."""
        return x + self.nn.tanh(self.conv(x))


SMALL = {
    "gain": (3,),
    "calls": (),
    "stem.weight": (3, 2, 3, 3),
    "norm.weight": (3,),
    "norm.bias": (3,),
    "norm.running_mean": (3,),
    "norm.running_var": (3,),
    "norm.num_batches_tracked": (),
    "blocks.0.conv.weight": (3, 3, 1, 1),
    "blocks.0.conv.bias": (3,),
    "blocks.1.conv.weight": (3, 3, 1, 1),
    "blocks.1.conv.bias": (3,),
    "head.weight": (4, 3),
    "head.bias": (4,),
}
SMALL_BUFFERS = (
    "calls",
    "norm.running_mean",
    "norm.running_var",
    "norm.num_batches_tracked",
)
SMALL_BLOCKS = (
    "",
    "stem",
    "norm",
    "blocks.0",
    "blocks.0.conv",
    "blocks.1",
    "blocks.1.conv",
    "drop",
    "head",
)


class Started(Network):
    """Parameters with several distributions, one overridden from above, and one with a value."""

    start_values = {"linear.bias": Constant(0.25)}

    def __init__(self):
        super().__init__()
        self.linear = self.nn.Linear(5, 3)
        self.table = self.nn.Parameter((4, 2), Normal(std=0.5, zero_row=1))
        self.given = self.nn.Parameter((2,), np.array([1.5, -2.5]))

    def forward(self, x):
        """Compute the outputs."""
        return self.linear(x)


class Dense(Network):
    """Two linear maps with a tanh between them."""

    def __init__(self):
        super().__init__()
        self.first = self.nn.Linear(3, 4)
        self.second = self.nn.Linear(4, 3)

    def forward(self, x):
        """Compute the outputs."""
        return self.second(self.nn.tanh(self.first(x)))


DENSE = {
    "first.weight": (4, 3),
    "first.bias": (4,),
    "second.weight": (3, 4),
    "second.bias": (3,),
}


def dense(x, *weights):
    """What `Dense` computes, in NumPy."""
    first, bias, second, more = weights
    return np.tanh(x @ first.T + bias) @ second.T + more


class Contained(Network):
    """Blocks in containers of every kind, one within another."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.body = nn.Sequential(
            nn.Linear(3, 2), nn.Tanh(), nn.Sequential(nn.Linear(2, 2, bias=False))
        )
        self.heads = nn.ModuleDict(
            {"b": nn.Linear(2, 1, bias=False), "a": nn.Linear(2, 2, bias=False)}
        )

    def forward(self, x):
        """Compute the outputs."""
        return self.heads["a"](self.body(x))


class Overlooked(Network):
    """A layer that no framework would find; `hide` puts it away."""

    def __init__(self, hide):
        super().__init__()
        self.known = self.nn.Linear(3, 2)
        self.hidden = hide([self.nn.Linear(3, 2)])


class Tied(Network):
    """An embedding whose table is the weight of the last layer, too."""

    def __init__(self):
        super().__init__()
        self.table = self.nn.Embedding(4, 3)
        self.head = self.nn.Linear(3, 4, bias=False)
        self.head.weight = self.table.weight

    def forward(self, index):
        """Compute the outputs."""
        return self.head(self.table(index))


class Shared(Network):
    """A network that replicas must share: a batch norm, masks, and a loss over four classes."""

    def __init__(self, p=0.0):
        super().__init__()
        self.first = self.nn.Linear(3, 4)
        self.norm = self.nn.BatchNorm1d(4)
        self.drop = self.nn.Dropout(p)

    def forward(self, x):
        """Compute the outputs."""
        return self.drop(self.norm(self.first(x)))


class Drifting(Network):
    """A forward pass that would change a parameter."""

    def __init__(self):
        super().__init__()
        self.scale = self.nn.Parameter((3,), Uniform(0.5))

    def forward(self, x):
        """Assign to the parameter."""
        self.scale = self.scale * 2.0
        return x * self.scale


class Moving(Shared):
    """Statistics that a layer moves, and some that the network moves itself and computes with."""

    def __init__(self):
        super().__init__()
        self.mean = self.nn.Buffer(np.ones(4))

    def forward(self, x):
        """Compute the outputs."""
        y, mean = self.first(x), self.mean
        self.mean = 0.9 * mean + 0.1 * self.nn.mean(y, 0)
        return self.norm(y) * y * mean


class Scaling(Network):
    """A factor for each feature."""

    def __init__(self):
        super().__init__()
        self.factor = self.nn.Parameter((3,), np.array([0.5, 2.0, -1.0]))


class Setting(Scaling):
    """A buffer that is set, and used in the same call."""

    def __init__(self):
        super().__init__()
        self.mean = self.nn.Buffer(np.zeros(3))

    def forward(self, x):
        """Compute the outputs."""
        y = x * self.factor
        self.mean = self.nn.mean(y, 0)
        return y * self.mean


class Remembering(Scaling):
    """A product with what the last call gave."""

    def __init__(self):
        super().__init__()
        self.last = self.nn.State((0, 3), like=self.factor)

    def forward(self, x):
        """Compute the outputs."""
        last, y = self.last[...], x * self.factor
        if len(last):
            y = y * last
        self.last = y
        return y


class Moved(Network):
    """Parameters whose gradients a loss can give them, and one that takes no part.

    It also stands where a check is of a function and any network will do.
    """

    def __init__(self):
        super().__init__()
        self.weight = self.nn.Parameter((3, 2), Uniform(1.0))
        self.bias = self.nn.Parameter((2,), Uniform(1.0))
        self.unused = self.nn.Parameter((2,), Uniform(1.0))

    def forward(self, weight, bias):
        """A scalar with these gradients."""
        nn = self.nn
        return nn.sum(self.weight * weight) + nn.sum(self.bias * bias)
