"""heat's name and signature for averages between nodes that go on while training does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike import backends
from deliralike.backends.processes.join import join
from deliralike.compat.heat.communication import Communication, chosen, sanitize_comm
from deliralike.errors import ArgumentError, CapabilityError, SettingError
from deliralike.network.base import AbstractNetwork
from deliralike.network.state import Slot
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.parallel.averaging.asynchronous import WIRES, AsynchronousAverages
from deliralike.parallel.averaging.daso import BLOCKING, Plan
from deliralike.parallel.processes.topology import Nodes

_WHOLE = {
    "total_epochs": 1,
    "warmup_epochs": 0,
    "cooldown_epochs": 0,
    "max_global_skips": 1,
    "sending_chunk_size": 1,
    "skip_reduction_factor": 1,
    "local_skip_factor": 1,
}


class DASO:
    """Distributed asynchronous and selective optimization (DASO).

    It works around an optimizer of PyTorch or Chainer.

    Create it in every process, give it to `DataParallelMultiGPU`, set `last_batch`, call `step`
    after each backward pass, and `epoch_loss_logic` after each epoch.
    `deliralike.parallel.averaging.daso` says what is sent and merged when.

    Attributes:
        local_optimizer, scheduler, scaler: What makes the updates.
        last_batch: How many batches an epoch has, the same in all processes. The index of the last
            one, which heat's own code wants, does as well: all batches are counted in the first
            epoch.
        comm, nodes: The communicator of all processes, and where they are.
        verbose: Whether `print0` prints.
        averages: What does it; None before the optimizer has a network.
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
        """Every process makes the call.

        Args:
            local_optimizer: PyTorch's or Chainer's, over the parameters of one network; it keeps
                its state.
            total_epochs: Of the run, for the cool-down.
            comm: The processes: ``ht.MPI_WORLD``, a communicator of mpi4py's, or what
                `deliralike.join` gives, over any engine; when None, what ``ht.use_comm`` chose, or
                those that the launcher has started.
            warmup_epochs, cooldown_epochs: Epochs in the beginning and in the end with a blocking
                average after each batch.
            scheduler: A learning rate scheduler over the local optimizer; it steps after each
                update.
            stability_level: A loss that is less than this fraction below the best one is no
                progress; three epochs without any are a plateau.
            max_global_skips: The most batches from one sending between nodes to the next.
            sending_chunk_size: The most numbers of one message between nodes.
            downcast_type: The type in which parameters travel between nodes: ``torch.bfloat16``,
                ``torch.half``, ``torch.float`` or their names; their own when None.
            use_mpi_groups: The engine makes its groups in its own way: leave it as it is.
            skip_reduction_factor: By what the batches from one sending to the next are divided on a
                plateau.
            local_skip_factor: By what `max_global_skips` is divided for the batches without
                averaged gradients and those from a sending to its merge, where a cycle begins.
            verbose: Say what happens, on the first process.
            members: How many processes a node has; what the launcher says when None.

        Raises:
            ArgumentError, SettingError: An argument has the wrong type, or makes no sense.
            ProcessError: Nodes would differ in size, or nobody says how large they are.
        """
        whole = {
            "total_epochs": total_epochs,
            "warmup_epochs": warmup_epochs,
            "cooldown_epochs": cooldown_epochs,
            "max_global_skips": max_global_skips,
            "sending_chunk_size": sending_chunk_size,
            "skip_reduction_factor": skip_reduction_factor,
            "local_skip_factor": local_skip_factor,
        }
        for name, value in whole.items():
            _check_whole(name, value)
        _check_optimizer(local_optimizer)
        if not isinstance(stability_level, float):
            raise ArgumentError(
                f"stability_level={stability_level!r} must be a fraction such as 0.05"
            )
        if stability_level < 0:
            raise SettingError(f"stability_level={stability_level!r} must be at least 0")
        for name, value in (("verbose", verbose), ("use_mpi_groups", use_mpi_groups)):
            if not isinstance(value, bool):
                raise ArgumentError(f"{name}={value!r} must be True or False")
        if not use_mpi_groups:
            raise SettingError(
                "use_mpi_groups: the engine makes its groups in its own way: leave it out"
            )
        if scheduler is not None and (
            isinstance(scheduler, type) or not hasattr(scheduler, "step")
        ):
            raise ArgumentError(
                f"scheduler={scheduler!r} has no step(): give a scheduler made over the local "
                "optimizer"
            )
        self.local_optimizer, self.scheduler, self.scaler = local_optimizer, scheduler, None
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
        self._chunk, self._wire = sending_chunk_size, _type_on_wire(downcast_type)
        self.comm = communicator(comm)
        self.nodes = Nodes(self.comm.processes, members)
        self.averages: AsynchronousAverages | None = None
        self._averaged = False

    def set_model(self, model: Any) -> None:
        """Take the network; `DataParallelMultiGPU` does so.

        Raises:
            CapabilityError: Its gradients are not kept beside its parameters.
        """
        network = backends.wrap(model)
        if not all(
            hasattr(slot.native, "grad")
            for slot in network.neutral_slots().values()
            if slot.is_parameter
        ):
            raise CapabilityError(
                f"backend {network.backend.name!r} keeps no gradients beside parameters, so there "
                "is no backward() and step(): use deliralike.parallel.AveragedUpdates, whose "
                "optimizer.update(loss, batch) does it all"
            )
        self._optimizer = network.backend.wrap_optimizer(self.local_optimizer, network)
        self.averages = AsynchronousAverages(
            network, self.nodes, self._plan, chunk=self._chunk, wire=self._wire
        )

    def add_scaler(self, scaler: Any) -> None:
        """Make the updates by a gradient scaler of PyTorch's."""
        self.scaler = scaler

    # Where the run is
    # ----------------------------------------------------------------------------------------------

    @property
    def module(self) -> AbstractNetwork:
        """The network."""
        return self._made().network

    @property
    def epoch(self) -> int:
        """The coming epoch, from 0."""
        return self._made().state.epoch

    @property
    def current_batch(self) -> int:
        """The coming batch, from 0."""
        return self._made().state.batch

    @property
    def global_skip(self) -> int:
        """Batches from one sending between nodes to the next; 0 for blocking averages."""
        pace = self._made().state.pace
        return 0 if pace == BLOCKING else pace.between

    @property
    def batches_to_wait(self) -> int:
        """Batches from a sending to its merge; 0 for blocking averages."""
        return self._made().state.pace.wait

    @property
    def local_skip(self) -> int:
        """Return the number of batches between averages of gradients within nodes.

        It is 0 in phases of blocking averages.
        """
        pace = self._made().state.pace
        return 0 if pace == BLOCKING else pace.local

    # Steps
    # ----------------------------------------------------------------------------------------------

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for slot in self.module.neutral_slots().values():
            if slot.is_parameter:
                slot.native.grad = None

    def average_gradients(self) -> None:
        """Average gradients within the node, if this is a batch for it.

        `step` does so; call it before where something looks at them, such as clipping.

        Raises:
            ProcessError: Processes differ in their batches.
        """
        averages = self._made()
        averages.batches = self.last_batch
        if self._averaged:
            return
        averages.before_update()
        if averages.within and self.nodes.members > 1:
            self._average(list(_trained(averages.network).values()), averages.network)
        self._averaged = True

    def step(self) -> None:
        """Make an update with the gradients at hand, then merge and send what is due.

        Raises:
            SettingError: There is no network, or `last_batch` was not set.
            ProcessError: Processes differ in their batches, or parameters are not finite.
        """
        self.average_gradients()
        self._averaged = False
        if self.scaler is not None:
            self.scaler.step(self.local_optimizer)
            self.scaler.update()
        else:
            slots = _trained(self.module)
            self._optimizer.apply({name: slot.native.grad for name, slot in slots.items()})
        if self.scheduler is not None:
            self.scheduler.step()
        self._made().after_update()

    def epoch_loss_logic(self, loss: Any, loss_globally_averaged: bool = False) -> None:
        """End an epoch: its loss, averaged over processes, decides on the pace of the next one.

        Args:
            loss: That of this process, a number or a native scalar.
            loss_globally_averaged: Whether it is the same in all processes; nothing depends on it.

        Raises:
            ProcessError: This process has made another number of batches than were told, or than
                the others.
        """
        averages = self._made()
        averages.batches = self.last_batch
        mean = averages.end_epoch(averages.network.backend.number(loss))
        self.print0(
            f"epoch {self.epoch}: loss {mean:.4f}, global skips {self.global_skip}, local skips "
            f"{self.local_skip}, batches to wait {self.batches_to_wait}"
        )

    def print0(self, *args: Any, **kwargs: Any) -> None:
        """Print on the first process, if `verbose` is set."""
        if self.verbose and self.nodes.processes.is_root:
            print(*args, **kwargs)

    def reset(self) -> None:
        """Begin the run anew, with parameters and the local optimizer as they are."""
        self._made().reset()
        self.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Return the position of this process's run.

        Save it in every process, with the states of the network and of the local optimizer.
        """
        return self._made().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave in this process.

        Raises:
            StateError: It is that of another process.
        """
        self._made().load_state_dict(state)

    def _made(self) -> AsynchronousAverages:
        if self.averages is None:
            raise SettingError("DASO has no network yet: DataParallelMultiGPU(network, optimizer)")
        return self.averages

    def _average(self, slots: list[Slot], network: AbstractNetwork) -> None:
        """Replace gradients by their mean over the node; one that no process has stays None."""
        backend, scale = (
            network.backend,
            1.0 if self.scaler is None else float(self.scaler.get_scale()),
        )
        given = [
            None if slot.native.grad is None else backend.numpy(slot.native.grad) for slot in slots
        ]
        arrays = [
            np.zeros_like(backend.numpy(slot.native)) if gradient is None else gradient / scale
            for slot, gradient in zip(slots, given, strict=True)
        ]
        counts = np.array([gradient is not None for gradient in given], arrays[0].dtype)
        *sums, parts = self.nodes.node.all_reduce("gradients", [*arrays, counts])
        for slot, total, part in zip(slots, sums, parts, strict=True):
            mean = total * (scale / self.nodes.members)  # each process has a scale of its own
            slot.native.grad = backend.array(mean, device=network.device_name) if part else None


