"""The language model on Chainer."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class RMSNorm(chainer.Link):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.eps = eps
        with self.init_scope():
            self.gamma = chainer.Parameter(np.ones(size, np.float32))

    def forward(self, x):
        scale = F.sqrt(F.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return x / F.broadcast_to(scale, x.shape) * F.broadcast_to(self.gamma, x.shape)


def rotate(x):
    """Rotary positions; x is (batch, heads, time, dim)."""
    _, _, time, dim = x.shape
    frequency = 1.0 / 10000.0 ** (np.arange(0, dim, 2) / dim)
    angle = np.outer(np.arange(time), np.concatenate([frequency, frequency]))
    a, b = F.split_axis(x, 2, axis=3)
    turned = F.concat([-b, a], axis=3)
    return x * np.cos(angle).astype(x.dtype) + turned * np.sin(angle).astype(x.dtype)


class Block(chainer.Chain):
    def __init__(self, width=16, heads=4, groups=2, hidden=12):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        with self.init_scope():
            self.n1, self.n2 = RMSNorm(width), RMSNorm(width)
            self.q = L.Linear(width, width, nobias=True)
            self.k = L.Linear(width, groups * self.size, nobias=True)
            self.v = L.Linear(width, groups * self.size, nobias=True)
            self.o = L.Linear(width, width, nobias=True)
            self.w1 = L.Linear(width, hidden, nobias=True)
            self.w2 = L.Linear(hidden, width, nobias=True)
            self.w3 = L.Linear(width, hidden, nobias=True)

    def split(self, x, heads):
        return F.transpose(x.reshape(len(x), x.shape[1], heads, self.size), (0, 2, 1, 3))

    def attend(self, x):
        n, t, width = x.shape
        q = rotate(self.split(self.q(x, n_batch_axes=2), self.heads))
        k = rotate(self.split(self.k(x, n_batch_axes=2), self.groups))
        v = self.split(self.v(x, n_batch_axes=2), self.groups)
        copies = self.heads // self.groups
        k, v = F.repeat(k, copies, axis=1), F.repeat(v, copies, axis=1)
        score = F.matmul(q, k, transb=True) / self.size**0.5
        future = np.triu(np.full((t, t), -1e30, dtype=x.dtype), 1)
        weight = F.softmax(score + np.broadcast_to(future, score.shape), axis=3)
        y = F.transpose(F.matmul(weight, v), (0, 2, 1, 3)).reshape(n, t, width)
        return self.o(y, n_batch_axes=2)

    def forward(self, x):
        x = x + self.attend(self.n1(x))
        y = self.n2(x)
        gate = self.w1(y, n_batch_axes=2)
        y = gate * F.sigmoid(gate) * self.w3(y, n_batch_axes=2)
        return x + self.w2(y, n_batch_axes=2)


class Llama(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(17, 16)
            self.blocks = chainer.ChainList(Block(), Block())
            self.norm = RMSNorm(16)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.embed.W, n_batch_axes=2)


def loss(network, tokens, targets):
    logits = network(tokens)
    return F.softmax_cross_entropy(logits.reshape(-1, 17), targets.reshape(-1))


def network(reference):
    port = Llama()
    port.embed.W.array[...] = reference.tok_embeddings.weight.detach().numpy()
    port.norm.gamma.array[...] = reference.norm.weight.detach().numpy()
    names = {
        "attention.wq": "q",
        "attention.wk": "k",
        "attention.wv": "v",
        "attention.wo": "o",
        "feed_forward.w1": "w1",
        "feed_forward.w2": "w2",
        "feed_forward.w3": "w3",
    }
    for block, layer in zip(port.blocks, reference.layers):
        weights = layer.state_dict()
        for theirs, ours in names.items():
            block[ours].W.array[...] = weights[f"{theirs}.weight"].numpy()
        block.n1.gamma.array[...] = weights["attention_norm.weight"].numpy()
        block.n2.gamma.array[...] = weights["ffn_norm.weight"].numpy()
    return port
