"""Three networks, each written by hand three times: as one would on PyTorch, Chainer and flax.

Names, layouts and layers are those that are natural there: channels last and one flattened in that
order on flax, gates and projections stored as the framework stores them. All compute the same from
the same weights.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
from flax import nnx
from torch import nn
from torch.nn import functional as F

from deliralike import backends
from deliralike.backends.chainer.arrays import chainer

L, CF = chainer.links, chainer.functions
WIDE = {"param_dtype": jnp.float64, "dtype": jnp.float64}
SAME = ((1, 1), (1, 1))


def wide():
    """The settings of every layer of flax's here."""
    return WIDE | {"rngs": nnx.Rngs(0)}


# A small convolutional network
# -----------------------------------------------------------------------------


class TorchCnn(nn.Module):
    """Two convolutions with norms, flattened channels first."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = (
            nn.Conv2d(4, 4, 3, stride=2, padding=1),
            nn.BatchNorm2d(4),
        )
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4 * 4 * 3, 3)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(self.drop(x.flatten(1)))


class ChainerCnn(chainer.Chain):
    """The same; Chainer's linear link flattens channels first."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.c1, self.b1 = (
                L.Convolution2D(3, 4, 3, pad=1),
                L.BatchNormalization(4, eps=1e-5),
            )
            self.c2, self.b2 = (
                L.Convolution2D(4, 4, 3, stride=2, pad=1),
                L.BatchNormalization(4, eps=1e-5),
            )
            self.l3 = L.Linear(4 * 4 * 3, 3)

    def forward(self, x):
        x = CF.relu(self.b1(self.c1(x)))
        x = CF.relu(self.b2(self.c2(x)))
        return self.l3(CF.dropout(x, 0.3))


def flax_norm(channels):
    """A batch norm whose running statistics are in float64 too: flax makes them in float32 whatever
    it is told."""
    norm = nnx.BatchNorm(channels, momentum=0.9, use_fast_variance=False, **wide())
    for statistic in (norm.mean, norm.var):
        statistic.set_value(statistic.get_value().astype(jnp.float64))
    return norm


class FlaxCnn(nnx.Module):
    """The same with the channels last, flattened so."""

    def __init__(self):
        self.stem, self.norm_a = (
            nnx.Conv(3, 4, (3, 3), padding=SAME, **wide()),
            flax_norm(4),
        )
        self.body, self.norm_b = (
            nnx.Conv(4, 4, (3, 3), strides=2, padding=SAME, **wide()),
            flax_norm(4),
        )
        self.dropout = nnx.Dropout(0.3, rngs=nnx.Rngs(0))
        self.classifier = nnx.Linear(4 * 4 * 3, 3, **wide())

    def __call__(self, x):
        x = nnx.relu(self.norm_a(self.stem(x)))
        x = nnx.relu(self.norm_b(self.body(x)))
        return self.classifier(self.dropout(x.reshape(len(x), -1)))


# A block of a transformer
# -----------------------------------------------------------------------------


class TorchBlock(nn.Module):
    """Attention and a perceptron, each after a norm and beside a shortcut."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(8, 10), nn.Linear(10, 8)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.fc2(F.relu(self.fc1(self.norm2(x))))


class ChainerBlock(chainer.Chain):
    """The same from linear links: Chainer has no attention."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.q, self.k, self.v, self.o = (L.Linear(8, 8) for _ in range(4))
            self.ln1, self.ln2 = (
                L.LayerNormalization(8, eps=1e-5),
                L.LayerNormalization(8, eps=1e-5),
            )
            self.ff1, self.ff2 = L.Linear(8, 10), L.Linear(10, 8)

    def forward(self, x):
        n, t, _ = x.shape
        y = self.ln1(x.reshape(n * t, 8))
        q, k, v = (
            CF.transpose(each(y).reshape(n, t, 2, 4), (0, 2, 1, 3))
            for each in (self.q, self.k, self.v)
        )
        weights = CF.softmax(CF.matmul(q, k, transb=True) / 2.0, axis=3)
        y = CF.transpose(CF.matmul(weights, v), (0, 2, 1, 3)).reshape(n * t, 8)
        x = x.reshape(n * t, 8) + self.o(y)
        return (x + self.ff2(CF.relu(self.ff1(self.ln2(x))))).reshape(n, t, 8)


def attend(query, key, value, **settings):
    """What flax's attention computes, in float64: its own takes the softmax in float32 whatever it
    is told."""
    weights = nnx.softmax(
        jnp.einsum("nqhd,nkhd->nhqk", query, key) / np.sqrt(query.shape[-1]), axis=-1
    )
    return jnp.einsum("nhqk,nkhd->nqhd", weights, value)


