"""ChainerMN's multi-node optimizers, as optimizers of networks in several processes."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer import unstable
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.distributed.network import DistributedChainerNetwork
from deliralike.errors import ArgumentError, CapabilityError
from deliralike.network.base import AbstractNetwork


def unwrap_multi_node_optimizer(
    native: Any, network: AbstractNetwork
) -> chainer.Optimizer:
    """Return the optimizer inside one of ChainerMN's, and connect its communicator to the network.

    From then on the communicator adds the network's gradients. No batch is lost: ChainerMN's own
    first update sends the root's weights and leaves the parameters as they are, but the network's
    processes start with the same weights already. Any other optimizer is returned as it is.

    Raises:
        ArgumentError: The network does not train in the processes of the communicator.
        CapabilityError: The optimizer uses double buffering, which updates with the gradients of
            the step before.
    """
    if unstable.is_double_buffering(native):
        raise CapabilityError(
            "double buffering updates with the gradients of the step before, which are not those "
            "of one process: create_multi_node_optimizer(..., double_buffering=False)"
        )
    if not unstable.is_multi_node(native):
        return native
    _connect(native.communicator, network)
    return native.actual_optimizer


def _connect(communicator: Any, network: AbstractNetwork) -> None:
    processes = network.parallelism.processes
    if (processes.rank, processes.count) != (communicator.rank, communicator.size):
        raise ArgumentError(
            f"the optimizer's communicator has process {communicator.rank} of {communicator.size}, "
            f"and the network is process {processes.rank} of {processes.count}: give it "
            f"DistributedDataParallel(network, join('chainermn'))"
        )
    if isinstance(network, DistributedChainerNetwork):
        network.parallelism.reduce_by(communicator)
