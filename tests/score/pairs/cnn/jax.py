"""The classifier in flax, channels last; the weights are copied by hand."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

WEIGHTS = "judge"


class BatchNorm(nnx.BatchNorm):
    """As torch has it: flax keeps the biased variance for evaluation."""

    def __init__(self, features, rngs):
        super().__init__(features, momentum=0.9, epsilon=1e-5, use_fast_variance=False, rngs=rngs)

    def __call__(self, x):
        kept = self.momentum * self.var.get_value()
        y = super().__call__(x)
        if not self.use_running_average:
            n = x.size // x.shape[-1]
            self.var.set_value(kept + (self.var.get_value() - kept) * n / (n - 1))
        return y


class CNN(nnx.Module):
    """Two convolutions with norms and pooling, then two linear layers."""

    def __init__(self, num_classes=5, *, rngs):
        self.conv_a = nnx.Conv(3, 6, (3, 3), padding="SAME", rngs=rngs)
        self.norm_a = BatchNorm(6, rngs)
        self.conv_b = nnx.Conv(6, 8, (3, 3), strides=2, padding=((1, 1), (1, 1)), rngs=rngs)
        self.norm_b = BatchNorm(8, rngs)
        self.hidden = nnx.Linear(8 * 3 * 2, 20, rngs=rngs)
        self.out = nnx.Linear(20, num_classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm_a(self.conv_a(x)))
        x = nnx.max_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = jax.nn.leaky_relu(self.norm_b(self.conv_b(x)), 0.1)
        x = nnx.avg_pool(x, (3, 3), padding=((1, 1), (1, 1)))
        x = jnp.transpose(x, (0, 3, 1, 2))  # torch flattens channels first
        x = x.reshape(x.shape[0], -1)
        x = nnx.relu(self.hidden(x))
        return self.out(x)


def _conv(layer, source):
    layer.kernel.set_value(jnp.asarray(source.weight.detach().numpy().transpose(2, 3, 1, 0)))
    layer.bias.set_value(jnp.asarray(source.bias.detach().numpy()))


def _linear(layer, source):
    layer.kernel.set_value(jnp.asarray(source.weight.detach().numpy().T))
    layer.bias.set_value(jnp.asarray(source.bias.detach().numpy()))


def _norm(layer, source):
    layer.scale.set_value(jnp.asarray(source.weight.detach().numpy()))
    layer.bias.set_value(jnp.asarray(source.bias.detach().numpy()))
    layer.mean.set_value(jnp.asarray(source.running_mean.numpy()))
    layer.var.set_value(jnp.asarray(source.running_var.numpy()))


def network(reference):
    """The port with the weights of the reference."""
    net = CNN(rngs=nnx.Rngs(0))
    _conv(net.conv_a, reference.conv1)
    _conv(net.conv_b, reference.conv2)
    _norm(net.norm_a, reference.bn1)
    _norm(net.norm_b, reference.bn2)
    _linear(net.hidden, reference.fc1)
    _linear(net.out, reference.fc2)
    return net


def loss(network, x, y):
    """Cross-entropy with smoothed labels."""
    labels = optax.smooth_labels(jax.nn.one_hot(y, 5), 0.1)
    return optax.softmax_cross_entropy(network(x), labels).mean()


OPTIMIZERS = {
    "sgd": lambda network: optax.chain(optax.add_decayed_weights(0.01), optax.sgd(0.05)),
}
