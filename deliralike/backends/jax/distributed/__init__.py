"""Past one process."""

from deliralike.backends.jax.distributed.network import DistributedJaxNetwork, DistributedJaxOptimizer

__all__ = ["DistributedJaxNetwork", "DistributedJaxOptimizer"]
