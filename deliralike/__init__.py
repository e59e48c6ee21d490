"""deliralike: write a network once, train it on PyTorch, Chainer or JAX, and prove that it is the same network.

Example:
    >>> import deliralike
    >>> net = deliralike.zoo.build("resnet18", backend="torch", num_classes=10)
    >>> net.count_parameters()
    11181642
"""

from deliralike import backends, errors, random, weights, zoo
from deliralike.backends import wrap
from deliralike.network import AbstractNetwork, Network, build
from deliralike.nn import start

__version__ = "0.1.0"

__all__ = ["AbstractNetwork", "Network", "backends", "build", "errors", "random", "start", "weights", "wrap", "zoo"]
