"""Networks of JAX in several processes."""

from deliralike.backends.jax.distributed.network import (
    DistributedJaxNetwork,
    DistributedJaxOptimizer,
)
from deliralike.backends.jax.distributed.process_group import JaxProcessGroup
from deliralike.backends.jax.distributed.spmd import SpmdJaxNetwork, SpmdJaxOptimizer

__all__ = [
    "DistributedJaxNetwork",
    "DistributedJaxOptimizer",
    "JaxProcessGroup",
    "SpmdJaxNetwork",
    "SpmdJaxOptimizer",
]
