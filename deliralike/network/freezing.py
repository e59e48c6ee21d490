"""Parts of a network that stay as they are while the rest is trained: parameters and mode."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from deliralike.errors import CapabilityError, matching
from deliralike.network.core import NetworkCore


def freeze(network: NetworkCore, pattern: str) -> list[str]:
    """Freeze the parts whose weights match a pattern, such as ``"layer1.*"``, until `unfreeze`.

    Their parameters are not trained, and blocks all of whose weights match are set to evaluation
    mode, in which a trainer leaves them: their batch norms keep their statistics, and their dropout
    drops nothing.

    Returns:
        The names of their parameters and buffers.

    Raises:
        UnknownName: No weight matches.
        CapabilityError: A layer of a framework's own has statistics and no mode.

    Source: the name is that of timm's ``freeze``, which freezes batch norms as well.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("resnet8", backend="torch")
        >>> _ = freeze(net, "*"), unfreeze(net, "fc.*")
        >>> net.count_parameters(trainable_only=True)
        650
    """
    return _freeze(network, pattern, True)


def unfreeze(network: NetworkCore, pattern: str) -> list[str]:
    """Undo `freeze`: the parameters are trained, and the blocks are in training mode."""
    return _freeze(network, pattern, False)


def _freeze(network: NetworkCore, pattern: str, frozen: bool) -> list[str]:
    slots = network.neutral_slots()
    names = matching(pattern, slots, f"no weight of {type(network).__name__}")
    others = slots.keys() - names
    blocks = []
    for path, block in network.named_blocks():
        prefix = f"{path}." if path else ""
        inside = [name for name in names if name.startswith(prefix)]
        if not inside or any(name.startswith(prefix) for name in others):
            continue
        if hasattr(block, "train"):
            blocks.append(block)
        elif not all(slots[name].is_parameter for name in inside):
            raise CapabilityError(
                f"freeze {pattern!r}: {path!r} is a {type(block).__name__} of the framework's own, "
                "whose statistics have no mode: use the layer of self.nn instead"
            )
    for block in blocks:
        block.train(not frozen)
    for name in names:
        if slots[name].is_parameter:
            slots[name].trainable = not frozen
    return names


@contextmanager
def trained(network: NetworkCore) -> Iterator[Any]:
    """Hold training mode for a ``with`` block, but for `parts_in_evaluation`."""
    parts = parts_in_evaluation(network)
    with network.training_mode(True):
        set_parts_in_evaluation(network, parts)
        yield network


def parts_in_evaluation(network: NetworkCore) -> list[str]:
    """Return the paths of the blocks that stay in evaluation mode while a network trains.

    These are the blocks in evaluation mode within a network in training mode; and of a network that
    is in evaluation mode as a whole those within a part without a trainable parameter.
    """
    modes = {}
    for path, block in network.named_blocks():
        modes[path] = network._mode(block)  # noqa: SLF001
    of_network = modes.pop("")
    parts = [path for path, mode in modes.items() if mode is False]
    if of_network is not False and True in modes.values():
        return parts
    frozen = tuple(f"{path}." for path in parts if _is_frozen(network, path))
    return [path for path in parts if f"{path}.".startswith(frozen)]


def set_parts_in_evaluation(network: NetworkCore, paths: Collection[str]) -> None:
    """Make these blocks those of `parts_in_evaluation`, instead of the present ones."""
    before = parts_in_evaluation(network)
    for path, block in network.named_blocks():
        if path in paths or path in before:
            network._set_mode(block, path not in paths)  # noqa: SLF001


def _is_frozen(network: NetworkCore, path: str) -> bool:
    """Return whether a block has parameters, none of which is trainable."""
    slots = network.neutral_slots().items()
    inside = [
        slot
        for name, slot in slots
        if slot.is_parameter and name.startswith(f"{path}.")
    ]
    return bool(inside) and not any(slot.trainable for slot in inside)
