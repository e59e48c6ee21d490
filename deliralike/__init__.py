"""deliralike: write a network once, train it on PyTorch, Chainer or JAX, and prove that it is the same network.

Example:
    >>> import deliralike
    >>> net = deliralike.zoo.build("resnet18", backend="torch", num_classes=10)
    >>> net.count_parameters()
    11181642
"""

from deliralike import backends, errors, parallel, random, weights, zoo
from deliralike.backends import DataParallel, wrap
from deliralike.network import AbstractNetwork, Network, build
from deliralike.nn import start
from deliralike.parallel import in_replicas

__version__ = "0.1.0"

__all__ = [
    "AbstractNetwork",
    "DataParallel",
    "Network",
    "backends",
    "build",
    "errors",
    "in_replicas",
    "parallel",
    "random",
    "start",
    "weights",
    "wrap",
    "zoo",
]
