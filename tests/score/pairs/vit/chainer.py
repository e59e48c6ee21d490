"""The transformer in Chainer, which has no attention: a link for each projection."""

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


def gelu(x):
    return 0.5 * x * (1.0 + F.erf(x / 2**0.5))


class SelfAttention(chainer.Chain):
    def __init__(self, n_units, h):
        super().__init__()
        self.h = h
        with self.init_scope():
            self.w_q = L.Linear(n_units, n_units)
            self.w_k = L.Linear(n_units, n_units)
            self.w_v = L.Linear(n_units, n_units)
            self.w_o = L.Linear(n_units, n_units)

    def heads(self, link, x):
        b, n, c = x.shape
        y = link(x, n_batch_axes=2)
        return F.transpose(F.reshape(y, (b, n, self.h, c // self.h)), (0, 2, 1, 3))

    def forward(self, x):
        q, k, v = [self.heads(link, x) for link in (self.w_q, self.w_k, self.w_v)]
        a = F.matmul(q, k, transb=True) / (q.shape[-1] ** 0.5)
        y = F.matmul(F.softmax(a, axis=-1), v)
        y = F.reshape(F.transpose(y, (0, 2, 1, 3)), x.shape)
        return self.w_o(y, n_batch_axes=2)


def each(norm, x):
    """Chainer's norm takes matrices."""
    b, n, c = x.shape
    return F.reshape(norm(F.reshape(x, (b * n, c))), (b, n, c))


class Layer(chainer.Chain):
    def __init__(self, n_units, h, dropout):
        super().__init__()
        self.dropout = dropout
        with self.init_scope():
            self.ln_1 = L.LayerNormalization(n_units)
            self.attention = SelfAttention(n_units, h)
            self.ln_2 = L.LayerNormalization(n_units)
            self.l1 = L.Linear(n_units, 2 * n_units)
            self.l2 = L.Linear(2 * n_units, n_units)

    def forward(self, x):
        x = x + self.attention(each(self.ln_1, x))
        h = gelu(self.l1(each(self.ln_2, x), n_batch_axes=2))
        h = self.l2(h, n_batch_axes=2)
        return x + F.dropout(h, self.dropout)


class ViT(chainer.Chain):
    def __init__(self, n_units=12):
        super().__init__()
        with self.init_scope():
            self.patch = L.Convolution2D(3, n_units, 4, stride=4)
            self.token = chainer.Parameter(chainer.initializers.Normal(0.02), (1, 1, n_units))
            self.position = chainer.Parameter(chainer.initializers.Normal(0.02), (1, 7, n_units))
            self.layers = chainer.ChainList(*[Layer(n_units, 3, 0.1) for _ in range(2)])
            self.ln = L.LayerNormalization(n_units)
            self.out = L.Linear(n_units, 4)

    def forward(self, x):
        h = self.patch(x)
        h = F.swapaxes(F.reshape(h, h.shape[:2] + (-1,)), 1, 2)
        token = F.broadcast_to(self.token, (len(x), 1, h.shape[2]))
        h = F.concat([token, h], axis=1)
        h = F.dropout(h + F.broadcast_to(self.position, h.shape), 0.1)
        for layer in self.layers:
            h = layer(h)
        h = self.ln(h[:, 0])
        return self.out(h)


def network(reference):
    return ViT()
