"""deliralike: write a network once and train it on PyTorch, Chainer or JAX.

The package also proves that it is the same network on all of them.

Example:
    >>> import deliralike
    >>> net = deliralike.zoo.build("resnet18", backend="torch", num_classes=10)
    >>> net.count_parameters()
    11181642
"""

from typing import TYPE_CHECKING

from deliralike import lazy

if TYPE_CHECKING:
    from deliralike import (
        backends,
        errors,
        parallel,
        port,
        random,
        weights,
        zoo,
    )
    from deliralike import nest as nest
    from deliralike import network as network
    from deliralike import nn as nn
    from deliralike import optim as optim
    from deliralike.backends import (
        DataParallel,
        DistributedDataParallel,
        FullyShardedDataParallel,
        wrap,
    )
    from deliralike.backends.processes.join import join
    from deliralike.backends.wrappers import is_model_wrapper, register_model_wrapper
    from deliralike.compat.optim_wrapper_dict import OptimWrapperDict
    from deliralike.conformance import Proof, Subject, compare
    from deliralike.inference.summary import summary
    from deliralike.network.base import AbstractNetwork, Network, build
    from deliralike.network.detection import detect_anomalous_params
    from deliralike.network.freezing import freeze, unfreeze
    from deliralike.network.recomputed import checkpoint_blocks
    from deliralike.nn import start
    from deliralike.optim import rules
    from deliralike.parallel import in_replicas
else:
    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            __name__: "backends errors nest network nn optim parallel port random weights zoo",
            "deliralike.backends": (
                "DataParallel DistributedDataParallel FullyShardedDataParallel wrap"
            ),
            "deliralike.backends.processes.join": "join",
            "deliralike.backends.wrappers": "is_model_wrapper register_model_wrapper",
            "deliralike.compat.optim_wrapper_dict": "OptimWrapperDict",
            "deliralike.conformance": "Proof Subject compare",
            "deliralike.inference.summary": "summary",
            "deliralike.network.base": "AbstractNetwork Network build",
            "deliralike.network.detection": "detect_anomalous_params",
            "deliralike.network.freezing": "freeze unfreeze",
            "deliralike.network.recomputed": "checkpoint_blocks",
            "deliralike.nn": "start",
            "deliralike.optim": "rules",
            "deliralike.parallel": "in_replicas",
        },
    )

__version__ = "0.2.0"

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
    "checkpoint_blocks",
    "compare",
    "detect_anomalous_params",
    "errors",
    "freeze",
    "in_replicas",
    "is_model_wrapper",
    "join",
    "parallel",
    "port",
    "random",
    "register_model_wrapper",
    "rules",
    "start",
    "summary",
    "unfreeze",
    "weights",
    "wrap",
    "zoo",
]
