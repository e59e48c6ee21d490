"""Activation checkpointing: blocks that compute again backwards what they would have kept.

A block that is checkpointed is an instance of a subclass of its class, of which only the call
differs, so that copies and replicas of it are checkpointed, too.
"""

from __future__ import annotations

import copyreg
import importlib
from functools import cache
from typing import Any

from deliralike.errors import CapabilityError, matching

CAPABILITY = "checkpointed blocks"


def checkpoint_blocks(network: Any, *patterns: str) -> list[str]:
    """Checkpoint the activations of blocks (gradient checkpointing) to save memory.

    In training such a block keeps its inputs alone, and computes everything within it once more for
    its gradients. Outputs, gradients, running statistics and masks of dropout stay the same.

    Args:
        network: Written once or native; it is changed.
        patterns: Of the dotted paths of blocks, as ``named_blocks()`` gives them:
            ``"layer*.*"``, ``"encoder.layers.*"``. Of blocks within one another the outermost is
            taken.

    Returns:
        The paths of the blocks that are checkpointed.

    Raises:
        UnknownName: No block matches a pattern.
        CapabilityError: The backend cannot, or the network is replicated already.

    Source: Chen et al. 2016, arXiv 1604.06174.

    Example:
        >>> from deliralike import zoo
        >>> network = zoo.build("resnet18", backend="torch")
        >>> checkpoint_blocks(network, "layer1.*", "layer2.0")
        ['layer1.0', 'layer1.1', 'layer2.0']
    """
    network = importlib.import_module("deliralike.backends").wrap(network)
    backend = network.backend
    if CAPABILITY not in backend.capabilities:
        raise CapabilityError(
            f"backend {backend.name!r} cannot compute activations again"
        )
    if network.parallelism.is_replicated:
        raise CapabilityError(
            "checkpoint blocks before the network is replicated or distributed"
        )
    blocks = {path: block for path, block in network.named_blocks() if path}
    chosen: list[str] = []
    for pattern in patterns:
        chosen += matching(pattern, blocks, f"no block of {type(network).__name__}")
    within = tuple(f"{path}." for path in chosen)
    outermost = [
        path for path in blocks if path in chosen and not path.startswith(within)
    ]
    for path in outermost:
        block = blocks[path]
        if not hasattr(type(block), "checkpointed_class"):
            _change(block, backend, backend.calls_forward(block))
    return outermost


def refuse_synchronised_norms(network: Any, buffers: str) -> None:
    """Raise an error if a batch norm would add up statistics over replicas a second time.

    Replicas and processes take part in such a sum during their forward pass alone.

    Args:
        buffers: The policy of buffers: ``"sync"``, ``"root"`` or ``"mean"``.

    Raises:
        CapabilityError: Names the block.
    """
    if buffers != "sync":
        return
    names = [name for name in network.neutral_slots() if name.endswith("running_mean")]
    for path, block in network.named_blocks():
        is_checkpointed = hasattr(type(block), "checkpointed_class")
        if is_checkpointed and any(name.startswith(f"{path}.") for name in names):
            raise CapabilityError(
                f"block {path!r} is checkpointed and has batch norms, which cannot be synchronised "
                "while activations are computed again: choose buffers='root' or 'mean', or "
                "checkpoint blocks without them"
            )


@cache
def _checkpointed(kind: Any, backend: Any, has_forward: bool) -> type:
    """Return the subclass whose instances are checkpointed."""
    method = "forward" if has_forward else "__call__"

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return backend.recomputed(self, getattr(kind, method), args, kwargs)

    def reduce_ex(self: Any, protocol: Any) -> Any:
        reduced: Any = kind.__reduce_ex__(self, protocol)
        make, arguments, *rest = reduced
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            arguments = (kind, *arguments[1:])
        return (_new, (backend.name, has_forward, make, *arguments), *rest)

    body = {
        method: call,
        "__reduce_ex__": reduce_ex,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "checkpointed_class": kind,
    }
    return type(kind)(kind.__name__, (kind,), body)


def _new(name: str, has_forward: bool, make: Any, *arguments: Any) -> Any:
    """Return an empty block, of which copying and unpickling set the state."""
    backend = importlib.import_module("deliralike.backends").get(name)
    block: Any = make(*arguments)
    _change(block, backend, has_forward)
    return block


def _change(block: Any, backend: Any, has_forward: bool) -> None:
    kind: Any = type(block)
    object.__setattr__(block, "__class__", _checkpointed(kind, backend, has_forward))
