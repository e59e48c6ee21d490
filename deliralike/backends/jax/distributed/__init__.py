"""Networks of JAX in several processes."""

from deliralike.backends.jax.distributed.gradient_averaging import (
    GradientAveragingJaxNetwork,
)
from deliralike.backends.jax.distributed.network import (
    DistributedJaxNetwork,
    DistributedJaxOptimizer,
)
from deliralike.backends.jax.distributed.process_group import JaxProcessGroup
from deliralike.backends.jax.distributed.sharded import ShardedJaxNetwork
from deliralike.backends.jax.distributed.spmd import SpmdJaxNetwork, SpmdJaxOptimizer

__all__ = [
    "DistributedJaxNetwork",
    "DistributedJaxOptimizer",
    "JaxProcessGroup",
    "GradientAveragingJaxNetwork",
    "ShardedJaxNetwork",
    "SpmdJaxNetwork",
    "SpmdJaxOptimizer",
]
