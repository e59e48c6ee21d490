"""The regression on Chainer, with optimizers that follow PyTorch's arithmetic."""

import math

import numpy as np

from deliralike.backends.chainer.arrays import chainer

F, L = chainer.functions, chainer.links

WEIGHTS = "load"


def gelu(x):
    return 0.5 * x * (1 + F.erf(x * 0.5**0.5))


class Regressor(chainer.Chain):
    """Three linear links with a norm."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(5, 12)
            self.ln = L.LayerNormalization(12, eps=1e-5)
            self.l2 = L.Linear(12, 8)
            self.l3 = L.Linear(8, 2)

    def forward(self, x):
        h = gelu(self.ln(self.l1(x)))
        return self.l3(gelu(self.l2(h)))


def loss(network, x, t):
    return F.sum((network(x) - t) ** 2) / (2 * len(t))


class AdamRule(chainer.optimizers.adam.AdamRule):
    """Adam with the epsilon beside the corrected root, and decay times the learning rate."""

    def update_core(self, param):
        hp = self.hyperparam
        if param.grad is None:
            return
        m, v = self.state["m"], self.state["v"]
        m += (1 - hp.beta1) * (param.grad - m)
        v += (1 - hp.beta2) * (param.grad**2 - v)
        root = np.sqrt(v / (1 - hp.beta2**self.t)) + hp.eps
        param.array *= 1 - hp.alpha * hp.weight_decay_rate
        param.array -= hp.alpha * (m / (1 - hp.beta1**self.t)) / root


class Adam(chainer.optimizers.Adam):
    """With that rule."""

    def create_update_rule(self):
        return AdamRule(self.hyperparam)


class VelocityRule(chainer.UpdateRule):
    """Momentum of gradients; the learning rate is not in the velocity."""

    def init_state(self, param):
        self.state["v"] = np.zeros_like(param.array)

    def update_core(self, param):
        if param.grad is None:
            return
        v = self.state["v"]
        v *= self.hyperparam.momentum
        v += param.grad
        param.array -= self.hyperparam.lr * v


class Momentum(chainer.optimizers.MomentumSGD):
    """With that rule."""

    def create_update_rule(self):
        return VelocityRule(self.hyperparam)


class Clip:
    """Bounds the norm of all gradients as PyTorch does."""

    name = "Clip"
    call_for_each_param = False
    timing = "pre"

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, optimizer):
        gradients = [p.grad for p in optimizer.target.params() if p.grad is not None]
        norm = np.sqrt(sum((g**2).sum() for g in gradients))
        for gradient in gradients:
            gradient *= min(self.limit / (norm + 1e-6), 1.0)


class Cosine:
    """Sets the learning rate of the next update."""

    name = "Cosine"
    call_for_each_param = False
    timing = "post"

    def __call__(self, optimizer):
        optimizer.lr = 0.1 * 0.5 * (1 + math.cos(math.pi * min(optimizer.t, 20) / 20))


def made(optimizer, network, *hooks):
    """The optimizer, set up."""
    optimizer.setup(network)
    for hook in hooks:
        optimizer.add_hook(hook)
    return optimizer


optimizers = chainer.optimizers
decay = chainer.optimizer_hooks.WeightDecay

OPTIMIZERS = {
    "sgd": lambda net: made(optimizers.SGD(lr=0.05), net, decay(1e-3)),
    "momentum": lambda net: made(Momentum(lr=0.02, momentum=0.9), net, decay(1e-3)),
    "adam": lambda net: made(Adam(alpha=2e-3, beta2=0.98, eps=1e-6), net),
    "adamw": lambda net: made(Adam(alpha=1e-3, weight_decay_rate=1e-2), net),
    "clipped": lambda net: made(optimizers.SGD(lr=0.1), net, Clip(1.0)),
    "cosine": lambda net: made(optimizers.SGD(lr=0.1), net, Cosine()),
}


def network(reference):
    port = Regressor()
    for link, source in zip(
        (port.l1, port.l2, port.l3), (reference.fc1, reference.fc2, reference.fc3)
    ):
        link.W.array[...] = source.weight.detach().numpy()
        link.b.array[...] = source.bias.detach().numpy()
    port.ln.gamma.array[...] = reference.norm.weight.detach().numpy()
    port.ln.beta.array[...] = reference.norm.bias.detach().numpy()
    return port
