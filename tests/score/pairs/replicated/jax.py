"""The network on flax; its replicas are shares of the batch, which batch norms bring together."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

WEIGHTS = "load"


class SyncBatchNorm(nnx.Module):
    """Statistics over all shares of a batch."""

    def __init__(self, features, momentum=0.9, epsilon=1e-5):
        self.scale, self.bias = nnx.Param(jnp.ones(features)), nnx.Param(jnp.zeros(features))
        self.mean = nnx.BatchStat(jnp.zeros(features))
        self.var = nnx.BatchStat(jnp.ones(features))
        self.momentum, self.epsilon = momentum, epsilon
        self.use_running_average = False
        self.shares = 1

    def __call__(self, x):
        if self.use_running_average:
            return self.normalized(x, self.mean[...], self.var[...])
        axes = tuple(range(x.ndim - 1))
        parts = jnp.array_split(x, self.shares)
        count = x.size // x.shape[-1]
        mean = sum(part.sum(axes) for part in parts) / count
        var = sum(jnp.square(part - mean).sum(axes) for part in parts) / count
        self.remember(mean, var * count / (count - 1))
        return self.normalized(x, mean, var)

    def normalized(self, x, mean, var):
        return (x - mean) * jax.lax.rsqrt(var + self.epsilon) * self.scale + self.bias

    def remember(self, mean, var):
        self.mean[...] = self.momentum * self.mean[...] + (1 - self.momentum) * mean
        self.var[...] = self.momentum * self.var[...] + (1 - self.momentum) * var


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 6, (3, 3), padding="SAME", rngs=rngs)
        self.norm1 = SyncBatchNorm(6)
        self.hidden = nnx.Linear(36, 7, use_bias=False, rngs=rngs)
        self.norm2 = SyncBatchNorm(7)
        self.logits = nnx.Linear(7, 3, rngs=rngs)
        self.shares = 1

    def __call__(self, x):
        x = nnx.relu(self.norm1(self.conv(x)))
        x = nnx.avg_pool(x, (2, 2), strides=(2, 2))
        x = jnp.transpose(x, (0, 3, 1, 2)).reshape(len(x), -1)
        return self.logits(nnx.relu(self.norm2(self.hidden(x))))


def loss(network, x, labels):
    """Each replica's sum over its share, by the size of the whole batch."""
    losses = optax.softmax_cross_entropy_with_integer_labels(network(x), labels)
    shares = jnp.array_split(losses, network.shares)
    return sum(share.sum() for share in shares) / len(losses)


def replicate(network, count):
    """The network over that many shares of each batch."""
    native = nnx.clone(network.native)
    native.shares = native.norm1.shares = native.norm2.shares = count
    return network.backend.wrap(native)


OPTIMIZERS = {"sgd": lambda network: optax.sgd(0.1)}


def network(reference):
    net = Net(nnx.Rngs(0))
    w = {name: value.numpy() for name, value in reference.state_dict().items()}
    net.conv.kernel[...] = w["conv.weight"].transpose(2, 3, 1, 0)
    net.conv.bias[...] = w["conv.bias"]
    net.hidden.kernel[...] = w["fc1.weight"].T
    net.logits.kernel[...] = w["fc2.weight"].T
    net.logits.bias[...] = w["fc2.bias"]
    for norm, name in ((net.norm1, "bn1"), (net.norm2, "bn2")):
        norm.scale[...] = w[f"{name}.weight"]
        norm.bias[...] = w[f"{name}.bias"]
        norm.mean[...] = w[f"{name}.running_mean"]
        norm.var[...] = w[f"{name}.running_var"]
    return net
