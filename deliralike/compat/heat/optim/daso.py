"""heat's name and signature for averages between nodes that overlap with training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deliralike import backends
from deliralike.backends.processes.join import join
from deliralike.compat.heat.communication import Communication, chosen, sanitize_comm
from deliralike.errors import ArgumentError, CapabilityError, SettingError
from deliralike.network.base import AbstractNetwork
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.averaging.asynchronous import WIRES, AsynchronousAverages
from deliralike.parallel.averaging.daso import Plan
from deliralike.parallel.processes.gradient_sums import trained_slots
from deliralike.parallel.processes.topology import Nodes

# The type of each argument, and its least value.
_ARGUMENTS: dict[str, tuple[type, Any]] = {
    "total_epochs": (int, 1),
    "warmup_epochs": (int, 0),
    "cooldown_epochs": (int, 0),
    "max_global_skips": (int, 1),
    "sending_chunk_size": (int, 1),
    "skip_reduction_factor": (int, 1),
    "local_skip_factor": (int, 1),
    "stability_level": (float, 0.0),
    "verbose": (bool, False),
    "use_mpi_groups": (bool, True),  # the engine makes its groups in its own way
}


class DASO:
    """Distributed asynchronous and selective optimization (DASO).

    The local optimizer is one of PyTorch or Chainer.

    Create the object in every process, give it to `DataParallelMultiGPU`, set `last_batch`, call
    `step` after each backward pass, and `epoch_loss_logic` after each epoch.
    `deliralike.parallel.averaging.daso` determines what is sent and merged when.

    Attributes:
        local_optimizer, scheduler, scaler: The objects that make the updates.
        last_batch: The number of batches of an epoch, the same in all processes. The index of the
            last batch, which heat's own code wants, is accepted as well: all batches are counted in
            the first epoch.
        comm, nodes: The communicator of all processes, and its topology.
        verbose: Whether the first process prints the loss and the pace after each epoch.
        averages: The averages in progress; None before the optimizer has a network.
    """

    def __init__(
        self,
        local_optimizer: Any,
        total_epochs: int,
        comm: Any = None,
        warmup_epochs: int = 4,
        cooldown_epochs: int = 4,
        scheduler: Any = None,
        stability_level: float = 0.05,
        max_global_skips: int = 8,
        sending_chunk_size: int = 10_000_000,
        downcast_type: Any = None,
        use_mpi_groups: bool = True,
        skip_reduction_factor: int = 2,
        local_skip_factor: int = 4,
        verbose: bool = False,
        *,
        members: int | None = None,
    ) -> None:
        """Create the optimizer; every process makes the call.

        Args:
            local_optimizer: An optimizer of PyTorch or Chainer over the parameters of one network;
                it keeps its state.
            total_epochs: The number of epochs of the run, which determines the cool-down.
            comm: ``ht.MPI_WORLD``, a communicator of mpi4py's, or what `deliralike.join` returns,
                over any engine. The default is what ``ht.use_comm`` chose, or the processes that
                the launcher has started.
            warmup_epochs, cooldown_epochs: The numbers of epochs at the beginning and at the end
                with a blocking average after each batch.
            scheduler: A learning rate scheduler over the local optimizer; it steps after each
                update.
            stability_level: A loss that is less than this fraction below the best one is no
                progress; three epochs without any are a plateau.
            max_global_skips: The most batches between two messages between nodes.
            sending_chunk_size: Of no effect: all numbers of one type share a message.
            downcast_type: The type in which parameters are sent between nodes:
                ``torch.bfloat16``, ``torch.half``, ``torch.float`` or their names; the parameters'
                own type when None.
            use_mpi_groups: Must be True: the engine forms its groups in its own way.
            skip_reduction_factor: The divisor, on a plateau, of the batches between two messages.
            local_skip_factor: The divisor of `max_global_skips` that gives, where a cycle begins,
                the batches between averages of gradients and those from a message to its merge.
            verbose: Whether the first process prints what happens.
            members: The number of processes of a node; the launcher's number when None.

        Raises:
            ArgumentError, SettingError: An argument has the wrong type, or makes no sense.
            ProcessError: Nodes would differ in size, or the launcher does not say their size.
        """
        arguments = locals()
        _check_arguments({name: arguments[name] for name in _ARGUMENTS})
        _check_optimizer(local_optimizer)
        _check_scheduler(scheduler)
        self.local_optimizer = local_optimizer
        self.scheduler = scheduler
        self.scaler: Any = None
        self.last_batch: int | None = None
        self.verbose = verbose
        self._plan = Plan(
            total_epochs,
            warmup_epochs,
            cooldown_epochs,
            max_global_skips,
            skip_reduction_factor,
            local_skip_factor,
            stability_level,
        )
        self._wire = _type_on_wire(downcast_type)
        self.comm = communicator(comm)
        self.nodes = Nodes(self.comm.processes, members)
        self.averages: AsynchronousAverages | None = None
        self._is_averaged = False  # whether the gradients at hand are averages already

    def set_model(self, model: Any) -> None:
        """Set the network; `DataParallelMultiGPU` does so.

        Raises:
            CapabilityError: The network's gradients are not kept beside its parameters.
        """
        network = backends.wrap(model)
        for slot in network.neutral_slots().values():
            if slot.is_parameter and not hasattr(slot.native, "grad"):
                raise CapabilityError(
                    f"backend {network.backend.name!r} keeps no gradients beside parameters, so "
                    "there is no backward() and step(): use deliralike.parallel.AveragedUpdates, "
                    "whose optimizer.update(loss, batch) does it all"
                )
        self._optimizer = network.backend.wrap_optimizer(self.local_optimizer, network)
        self.averages = AsynchronousAverages(
            network, self.nodes, self._plan, wire=self._wire
        )

    def add_scaler(self, scaler: Any) -> None:
        """Let a gradient scaler of PyTorch make the updates."""
        self.scaler = scaler

    # Position in the run
    # ------------------------------------------------------------

    @property
    def module(self) -> AbstractNetwork:
        """The network."""
        return self._active().network

    # Steps
    # ------------------------------------------------------------

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to None."""
        for slot in self.module.neutral_slots().values():
            if slot.is_parameter:
                slot.native.grad = None

    def average_gradients(self) -> None:
        """Average gradients within the node, if the present batch is due for it.

        `step` does so. Call this method first where something else reads gradients, such as
        clipping.

        Raises:
            ProcessError: Processes differ in their batches.
        """
        averages = self._active()
        averages.batches = self.last_batch
        if self._is_averaged:
            return
        averages.before_update()
        if averages.within and self.nodes.members > 1:
            scale = 1.0
            if self.scaler is not None:
                scale = float(self.scaler.get_scale())
            averages.average_gradients(scale)
        self._is_averaged = True

    def step(self) -> None:
        """Make an update with the present gradients, then merge and send what is due.

        Raises:
            SettingError: There is no network, or `last_batch` was not set.
            ProcessError: Processes differ in their batches, or parameters are not finite.
        """
        self.average_gradients()
        self._is_averaged = False
        if self.scaler is None:
            slots = trained_slots(self.module)
            self._optimizer.apply(
                {name: slot.native.grad for name, slot in slots.items()}
            )
        else:
            self.scaler.step(self.local_optimizer)
            self.scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        self._active().after_update()

    def epoch_loss_logic(self, loss: Any, loss_globally_averaged: bool = False) -> None:
        """End an epoch: its loss, averaged over processes, sets the pace of the next one.

        Args:
            loss: The loss of this process, a number or a native scalar.
            loss_globally_averaged: Whether it is the same in all processes; nothing depends on it.

        Raises:
            ProcessError: This process has made another number of batches than announced, or than
                the others.
        """
        averages = self._active()
        averages.batches = self.last_batch
        mean = averages.end_epoch(averages.network.backend.number(loss))
        if self.verbose and self.nodes.processes.is_root:
            print(
                f"epoch {averages.state.epoch}: loss {mean:.4f}, {averages.state.pace}"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process's run.

        Save it in every process, with the states of the network and of the local optimizer.
        """
        return self._active().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned in this process.

        Raises:
            StateError: The state is that of another process.
        """
        self._active().load_state_dict(state)

    def _active(self) -> AsynchronousAverages:
        if self.averages is None:
            raise SettingError(
                "DASO has no network yet: DataParallelMultiGPU(network, optimizer)"
            )
        return self.averages


def communicator(comm: Any) -> Communication:
    """Return a communicator for any form of communicator.

    None stands for what ``ht.use_comm`` chose, or else for the processes of the launcher.

    Raises:
        ArgumentError: The argument is no communicator.
    """
    if comm is None and chosen() is None:
        return Communication(join())
    return sanitize_comm(comm)


def _check_optimizer(optimizer: Any) -> None:
    """Raise an error for anything but an optimizer of a framework or of deliralike's."""
    is_optimizer = (
        isinstance(optimizer, AbstractOptimizer)
        or hasattr(optimizer, "step")
        or hasattr(optimizer, "update")
    )
    if isinstance(optimizer, type) or not is_optimizer:
        raise ArgumentError(
            f"local_optimizer={optimizer!r} is no optimizer: give one made over the network's "
            "parameters, such as torch.optim.SGD(network.parameters(), lr=0.1)"
        )


def _check_arguments(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        kind, least = _ARGUMENTS[name]
        if type(value) is not kind:
            raise ArgumentError(f"{name}={value!r} must be of type {kind.__name__}")
        if value < least:
            raise SettingError(f"{name}={value!r} must be at least {least!r}")


def _check_scheduler(scheduler: Any) -> None:
    if scheduler is None:
        return
    if isinstance(scheduler, type) or not hasattr(scheduler, "step"):
        raise ArgumentError(
            f"scheduler={scheduler!r} has no step(): give a scheduler made over the local optimizer"
        )


def _type_on_wire(downcast_type: Any) -> str | None:
    if downcast_type is None:
        return None
    name = str(downcast_type).rpartition(".")[2]
    if name not in WIRES:
        message = (
            f"downcast_type={downcast_type!r} must be torch.bfloat16, torch.half, torch.float or "
            "None"
        )
        if isinstance(downcast_type, str) or hasattr(downcast_type, "itemsize"):
            raise SettingError(message)
        raise ArgumentError(message)
    return name
