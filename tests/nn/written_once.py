"""The vocabulary exactly as it is written once: PyTorch fills in the primitives and nothing else.

It is compared like a backend, so that a composite is tested even where every backend has something
faster in its place.
"""

from deliralike.backends.torch import AbstractTorchNetwork, TorchBackend
from deliralike.backends.torch.functional import TorchFunctions
from deliralike.nn.functional import Functions
from deliralike.nn.primitives import Primitives

_PRIMITIVES = [
    name
    for name, value in vars(Primitives).items()
    if getattr(value, "__isabstractmethod__", False)
]
PrimitiveFunctions = type(
    "PrimitiveFunctions",
    (Functions,),
    {name: vars(TorchFunctions)[name] for name in ("argument_errors", *_PRIMITIVES)},
)
PrimitiveNetwork = type(AbstractTorchNetwork)(
    "PrimitiveNetwork", (AbstractTorchNetwork,), {}
)


class WrittenOnce(TorchBackend):
    """PyTorch's tensors under the layers and functions that are written once."""


WRITTEN_ONCE = WrittenOnce()
WRITTEN_ONCE.bind(PrimitiveFunctions(), PrimitiveNetwork)
