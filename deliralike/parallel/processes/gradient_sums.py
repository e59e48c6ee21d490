"""Equal weights in all processes, and sums of gradients, as a function and as a hook."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot, each_once
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.network import NetworkHook


def sum_gradients(
    network: AbstractNetwork,
    group: ProcessGroup,
    gradients: dict[str, Any],
    weight: float = 1.0,
) -> dict[str, Any]:
    """Return the sums of gradients by neutral name over the processes of a group.

    A gradient that some of the processes lack counts as zero there; one that all lack is None.

    Args:
        weight: The factor of the gradients of this process.
    """
    backend = network.backend
    arrays = []
    presence = []
    for name, gradient in gradients.items():
        presence.append(gradient is not None)
        if gradient is None:
            slot = network.neutral_slots()[name]
            array = np.zeros_like(backend.numpy(slot.native))
        else:
            array = backend.numpy(gradient)
        if weight != 1.0:
            array = array * array.dtype.type(weight)
        arrays.append(array)
    # The same message carries in how many processes there is each gradient.
    counts = np.array(presence, arrays[0].dtype if arrays else None)
    *totals, counts = group.all_reduce("gradients", [*arrays, counts])
    sums = {}
    for name, total, count in zip(gradients, totals, counts, strict=True):
        sums[name] = backend.array(total, device=network.device_name) if count else None
    return sums


def trained_slots(network: AbstractNetwork) -> dict[str, Slot]:
    """Return the slots of the trainable parameters by name, a tied parameter once."""
    slots = each_once(network.neutral_slots())
    return {name: slot for name, slot in slots.items() if slot.trainable}


def start_equal(network: AbstractNetwork, processes: ProcessGroup) -> None:
    """Load the weights and buffers of the root process; no random state changes."""
    state = processes.broadcast_object("weights", network.neutral_state())
    if not processes.is_root:
        network.load_neutral_state(state)


class SumOverProcesses(NetworkHook):
    """Pre-update hook that adds the gradients of all processes, in every process.

    A parameter that took no part in some of the processes counts as zero there; one that took no
    part in any keeps None and is left alone by the update.
    """

    def __call__(
        self, optimizer: AbstractOptimizer, gradients: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the gradients of the whole batch."""
        parallelism = self.network.parallelism
        group = parallelism.batch_group
        if group.count == 1:
            return gradients
        reduced = parallelism.take_reduced()
        rest = {}
        for name, gradient in gradients.items():
            if name not in reduced:
                rest[name] = gradient
        if reduced and not rest:
            return gradients
        return gradients | sum_gradients(self.network, group, rest)
