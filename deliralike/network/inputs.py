"""How a network is called with the inputs of a batch: the same in training and in evaluation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from deliralike.errors import BatchError
from deliralike.network.core import unwrap


def positional_inputs(network: Any) -> tuple[int, float]:
    """Return how many inputs a network needs by position, and how many it takes at most.

    Infinitely many where its class does not tell, as for ``forward(self, *inputs)``.
    """
    network = unwrap(network)
    try:
        signature = inspect.signature(getattr(network, "forward", network))
    except (TypeError, ValueError):
        return 0, float("inf")
    least = 0
    most = 0.0
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return least, float("inf")
        if parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            most += 1
            least += parameter.default is parameter.empty
    return least, most


def call(network: Any, *inputs: Any) -> Any:
    """Return the outputs of a network for the inputs of a batch.

    A tuple in the place of one input is several, unless the network takes one; a dict goes by names
    to a network that takes no input by position.
    """
    one = inputs[0] if len(inputs) == 1 else None
    if type(one) is tuple and positional_inputs(network)[1] != 1:
        return network(*one)
    if isinstance(one, Mapping) and positional_inputs(network)[1] == 0:
        return network(**one)
    return network(*inputs)


def grouped(batch: Any, inputs: int | None) -> Any:
    """Return a tuple of inputs and one target, of a batch whose first `inputs` parts are inputs.

    Several other parts are a tuple of targets. Dicts stay, and any batch where `inputs` is None.

    Raises:
        BatchError: The batch has no part left for the target.

    Example:
        >>> grouped(("image", "label", "weight"), inputs=1)
        ('image', ('label', 'weight'))
    """
    if inputs is None or not isinstance(batch, tuple | list):
        return batch
    targets = tuple(batch[inputs:])
    if not targets:
        raise BatchError(
            f"inputs={inputs}, and a batch has {len(batch)} parts: none is left for the target"
        )
    return (*batch[:inputs], targets[0] if len(targets) == 1 else targets)


def inputs_of_unlabelled(
    network: Any, batch: tuple | list, inputs: int | None
) -> tuple:
    """Return the inputs among the parts of a batch that may or may not have a target.

    Raises:
        BatchError: The network takes the last part as an input or not, and `inputs` is None.
    """
    if inputs is not None:
        return tuple(batch[:inputs])
    parts = len(batch)
    least, most = positional_inputs(network)
    if parts == 1 or parts <= least:
        return tuple(batch)
    if most == float("inf"):
        return tuple(batch[:-1])
    if parts <= most:
        raise BatchError(
            f"a batch has {parts} parts, and the network takes {least} to {most:g} inputs: say how "
            f"many parts are inputs, inputs={parts - 1} where the last is the target"
        )
    return tuple(batch[: int(most)])
