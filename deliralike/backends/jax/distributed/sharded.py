"""A network of JAX that is sharded over processes by rules.

Each process holds a part of the parameters, gradients and optimizer states.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import jax
import numpy as np

from deliralike.backends.jax.arrays import whole
from deliralike.backends.jax.compiled.program import ModuleVariables
from deliralike.backends.jax.distributed.process_group import AXIS, JaxProcessGroup
from deliralike.backends.jax.distributed.spmd import JaxSpmdReplicas, SpmdJaxNetwork
from deliralike.backends.jax.network import JaxSlot
from deliralike.backends.jax.variables import array_of
from deliralike.errors import (
    CapabilityError,
    SettingError,
    matching,
)
from deliralike.network.base import AbstractNetwork
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.network import ReplicaSettings

Rules = Mapping[str, Sequence[str | None] | None]


class _GatheredNetwork:
    """A whole network, with the variables and values that it was gathered from.

    It holds nothing that nnx should see.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.network: Any = None
        self._variables: ModuleVariables | None = None
        self._values: list[Any] = []

    def of(self, variables: ModuleVariables) -> Any:
        """Return the network of these variables.

        All processes make this call where a variable has changed since the last one.
        """
        parameters, frozen, others = variables.values()
        values = [*parameters.values(), *frozen.values(), *others]
        is_same = self._variables is variables and all(
            map(operator.is_, self._values, values)
        )
        if self.network is None or not is_same:
            whole_parameters = {
                name: whole(value) for name, value in parameters.items()
            }
            whole_frozen = {name: whole(value) for name, value in frozen.items()}
            rebuilt = variables.rebuild(whole_parameters, whole_frozen, others)
            self.network = rebuilt.network.root
            self._variables, self._values = variables, values
        return self.network

    def drop(self) -> None:
        """Hold nothing any more."""
        self.network, self._variables, self._values = None, None, []


class JaxShardedReplicas(JaxSpmdReplicas):
    """The computations of a network of JAX of which each process holds a part."""

    @property
    def state_is_collective(self) -> bool:
        """True: every process has a part of the state."""
        return True


class ShardedJaxNetwork(SpmdJaxNetwork):
    """A network of JAX that is sharded over processes; see `shard`.

    Buffers, and parameters that no rule shards, are whole in each process. Reading or loading
    weights, and switching to evaluation, is done by all processes together: in evaluation each has
    the whole network until it trains again.
    """

    _parallelism = JaxShardedReplicas
    _gathered: _GatheredNetwork

    @classmethod
    def shard(
        cls,
        network: AbstractNetwork,
        processes: ProcessGroup,
        *,
        rules: Rules | None = None,
        dim: int = 0,
        **settings: Any,
    ) -> Self:
        """Shard a network over processes, of which each holds a part.

        Args:
            network: On this process's device.
            processes: Those of JAX's runtime.
            rules: For patterns of neutral names, of which the first that matches decides, what each
                axis of the parameter, in PyTorch's layout, is sharded over: ``{"fc*.weight":
                ("processes", None), "*": None}``. None for a parameter that each process keeps
                whole. One that no pattern matches is sharded along the largest axis that the number
                of processes divides; where it divides none, it is kept whole.
            dim, settings: As for `deliralike.DistributedDataParallel`.

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
        sharded = cls.joined(network, chosen, processes)
        object.__setattr__(sharded, "_gathered", _GatheredNetwork())
        sharded._shard(rules or {})
        return sharded

    def _shard(self, rules: Rules) -> None:
        slots = ModuleVariables(self).slots
        for pattern in rules:
            matching(pattern, slots, "no parameter")
        specs = {}
        for name, slot in slots.items():
            spec = _spec(name, slot.shape, rules, self.processes.count)
            specs[name] = _to_native(slot, spec)
        for name, spec in specs.items():
            self._shard_parameter(name, slots[name].native, spec)

    def _shard_parameter(
        self, name: str, variable: Any, spec: Sequence[str | None]
    ) -> None:
        value = np.asarray(array_of(variable))
        sharding = self.process_mesh.sharding(spec)
        self.process_mesh.sharded[name] = (value.shape, sharding)
        variable.set_value(
            jax.make_array_from_callback(
                value.shape, sharding, lambda index: value[index]
            )
        )

    # Evaluation
    # ----------------------------------------------------------------------------------------------

    @property
    def local_network(self) -> Any:
        """The whole network, gathered from all processes unless this one has it already.

        Raises:
            CapabilityError: In a program of the user's, whose processes do not gather.
        """
        self.refuse_programs(())
        return self._gathered.of(self._current_state().programs.variables())

    def train(self, mode: bool = True) -> Any:
        """Set the mode of every block.

        All processes do so, since the network is gathered for evaluation.
        """
        super().train(mode)
        self._gather_or_drop()
        return self

    @contextmanager
    def training_mode(self, training: bool) -> Iterator[Any]:
        """Hold training or evaluation mode for a ``with`` block, in all processes."""
        with super().training_mode(training):
            self._gather_or_drop()
            yield self
        self._gather_or_drop()

    def _gather_or_drop(self) -> None:
        """Gather the network for evaluation at a point that all processes are sure to reach.

        In evaluation each process may have other batches.
        """
        if self.training:
            self._gathered.drop()
        else:
            self._gathered.of(self._current_state().programs.variables())


def _spec(
    name: str, shape: tuple[int, ...], rules: Rules, count: int
) -> tuple[str | None, ...]:
    """Return what each axis of a parameter, in PyTorch's layout, is sharded over."""
    for pattern, rule in rules.items():
        if fnmatch.fnmatchcase(name, pattern):
            return _spec_by_rule(name, shape, pattern, rule, count)
    spec: list[str | None] = [None] * len(shape)
    divided = [axis for axis, size in enumerate(shape) if size and size % count == 0]
    if divided:
        spec[max(divided, key=lambda axis: shape[axis])] = AXIS
    return tuple(spec)


def _spec_by_rule(
    name: str,
    shape: tuple[int, ...],
    pattern: str,
    rule: Sequence[str | None] | None,
    count: int,
) -> tuple[str | None, ...]:
    axes = tuple(rule or ())
    spec = axes + (None,) * (len(shape) - len(axes))
    is_known = set(spec) <= {AXIS, None}
    sharded_sizes = [
        size for size, axis in zip(shape, spec, strict=False) if axis is not None
    ]
    is_uneven = any(size % count for size in sharded_sizes)
    if not is_known or spec.count(AXIS) > 1 or len(spec) > len(shape) or is_uneven:
        raise SettingError(
            f"the rule {pattern!r}: {rule!r} does not fit {name} of shape {shape}: wanted {AXIS!r} "
            f"for one axis, whose size {count} processes divide, and None for the others; or None "
            "for a parameter that each keeps whole"
        )
    return spec


def _to_native(slot: JaxSlot, spec: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """A spec of PyTorch's axes as one of flax's."""
    axes = slot.layout.axes
    if axes is None:
        return spec
    return tuple(spec[axes.index(axis)] for axis in range(len(spec)))
