"""The zoo: architectures written once, found by name."""

from deliralike.zoo import lenet, mlp, resnet, unet
from deliralike.zoo.registry import Architecture, build, find, list, register
from deliralike.zoo.summary import Outline, outline

__all__ = ["Architecture", "Outline", "build", "find", "lenet", "list", "mlp", "outline", "register", "resnet", "unet"]
