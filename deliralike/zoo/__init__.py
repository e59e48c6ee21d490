"""The zoo: architectures written once, found by name."""

from deliralike.zoo import lenet, mlp, resnet
from deliralike.zoo.registry import Architecture, build, find, list, register

__all__ = ["Architecture", "build", "find", "lenet", "list", "mlp", "register", "resnet"]
