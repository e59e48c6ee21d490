"""PyTorch's wrappers, which add gradients over processes during backward, in buckets.

Only this backend has this file: the wrappers are ``DistributedDataParallel``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from deliralike.backends.torch.distributed.comm_hooks import comm_hook
from deliralike.backends.torch.distributed.process_group import TorchProcessGroup
from deliralike.backends.torch.network import TABLES, AbstractTorchNetwork
from deliralike.errors import (
    ArgumentError,
    ProcessError,
    SettingError,
    UnknownName,
    refuse_unknown_settings,
    suggestion,
)
from deliralike.parallel.processes.loss_exchange import LossExchange

Computes = Callable[
    [Any], torch.Tensor
]  # from a share of a batch, this process's part of the loss

_OWN = ("parts", "comm_hook", "comm_state")
_LEFT_OUT = ("module", "delay_all_reduce_named_params", "param_to_hook_all_reduce")
_KEYWORDS = [
    name
    for name in inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters
    if name not in _LEFT_OUT
]


class Reducing:
    """The wrapper of a network, or the wrappers of its parts, each with a reducer of its own.

    The output of each wrapper is the loss. So a loss may call the network or its parts in any way,
    several times too.

    Attributes:
        wrappers: By the path of a part, its wrapper and the names of the parameters whose gradients
            that one adds.
        carries_loss: Whether the one wrapper adds the parts of the loss as well; not where a hook
            may round them.
    """

    def __init__(
        self,
        network: AbstractTorchNetwork,
        module: torch.nn.Module,
        processes: TorchProcessGroup,
        *,
        parts: bool | Sequence[str] = False,
        comm_hook: Any = None,
        comm_state: Any = None,
        **keywords: Any,
    ) -> None:
        """Wrap the network, or its parts.

        Args:
            network, module: The network, and PyTorch's module in it.
            parts: See `TorchReplicasOverProcesses.reduce_in_backward`.
            comm_hook, comm_state: See `deliralike.backends.torch.distributed.comm_hooks.comm_hook`.
            keywords: PyTorch's.
        """
        refuse_unknown_settings("in_backward", keywords, [*_OWN, *_KEYWORDS])
        if comm_hook is None and comm_state is not None:
            raise SettingError(
                "in_backward has a comm_state and no comm_hook: name one"
            )
        self.network = network
        self.module = module
        self.processes = processes
        self.paths = list(_paths(module, parts))
        self.carries_loss = not parts and comm_hook is None
        self.hook = comm_hook
        self.state = comm_state
        defaults: dict[str, Any] = {}
        group = processes.group_between(torch.device(network.device_name).type)
        if "device_mesh" not in keywords:
            defaults["process_group"] = group
        if "broadcast_buffers" not in keywords:
            defaults["forward_sync_buffers"] = False
        self.keywords = defaults | keywords
        self.wrappers: dict[str, tuple[Any, frozenset[str]]] = {}
        self._known_parameters: list[tuple[int, bool]] = []
        self.follow()

    def follow(self) -> None:
        """Make new wrappers if parameters were frozen, thawed or exchanged since the last call."""
        present = [(id(p), p.requires_grad) for p in self.module.parameters()]
        if present == self._known_parameters:
            return
        self.drop()
        self._known_parameters = present
        owned: set[int] = set()
        for path in self.paths:
            part = _Part(self.module.get_submodule(path), owned)
            if any(parameter.requires_grad for parameter in part.added):
                self.wrappers[path] = self._wrap(part)

    def _wrap(self, part: _Part) -> tuple[Any, frozenset[str]]:
        if self.carries_loss:
            part.carry(_Message(part.added[0], self.processes))
        wrapper = _Wrapper(part, **self.keywords)
        if self.hook is not None:
            wrapper.register_comm_hook(
                *comm_hook(self.hook, self.state, wrapper.process_group)
            )
        added = {id(parameter) for parameter in part.added if parameter.requires_grad}
        slots = self.network.neutral_slots().items()
        return wrapper, frozenset(
            name for name, slot in slots if id(slot.native) in added
        )

    def drop(self) -> None:
        """Remove all wrappers."""
        for wrapper, _ in self.wrappers.values():
            wrapper.leave()
        self.wrappers.clear()

    def backward(
        self,
        compute: Computes,
        share: Any,
        backward: Callable[[Any], None],
        wanted: Mapping[str, torch.nn.Parameter],
        exchange: LossExchange,
    ) -> frozenset[str]:
        """Compute the loss and run backward, in which wrappers add the gradients of all processes.

        Args:
            wanted: The parameters whose gradients are wanted: wrappers with none of them send
                nothing.
            exchange: The exchange of the loss, which takes what the wrapper has carried.

        Returns:
            The parameters whose gradients have been added.

        Raises:
            ProcessError: A parameter took no part in the loss, and the wrappers do not look for
                such parameters.
        """
        chosen = {}
        added: frozenset[str] = frozenset()
        for path, (wrapper, names) in self.wrappers.items():
            if not names.isdisjoint(wanted):
                chosen[path] = wrapper
                added |= names
        for wrapper in chosen.values():
            wrapper.begin(exchange)
            compute = partial(wrapper, compute)
        factor = self.processes.count if chosen else 1  # as wrappers take the mean
        self.processes.at = "the gradients, which are added during backward"
        with self.processes.blaming():
            backward(compute(share) * factor)
        for path, wrapper in chosen.items():
            wrapper.end(f"the part {path!r}" if path else "the network")
        for name, parameter in wanted.items():
            if name not in added and parameter.grad is not None:
                parameter.grad = parameter.grad / factor
        return added


class _Part(torch.nn.Module):
    """A stand-in for a module, with its tables, whose forward is any computation.

    Attributes:
        added: The parameters whose gradients the part's wrapper adds.
        message: What the wrapper adds beside gradients; None without.
    """

    message: _Message | None = None

    def __init__(self, module: torch.nn.Module, owned: set[int]) -> None:
        """Share everything with the module, but leave out parameters that an earlier part owns."""
        super().__init__()
        self.__dict__.update({table: vars(module)[table] for table in TABLES})
        ignored = [*getattr(module, "_ddp_params_and_buffers_to_ignore", ())]
        ignored += [
            name
            for name, parameter in self.named_parameters()
            if id(parameter) in owned
        ]
        self._ddp_params_and_buffers_to_ignore = ignored  # read by PyTorch
        self.added = [p for name, p in self.named_parameters() if name not in ignored]
        owned.update(map(id, self.added))

    def carry(self, message: _Message) -> None:
        """Let the wrapper, which is yet to be made, add a message as well."""
        # Past PyTorch's __setattr__ and into a copy, so that the module itself stays as it is.
        parameters = {**self._parameters, "_deliralike_message": message.parameter}
        self.__dict__.update(_parameters=parameters, message=message)

    def forward(self, compute: Computes, share: Any) -> torch.Tensor:
        """Run the computation."""
        loss = compute(share)
        return loss if self.message is None else self.message.sent_with(loss)


class _Message:
    """A part of the loss that a wrapper adds up over processes, as the gradient of a parameter.

    Attributes:
        parameter: A parameter of two numbers, whose gradient is the sum of the parts of the loss,
            and the number of processes that want to tell more.
    """

    def __init__(self, like: torch.Tensor, processes: TorchProcessGroup) -> None:
        """Make the parameter, in float64 where another one is, else in float32."""
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.parameter = torch.nn.Parameter(
            torch.zeros(2, dtype=dtype, device=like.device)
        )
        self.count = processes.count
        self.exchange: Any = None

    def begin(self, exchange: LossExchange) -> None:
        """Take the exchange of the next loss."""
        self.exchange = exchange
        self.parameter.grad = None

    def sent_with(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss, whose backward pass gives the parameter its gradient."""
        if not loss.requires_grad:
            return loss
        gradient = torch.zeros_like(self.parameter)
        gradient[0] = loss.detach()
        gradient[1] = self.exchange.wants_message
        # The wrapper takes the mean.
        return _Sent.apply(loss, self.parameter, gradient * self.count)

    def end(self) -> None:
        """Give the exchange what has been added up."""
        if self.parameter.grad is not None:
            self.exchange.carried(*self.parameter.grad.tolist())
        self.exchange = None