class FlaxBlock(nnx.Module):
    """The same with flax's attention, whose kernels have an axis of heads."""

    def __init__(self):
        self.self_attention = nnx.MultiHeadAttention(
            2, 8, decode=False, attention_fn=attend, **wide()
        )
        self.attention_norm = nnx.LayerNorm(
            8, epsilon=1e-5, use_fast_variance=False, **wide()
        )
        self.mlp_norm = nnx.LayerNorm(
            8, epsilon=1e-5, use_fast_variance=False, **wide()
        )
        self.dense_in, self.dense_out = (
            nnx.Linear(8, 10, **wide()),
            nnx.Linear(10, 8, **wide()),
        )

    def __call__(self, x):
        x = x + self.self_attention(self.attention_norm(x))
        return x + self.dense_out(nnx.relu(self.dense_in(self.mlp_norm(x))))


# A recurrent classifier
# -----------------------------------------------------------------------------


class TorchLstm(nn.Module):
    """The last output of an LSTM, classified."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 5, batch_first=True)
        self.fc = nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


class ChainerLstm(chainer.Chain):
    """The same; the gates of each unit lie side by side, and there is one bias."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lstm = L.StatelessLSTM(3, 5)
            self.l = L.Linear(5, 2)

    def forward(self, x):
        c = h = None
        for t in range(x.shape[1]):
            c, h = self.lstm(c, h, x[:, t])
        return self.l(h)


class ChainerNStepLstm(chainer.Chain):
    """The same; each gate by itself, and both biases."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lstm = L.NStepLSTM(1, 3, 5, 0.0)
            self.l = L.Linear(5, 2)

    def forward(self, x):
        return self.l(self.lstm(None, None, list(x))[0][0])


class FlaxLstm(nnx.Module):
    """The same; one bias."""

    def __init__(self):
        self.recurrent = nnx.RNN(nnx.OptimizedLSTMCell(3, 5, **wide()))
        self.head = nnx.Linear(5, 2, **wide())

    def __call__(self, x):
        return self.head(self.recurrent(x)[:, -1])


class FlaxGates(nnx.Module):
    """The same; each gate a layer."""

    def __init__(self):
        self.recurrent = nnx.RNN(nnx.LSTMCell(3, 5, **wide()))
        self.head = nnx.Linear(5, 2, **wide())

    def __call__(self, x):
        return self.head(self.recurrent(x)[:, -1])


PORTS = {
    "cnn": {"torch": TorchCnn, "chainer": ChainerCnn, "jax": FlaxCnn},
    "block": {"torch": TorchBlock, "chainer": ChainerBlock, "jax": FlaxBlock},
    "lstm": {"torch": TorchLstm, "chainer": ChainerLstm, "jax": FlaxLstm},
    "n-step lstm": {"torch": TorchLstm, "chainer": ChainerNStepLstm, "jax": FlaxGates},
}
SHAPES = {
    "cnn": (2, 3, 7, 5),
    "block": (2, 5, 8),
    "lstm": (4, 7, 3),
    "n-step lstm": (4, 7, 3),
}


def batch(name):
    """Inputs in PyTorch's layout."""
    return (np.random.default_rng(7).normal(size=SHAPES[name]),)


def build(name, framework, seed):
    """A network in float64 with weights from a generator, seen as an abstract one; one and the same
    at each call."""
    return filled(_made(name, framework), seed)


@cache
def _made(name, framework):
    return made(PORTS[name][framework], framework)


def made(kind, framework):
    """A module of this class in float64, seen as an abstract network."""
    backend = backends.get(framework)
    backend.array(np.zeros(1), "float64")  # turns on 64-bit types in JAX
    with chainer.using_config("dtype", np.float64):
        native = kind()
    return backend.wrap(native.double() if framework == "torch" else native)


def filled(network, seed):
    """With weights from a generator; variances are positive, no bias is zero."""
    chance = np.random.default_rng(seed)
    first: dict[int, str] = {}
    slots = {
        name: slot
        for name, slot in network.neutral_slots().items()
        if not slot.is_parameter or first.setdefault(id(slot.native), name) == name
    }  # a tied one once
    draw = {name: chance.normal(size=slot.shape) * 0.5 for name, slot in slots.items()}
    positive = {
        name: np.abs(value) + 0.1
        for name, value in draw.items()
        if name.endswith("running_var")
    }
    counters = {
        name: np.asarray(3) for name in draw if name.endswith("num_batches_tracked")
    }
    network.load_neutral_state({**draw, **positive, **counters})
    return network.eval()


def outputs(network, inputs):
    """In evaluation mode, as NumPy arrays."""
    with network.training_mode(False), network.backend.evaluating():
        return network.backend.to_numpy(
            network(*network.backend.prepare(inputs, network))
        )
