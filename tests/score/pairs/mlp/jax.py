"""The classifier in flax."""

import jax.numpy as jnp
from flax import nnx

WEIGHTS = "judge"


class MLP(nnx.Module):
    """Two linear layers with a norm between them."""

    def __init__(self, rngs):
        self.fc1 = nnx.Linear(6, 9, rngs=rngs)
        self.ln = nnx.LayerNorm(9, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.fc2 = nnx.Linear(9, 4, rngs=rngs)

    def __call__(self, x):
        return self.fc2(nnx.tanh(self.ln(self.fc1(x))))


def array(tensor):
    return jnp.asarray(tensor.detach().numpy())


def network(reference):
    """The port with the weights of the reference."""
    net = MLP(nnx.Rngs(0))
    net.fc1.kernel.set_value(array(reference.hidden.weight).T)
    net.fc1.bias.set_value(array(reference.hidden.bias))
    net.ln.scale.set_value(array(reference.norm.weight))
    net.ln.bias.set_value(array(reference.norm.bias))
    net.fc2.kernel.set_value(array(reference.out.weight).T)
    net.fc2.bias.set_value(array(reference.out.bias))
    return net