class _Sent(torch.autograd.Function):
    """The identity of a loss, whose backward pass gives a parameter a certain gradient."""

    @staticmethod
    def forward(ctx, loss, parameter, gradient):
        ctx.gradient = gradient
        return loss.clone()

    @staticmethod
    def backward(ctx, of_loss):
        return of_loss, ctx.gradient, None


class _Wrapper(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's wrapper, which is active in some backward passes only, and checked after each."""

    def begin(self, exchange: LossExchange) -> None:
        """Prepare for a pass in which all processes take part."""
        if self.find_unused_parameters:
            # it remembers what was used in other passes
            self.reducer._reset_state()
        for parameter in self.module.added:
            parameter.grad = None  # left over from another optimizer's step
        if self.module.message is not None:
            self.module.message.begin(exchange)

    def end(self, what: str) -> None:
        """Check after the pass that no bucket waits for gradients.

        Raises:
            ProcessError: A parameter took no part, so that gradients of others were not added.
        """
        if self.module.message is not None:
            self.module.message.end()
        if all(parameter.grad is None for parameter in self.module.added):
            # otherwise it would take part in the next backward pass of any kind
            self.reducer._reset_state()
            return
        try:
            self._check_reducer_finalized()
        except RuntimeError as error:
            raise ProcessError(
                f"{what}: a parameter took no part in the loss, so that gradients that share a "
                "bucket with its own were not added: network.detect_anomalous_params(loss, "
                "*batch) names it; freeze it, or give "
                f"in_backward={{'find_unused_parameters': True}}; where several optimizers train "
                f"parts in turn, in_backward={{'parts': True}}"
            ) from error

    def leave(self) -> None:
        """Remove the hooks of the parameters."""
        self._remove_autograd_hooks()
        self.__dict__.clear()


def _paths(module: torch.nn.Module, parts: Any) -> Iterator[str]:
    """Yield the paths of the parts to be wrapped; the path of the whole network is empty."""
    if parts is False:
        yield ""
        return
    if parts is True:
        for name, _ in module.named_children():
            yield name
        return
    if isinstance(parts, str | Mapping) or not isinstance(parts, Sequence):
        raise ArgumentError(
            f"in_backward: parts is True, or a tuple with the paths of blocks, not {parts!r}"
        )
    known = [path for path, _ in module.named_modules() if path]
    for path in parts:
        if path not in known:
            raise UnknownName(
                f"in_backward: there is no part {path!r}. {suggestion(path, known)}"
            )
    yield from parts
