"""The check that a network can compute in mixed precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deliralike.errors import CapabilityError, SettingError

if TYPE_CHECKING:
    from deliralike.network.core import NetworkCore


def check_mixed(network: NetworkCore, precision: str) -> None:
    """Raise an error when a network cannot compute in a shorter type.

    Raises:
        CapabilityError: The backend cannot, or blocks of the framework's own would go on in their
            own type.
        SettingError: The network is not one of float32.
    """
    backend = network.backend
    backend.require(f"mixed {precision}")
    if network.dtype_name != "float32":
        raise SettingError(
            f"mixed precision is for networks of float32, and {type(network).__name__} is one "
            f"of {network.dtype_name}: build it in float32, or leave precision out"
        )
    if backend.native_layers_mix:
        return
    blocks = dict(network.named_blocks())
    for name, slot in network.neutral_slots().items():
        path = name.rpartition(".")[0]
        if not slot.is_parameter or path not in blocks:
            continue
        if not hasattr(blocks[path], "neutral_slots"):
            raise CapabilityError(
                f"the block {path!r} is a {type(blocks[path]).__name__} of the framework's "
                f"own, and on backend {backend.name!r} only the layers and functions of nn "
                f"compute in {precision}: give the block a type of its own, or leave precision out"
            )
