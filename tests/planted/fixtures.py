"""The right subjects that receive mutants: small networks with a batch and a loss each.

Sizes are uneven, strides are two and no weight, statistic or class weight is neutral, so that
nothing can go wrong without being seen; and each holds few operations, since some backends compile
every network anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.subject import Subject
from deliralike.errors import UnknownName, suggestion
from deliralike.network.base import Network
from deliralike.zoo.classification.resnet import BasicBlock

CLASSES = 5
CLASS_WEIGHTS = np.array([0.4, 1.7, 0.9, 2.3, 0.6])
IGNORED = -100
PADDING = 0  # the token that fills up shorter sequences
SMOOTHING = 0.1
PIXEL_MEAN, PIXEL_STD = np.array([0.5, 0.4, 0.3]), np.array([0.21, 0.25, 0.3])

Batch = tuple[np.ndarray, ...]


def fixture(
    name: str, backend: str | Backend, seed: int = 0, dtype: str = "float64"
) -> tuple[Subject, Batch]:
    """A right subject on a backend, and a batch; the same weights and numbers on every backend.

    Raises:
        UnknownName: There is no such fixture.

    Example:
        >>> subject, (x, labels) = fixture("convolutional", "torch")
        >>> x.shape, str(subject)
        ((6, 3, 12, 10), 'Convolutional on torch')
    """
    if name not in FIXTURES:
        raise UnknownName(f"there is no fixture {name!r}. {suggestion(name, FIXTURES)}")
    build, batch, loss = FIXTURES[name]
    random = np.random.default_rng(seed)
    network = build.on(backend, dtype=dtype)()
    _set_telling_weights(network, random)
    return Subject(network, loss), batch(random)


def _set_telling_weights(network: Any, random: np.random.Generator) -> None:
    """Set weights other than 0, 1 and any value that hides a mistake, and used statistics."""
    slots, state = network.neutral_slots(), network.neutral_state()
    first = {
        id(slot.native): name
        for name, slot in reversed(slots.items())
        if slot.is_parameter
    }  # of tied ones
    drawn = {
        name: np.asarray(_telling(name, value, random), value.dtype)
        for name, value in state.items()
    }
    network.load_neutral_state(
        {name: drawn[first.get(id(slots[name].native), name)] for name in state}
    )


def _telling(name: str, value: np.ndarray, random: np.random.Generator) -> Any:
    if name.endswith("num_batches_tracked"):
        return 7
    if name.endswith("running_var"):
        return random.uniform(0.5, 2.0, value.shape)
    if name.endswith("weight") and value.ndim == 1:  # of a norm
        return random.uniform(0.5, 1.5, value.shape)
    if value.ndim < 2:
        return random.normal(0.0, 0.3, value.shape)
    return random.normal(0.0, (2.0 / np.prod(value.shape[1:])) ** 0.5, value.shape)


# Networks
# -----------------------------------------------------------------------------


class Convolutional(Network):
    """Convolution, batch norm, max pooling with padding, grouped convolution, flattening."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.act = nn.LeakyReLU()
        self.grouped = nn.Conv2d(4, 6, (3, 2), padding=(1, 0), groups=2)
        self.fc = nn.Linear(6 * 3 * 2, CLASSES)

    def forward(self, x):
        return self.fc(
            self.flat(self.grouped(self.act(self.pool(self.norm(self.conv(x))))))
        )

    def flat(self, x):
        return self.nn.flatten(x)


class Pooling(Network):
    """Windows that may be cut differently: what comes last does not mind the size."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.stem = nn.Conv2d(2, 4, 1)
        self.max = nn.MaxPool2d(2)
        self.average = nn.AvgPool2d(3, 2, padding=1)
        self.ceil = nn.AvgPool2d(2, 2, ceil_mode=True)
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.fc(self.pooled(self.ceil(self.average(self.max(self.stem(x))))))

    def pooled(self, x):
        return self.nn.mean(x, (2, 3))


class Dropping(Network):
    """Dropout of elements, channels and a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.stem = nn.Conv2d(2, 4, 1)
        self.channels = nn.Dropout2d(0.25)
        self.elements = nn.Dropout(0.3)
        self.branch = nn.Conv2d(4, 4, 3, padding=1)
        self.path = nn.DropPath(0.4)
        self.fc = nn.Linear(4 * 3 * 2, CLASSES)

    def forward(self, x):
        x = self.elements(self.channels(self.stem(x)))
        return self.fc(self.nn.flatten(x + self.path(self.branch(x))))


