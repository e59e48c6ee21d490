"""The language model in Chainer, with an AdamW as torch has it; copied by hand."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "judge"


class AdamWRule(chainer.optimizers.adam.AdamRule):
    """The decay is multiplied by the rate, and epsilon added to the corrected root."""

    def update_core_cpu(self, param):
        grad = param.grad
        if grad is None:
            return
        hp, state = self.hyperparam, self.state
        state["m"] += (1 - hp.beta1) * (grad - state["m"])
        state["v"] += (1 - hp.beta2) * (grad * grad - state["v"])
        m = state["m"] / (1 - hp.beta1**self.t)
        v = state["v"] / (1 - hp.beta2**self.t)
        param.data *= 1 - hp.alpha * hp.weight_decay_rate
        param.data -= hp.alpha * m / (np.sqrt(v) + hp.eps)


class AdamW(chainer.optimizers.Adam):
    def create_update_rule(self):
        return AdamWRule(self.hyperparam)


def gelu(x):
    return 0.5 * x * (1 + F.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Block(chainer.Chain):
    def __init__(self, n=12, heads=2):
        super().__init__()
        self.heads = heads
        with self.init_scope():
            self.ln1 = L.LayerNormalization(n, eps=1e-5)
            self.q = L.Linear(n, n)
            self.k = L.Linear(n, n)
            self.v = L.Linear(n, n)
            self.o = L.Linear(n, n)
            self.ln2 = L.LayerNormalization(n, eps=1e-5)
            self.fc = L.Linear(n, 2 * n)
            self.proj = L.Linear(2 * n, n)

    def attend(self, x, b, t):
        def split(y):
            return y.reshape(b, t, self.heads, -1).transpose(0, 2, 1, 3)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        score = F.matmul(q, k.transpose(0, 1, 3, 2)) / np.sqrt(q.shape[3])
        future = np.triu(np.ones((t, t), bool), 1)
        score = F.where(
            np.broadcast_to(future, score.shape), np.full(score.shape, -1e30, score.dtype), score
        )
        y = F.matmul(F.softmax(score, axis=3), v)
        return self.o(y.transpose(0, 2, 1, 3).reshape(b * t, -1))

    def forward(self, x, b, t):
        x = x + self.attend(self.ln1(x), b, t)
        return x + self.proj(gelu(self.fc(self.ln2(x))))


class GPT(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(11, 12)
            self.position = L.EmbedID(8, 12)
            self.block0 = Block()
            self.block1 = Block()
            self.ln = L.LayerNormalization(12, eps=1e-5)

    def forward(self, x):
        b, t = x.shape
        places = np.broadcast_to(np.arange(t), (b, t))
        h = (self.embed(x) + self.position(places)).reshape(b * t, 12)
        h = self.block0(h, b, t)
        h = self.block1(h, b, t)
        y = F.linear(self.ln(h), self.embed.W)
        return y.reshape(b, t, 11)


def network(reference):
    model = GPT()
    state = {name: value.numpy() for name, value in reference.state_dict().items()}
    model.embed.W.array[:] = state["wte.weight"]
    model.position.W.array[:] = state["wpe.weight"]
    model.ln.gamma.array = state["ln_f.weight"].copy()
    model.ln.beta.array = state["ln_f.bias"].copy()
    for i, block in enumerate((model.block0, model.block1)):
        weights = np.split(state[f"h.{i}.attn.c_attn.weight"], 3)
        biases = np.split(state[f"h.{i}.attn.c_attn.bias"], 3)
        for link, w, b in zip((block.q, block.k, block.v), weights, biases):
            link.W.array[:], link.b.array[:] = w, b
        links = {"attn.c_proj": block.o, "mlp.c_fc": block.fc, "mlp.c_proj": block.proj}
        for name, link in links.items():
            link.W.array[:] = state[f"h.{i}.{name}.weight"]
            link.b.array[:] = state[f"h.{i}.{name}.bias"]
        for name, link in {"ln_1": block.ln1, "ln_2": block.ln2}.items():
            link.gamma.array = state[f"h.{i}.{name}.weight"].copy()
            link.beta.array = state[f"h.{i}.{name}.bias"].copy()
    return model


def loss(network, x, t):
    y = network(x)
    return F.softmax_cross_entropy(y.reshape(-1, 11), t.reshape(-1))


def _adamw(network):
    optimizer = AdamW(alpha=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay_rate=0.1)
    optimizer.setup(network)
    return optimizer


OPTIMIZERS = {"adamw": _adamw}