def _trained(network: AbstractNetwork) -> dict[str, Slot]:
    """The parameters that train, a tied one once."""
    slots = {name: slot for name, slot in network.neutral_slots().items() if slot.trainable}
    first = {id(slot.native): name for name, slot in reversed(slots.items())}
    return {name: slot for name, slot in slots.items() if first[id(slot.native)] == name}


def communicator(comm: Any) -> Communication:
    """Return the given communicator, in any form that heat's users have it.

    None stands for the launcher's processes.

    Raises:
        ArgumentError: It is no communicator.
    """
    return Communication(join()) if comm is None and chosen() is None else sanitize_comm(comm)


def _check_optimizer(optimizer: Any) -> None:
    """An error for what is no optimizer of a framework, nor one of deliralike's."""
    steps = isinstance(optimizer, AbstractOptimizer) or any(
        hasattr(optimizer, name) for name in ("step", "update")
    )
    if isinstance(optimizer, type) or not steps:
        raise ArgumentError(
            f"local_optimizer={optimizer!r} is no optimizer: give one made over the network's "
            "parameters, such as torch.optim.SGD(network.parameters(), lr=0.1)"
        )


def _check_whole(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(f"{name}={value!r} must be a whole number")
    if value < _WHOLE[name]:
        raise SettingError(f"{name}={value!r} must be at least {_WHOLE[name]}")


def _type_on_wire(downcast_type: Any) -> str | None:
    if downcast_type is None:
        return None
    name = str(downcast_type).rpartition(".")[2]
    if name not in WIRES:
        is_type = isinstance(downcast_type, str) or hasattr(downcast_type, "itemsize")
        kind = SettingError if is_type else ArgumentError
        raise kind(
            f"downcast_type={downcast_type!r} must be torch.bfloat16, torch.half, torch.float or "
            "None"
        )
    return name