class Attention(Network):
    """Tokens and positions through one layer of attention with padding."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.embedding = nn.Embedding(11, 6, padding_idx=PADDING)
        self.positions = nn.Embedding(5, 6)
        self.norm = nn.LayerNorm(6)
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.2, batch_first=True)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, tokens):
        x, padding = self.norm(self.embedded(tokens)), self.padding(tokens)
        y, _ = self.attention(
            x,
            x,
            x,
            key_padding_mask=padding,
            attn_mask=self.mask(tokens, x),
            need_weights=False,
        )
        return self.fc(self.pooled(x + y, padding))

    def embedded(self, tokens):
        places = self.nn.constant(np.arange(tokens.shape[1]), like=tokens)
        return self.embedding(tokens) + self.positions(places)

    def padding(self, tokens):
        return tokens == PADDING

    def mask(self, tokens, like):
        """Tokens see those that are at most two steps away."""
        places = np.arange(tokens.shape[1])
        far = np.abs(places[:, None] - places) > 2
        return self.nn.constant(np.where(far, -np.inf, 0.0), like=like)

    def pooled(self, x, padding):
        """The mean over tokens that are none of padding."""
        kept = self.nn.cast(self.nn.expand_dims(padding, -1) == False, x)  # noqa: E712
        return self.nn.sum(x * kept, 1) / self.nn.sum(kept, 1)


class Recurrent(Network):
    """An LSTM in both directions, a GRU, and the last step."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.embedding = nn.Embedding(9, 4, padding_idx=PADDING)
        self.lstm = nn.LSTM(4, 3, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(6, 4, batch_first=True)
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.fc(self.last(self.gru(y)[0]))

    def last(self, y):
        return y[:, -1]


class Residual(Network):
    """Two residual blocks on normalised pictures."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.block1 = BasicBlock(3, 4, stride=2)
        self.block1.downsample = nn.Sequential(
            nn.Conv2d(3, 4, 1, stride=2, bias=False), nn.BatchNorm2d(4)
        )
        self.block2 = BasicBlock(4, 4)
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.fc(self.pooled(self.block2(self.block1(self.normalised(x)))))

    def normalised(self, x):
        nn = self.nn
        mean, std = (
            nn.constant(v.reshape(1, 3, 1, 1), like=x) for v in (PIXEL_MEAN, PIXEL_STD)
        )
        return (x - mean) / std

    def pooled(self, x):
        return self.nn.mean(x, (2, 3))


class Tied(Network):
    """A hidden layer used twice, and outputs by the very table that embeds the inputs."""

    def __init__(self) -> None:
        super().__init__()
        nn = self.nn
        self.embedding = nn.Embedding(7, 4)
        self.square = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        nn = self.nn
        x = nn.tanh(self.square(self.embedding(tokens)))  # (batch, time, 4)
        return nn.permute(self.head(nn.tanh(self.other(x))), (0, 2, 1))


# Losses
# -----------------------------------------------------------------------------


def weighted_cross_entropy(network: Any, x: Any, target: Any) -> Any:
    """Cross-entropy with class weights and ignored labels."""
    logits = network(x)
    weight = network.nn.constant(CLASS_WEIGHTS, like=logits)
    return network.nn.cross_entropy(logits, target, weight, ignore_index=IGNORED)


def plain_cross_entropy(network: Any, x: Any, target: Any) -> Any:
    """Cross-entropy and nothing else."""
    return network.nn.cross_entropy(network(x), target)


def smoothed_cross_entropy(network: Any, x: Any, target: Any) -> Any:
    """Cross-entropy of smoothed labels."""
    return network.nn.cross_entropy(network(x), target, label_smoothing=SMOOTHING)


# Batches
# -----------------------------------------------------------------------------


def _pictures(*shape: int) -> Callable[[np.random.Generator], Batch]:
    """Pictures with one label each; the second one is ignored."""

    def batch(random: np.random.Generator) -> Batch:
        labels = random.integers(0, CLASSES, shape[0])
        labels[1] = IGNORED
        return random.normal(0.3, 1.0, shape), labels

    return batch


def _tokens(
    words: int, batch: int, length: int
) -> Callable[[np.random.Generator], Batch]:
    """Sequences with one label each; every second one ends in padding."""

    def make(random: np.random.Generator) -> Batch:
        tokens = random.integers(1, words, (batch, length))
        tokens[1::2, -2:] = PADDING
        return tokens, random.integers(0, CLASSES, batch)

    return make


def _labelled_pictures(random: np.random.Generator) -> Batch:
    return random.uniform(0.0, 1.0, (4, 3, 8, 6)), random.integers(0, CLASSES, 4)


def _words(random: np.random.Generator) -> Batch:
    return random.integers(0, 7, (3, 4)), random.integers(0, 7, (3, 4))


# By name
# -----------------------------------------------------------------------------


FIXTURES: dict[str, tuple[Any, Callable[[np.random.Generator], Batch], Any]] = {
    "convolutional": (Convolutional, _pictures(6, 3, 12, 10), weighted_cross_entropy),
    "pooling": (Pooling, _pictures(5, 2, 11, 9), weighted_cross_entropy),
    "dropping": (Dropping, _pictures(6, 2, 3, 2), weighted_cross_entropy),
    "attention": (Attention, _tokens(11, 4, 5), plain_cross_entropy),
    "recurrent": (Recurrent, _tokens(9, 3, 4), plain_cross_entropy),
    "residual": (Residual, _labelled_pictures, smoothed_cross_entropy),
    "tied": (Tied, _words, plain_cross_entropy),
}
