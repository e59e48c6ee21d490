"""deliralike: write a network once and train it on PyTorch, Chainer or JAX.

The package also proves that it is the same network on all of them.

Example:
    >>> import deliralike
    >>> net = deliralike.zoo.build("resnet18", backend="torch", num_classes=10)
    >>> net.count_parameters()
    11181642
"""

import importlib
from typing import TYPE_CHECKING, Any

from deliralike import backends, errors, parallel, random, weights, zoo
from deliralike.backends import (
    DataParallel,
    DistributedDataParallel,
    FullyShardedDataParallel,
    wrap,
)
from deliralike.backends.processes.join import join
from deliralike.backends.wrappers import is_model_wrapper, register_model_wrapper
from deliralike.compat.optim_wrapper_dict import OptimWrapperDict
from deliralike.network.base import AbstractNetwork, Network, build
from deliralike.network.detection import detect_anomalous_params
from deliralike.nn import start
from deliralike.optim import rules
from deliralike.parallel import in_replicas

if TYPE_CHECKING:
    from deliralike.conformance import Proof, Subject, compare

__version__ = "0.1.0"

__all__ = [
    "AbstractNetwork",
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "Network",
    "OptimWrapperDict",
    "Proof",
    "Subject",
    "backends",
    "build",
    "compare",
    "detect_anomalous_params",
    "errors",
    "in_replicas",
    "is_model_wrapper",
    "join",
    "parallel",
    "random",
    "register_model_wrapper",
    "rules",
    "start",
    "weights",
    "wrap",
    "zoo",
]


def __getattr__(name: str) -> Any:
    """The proof stands above all else here and is imported when it is asked for."""
    if name in ("Proof", "Subject", "compare"):
        return getattr(importlib.import_module("deliralike.conformance"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
