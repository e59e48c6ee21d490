"""A network of JAX that is sharded over processes by rules.

Each process holds a part of the parameters, gradients and optimizer states.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import jax
import numpy as np

from deliralike.backends.jax.arrays import whole
from deliralike.backends.jax.compiled.program import Members
from deliralike.backends.jax.distributed.process_group import AXIS, JaxProcessGroup
from deliralike.backends.jax.distributed.spmd import JaxSpmd, TogetherJaxNetwork
from deliralike.backends.jax.network import JaxSlot
from deliralike.errors import CapabilityError, SettingError, UnknownName, suggestion
from deliralike.network.base import AbstractNetwork
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.network import ReplicaSettings

Rules = Mapping[str, Sequence[str | None] | None]


class _Gathered:
    """A whole network, with the variables and values that it was gathered from.

    It holds nothing that nnx should see.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self.network: Any = None
        self._members: Members | None = None
        self._values: list[Any] = []

    def of(self, members: Members) -> Any:
        """Return the network of these variables.

        All processes make this call where a variable has changed since the last one.
        """
        parameters, frozen, others = members.values()
        values = [*parameters.values(), *frozen.values(), *others]
        same = (old is new for old, new in zip(self._values, values, strict=False))
        if self.network is None or self._members is not members or not all(same):
            whole_parameters = {name: whole(value) for name, value in parameters.items()}
            whole_frozen = {name: whole(value) for name, value in frozen.items()}
            self.network = members.rebuilt(whole_parameters, whole_frozen, others)[0].root
            self._members, self._values = members, values
        return self.network

    def drop(self) -> None:
        """Hold nothing any more."""
        self.network, self._members, self._values = None, None, []


class JaxShards(JaxSpmd):
    """How a network of JAX computes of which each process holds a part."""

    @property
    def state_is_collective(self) -> bool:
        """True: every process has a part of the state."""
        return True


class ShardedJaxNetwork(TogetherJaxNetwork):
    """A network of JAX that is spread over processes; see `spread_out`.

    Buffers, and parameters that no rule spreads, are whole in each process. Reading or loading
    weights, and switching to evaluation, is done by all processes together: in evaluation each has
    the whole network until it trains again.
    """

    _parallelism = JaxShards
    _gathered: _Gathered

    @classmethod
    def spread_out(
        cls,
        network: AbstractNetwork,
        processes: ProcessGroup,
        *,
        rules: Rules | None = None,
        dim: int = 0,
        takes_whole: bool = False,
        **settings: Any,
    ) -> Self:
        """A network in these processes, of which each holds a part.

        Args:
            network: On this process's device.
            processes: Those of JAX's runtime.
            rules: For patterns of neutral names, of which the first that matches decides, what each
                axis of the parameter, in PyTorch's layout, is spread over: ``{"fc*.weight":
                ("processes", None), "*": None}``. None for a parameter that each process keeps
                whole. One that no pattern matches is spread along the largest axis that the number
                of processes divides; where it divides none, it is kept whole.
            dim, takes_whole, settings: As for `deliralike.DistributedDataParallel`.

        Raises:
            CapabilityError: The processes are connected by another engine.
            SettingError: A rule does not fit a parameter.
            UnknownName: A pattern matches no parameter.
        """
        if not isinstance(processes, JaxProcessGroup):
            raise CapabilityError(
                f"{processes}: backend 'jax' spreads a network over processes of JAX's own runtime "
                f"alone: deliralike.join('jax')"
            )
        chosen = ReplicaSettings.of(
            devices=(network.device_name,), dim=dim, buffers="sync", **settings
        )
        made = cls.joined(network, chosen, processes, takes_whole)
        object.__setattr__(made, "_gathered", _Gathered())
        made._spread(rules or {})
        return made

    def _spread(self, rules: Rules) -> None:
        slots = Members(self).slots
        for pattern in rules:
            if not fnmatch.filter(slots, pattern):
                raise UnknownName(
                    f"no parameter matches {pattern!r}. {suggestion(pattern, list(slots))}"
                )
        specs = {
            name: _native(slot, _spec(name, slot.shape, rules, self.processes.count))
            for name, slot in slots.items()
        }
        for name, spec in specs.items():
            self._spread_one(name, slots[name].native, spec)

    def _spread_one(self, name: str, variable: Any, spec: Sequence[str | None]) -> None:
        value, place = np.asarray(variable.get_value()), self.over.sharding(spec)
        self.over.spread[name] = (value.shape, place)
        variable.set_value(
            jax.make_array_from_callback(value.shape, place, lambda index: value[index])
        )

    # Evaluation
    # ----------------------------------------------------------------------------------------------

    @property
    def by_itself(self) -> Any:
        """The whole network, gathered from all processes unless this one has it already.

        Raises:
            CapabilityError: In a program of the user's, whose processes do not gather.
        """
        self.refuse_programs(())
        return self._gathered.of(self._mirrored().programs.members())

    def train(self, mode: bool = True) -> Any:
        """Set the mode of every block.

        All processes do so, since the network is gathered for evaluation.
        """
        super().train(mode)
        self._settle_mode()
        return self

    @contextmanager
    def training_mode(self, training: bool) -> Iterator[Any]:
        """Hold training or evaluation mode for a ``with`` block, in all processes."""
        with super().training_mode(training):
            self._settle_mode()
            yield self
        self._settle_mode()

    def _settle_mode(self) -> None:
        """Gather the network at a point that all processes are sure to reach.

        In evaluation each process may have other batches.
        """
        if self.training:
            self._gathered.drop()
        else:
            self._gathered.of(self._mirrored().programs.members())


def _spec(name: str, shape: tuple[int, ...], rules: Rules, count: int) -> tuple[str | None, ...]:
    """What each axis of a parameter, in PyTorch's layout, is spread over."""
    pattern = next((pattern for pattern in rules if fnmatch.fnmatchcase(name, pattern)), None)
    if pattern is None:
        divided = [axis for axis, size in enumerate(shape) if size and size % count == 0]
        chosen = max(divided, key=lambda axis: shape[axis], default=None)
        return tuple(AXIS if axis == chosen else None for axis in range(len(shape)))
    rule = rules[pattern]
    spec = tuple(rule or ()) + (None,) * (len(shape) - len(rule or ()))
    uneven = [
        size for size, over in zip(shape, spec, strict=False) if over is not None and size % count
    ]
    if set(spec) - {AXIS, None} or spec.count(AXIS) > 1 or len(spec) > len(shape) or uneven:
        raise SettingError(
            f"the rule {pattern!r}: {rule!r} does not fit {name} of shape {shape}: wanted {AXIS!r} "
            f"for one axis, whose size {count} processes divide, and None for the others; or None "
            "for a parameter that each keeps whole"
        )
    return spec


def _native(slot: JaxSlot, spec: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """A spec of PyTorch's axes as one of flax's."""
    axes = slot.layout.axes
    return spec if axes is None else tuple(spec[axes.index(axis)] for axis in range(len(spec)))
