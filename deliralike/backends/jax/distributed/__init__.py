"""Past one process."""

from deliralike.backends.jax.distributed.layerwise import LayerwiseJaxNetwork
from deliralike.backends.jax.distributed.network import DistributedJaxNetwork, DistributedJaxOptimizer
from deliralike.backends.jax.distributed.processes import JaxProcesses
from deliralike.backends.jax.distributed.sharded import ShardedJaxNetwork
from deliralike.backends.jax.distributed.together import TogetherJaxNetwork, TogetherJaxOptimizer

__all__ = [
    "DistributedJaxNetwork",
    "DistributedJaxOptimizer",
    "JaxProcesses",
    "LayerwiseJaxNetwork",
    "ShardedJaxNetwork",
    "TogetherJaxNetwork",
    "TogetherJaxOptimizer",
]
