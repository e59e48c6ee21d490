"""Batch norms of the frameworks' own, in the networks that may hold them: subclasses of native
bases, portable ones."""

import numpy as np

from deliralike import Network, backends
from deliralike.optim.rules import rule

CHANNELS, EPS = 3, 1e-5
SCALE, SHIFT = np.array([0.5, 2.0, 1.5]), np.array([0.25, -1.0, 0.0])


def _torch():
    import torch

    norm = torch.nn.BatchNorm1d(CHANNELS, EPS, dtype=torch.float64)
    norm.load_state_dict(
        {"weight": torch.tensor(SCALE), "bias": torch.tensor(SHIFT)}, strict=False
    )
    return norm


def _chainer():
    import chainer

    norm = chainer.links.BatchNormalization(
        CHANNELS, eps=EPS, decay=0.9, dtype=np.float64
    )
    norm.gamma.array[...], norm.beta.array[...] = SCALE, SHIFT
    return norm


def _jax():
    import jax.numpy as jnp
    from flax import nnx

    wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
    norm = nnx.BatchNorm(CHANNELS, epsilon=EPS, momentum=0.9, rngs=nnx.Rngs(0), **wide)
    start = {
        "scale": SCALE,
        "bias": SHIFT,
        "mean": np.zeros(CHANNELS),
        "var": np.ones(CHANNELS),
    }
    for name, value in start.items():
        getattr(norm, name).set_value(jnp.asarray(value, jnp.float64))
    return norm


NORMS = {"torch": _torch, "chainer": _chainer, "jax": _jax}


class Holder(Network):
    """A portable network with a layer of its framework's own."""

    def __init__(self):
        super().__init__()
        self.standardise = NORMS[self.backend.name]()

    def forward(self, rows):
        return self.standardise(rows) * 3.0


def _subclass(backend):
    """A network of one framework, which subclasses the native base."""

    class Native(backends.get(backend).network_base):
        def __init__(self):
            super().__init__()
            if backend == "chainer":
                with self.init_scope():
                    self.standardise = _chainer()
            else:
                self.standardise = NORMS[backend]()

        def forward(self, rows):
            return self.standardise(rows) * 3.0

    return Native()


KINDS = {
    "portable": lambda backend: Holder.on(backend, dtype="float64")(),
    "subclass": _subclass,
}


def cubes(net, rows):
    """A loss that depends on the statistics by which rows are normalised."""
    outputs = net(rows)
    return net.nn.mean(outputs * outputs * outputs)


def stepped(network, rows):
    """The loss of one update by SGD with a learning rate of 1, and what the network holds then."""
    optimizer = network.backend.optimizer(rule("sgd", lr=1.0), network)
    with network.training_mode(True):
        loss = network.backend.number(optimizer.update(cubes, rows))
    return {"loss": loss} | {
        name.removeprefix("standardise."): value.tolist()
        for name, value in network.neutral_state().items()
        if "tracked" not in name
    }


def stepped_by_numpy(backend, rows):
    """The same from the statistics of all rows; flax keeps the biased variance."""
    normal = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + EPS)
    outputs = (normal * SCALE + SHIFT) * 3.0
    slope = 9.0 * outputs**2 / rows.size
    variance = rows.var(0, ddof=0 if backend == "jax" else 1)
    return {
        "loss": (outputs**3).mean(),
        "weight": SCALE - (slope * normal).sum(0),
        "bias": SHIFT - slope.sum(0),
        "running_mean": 0.1 * rows.mean(0),
        "running_var": 0.9 + 0.1 * variance,
    }
