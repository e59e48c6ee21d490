"""The replicas of a network inside a traced program, one after the other, with their own values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import nnx

from deliralike import random
from deliralike.backends.jax.compiled.gradients import changed_values
from deliralike.backends.jax.compiled.program import (
    ModuleVariables,
    Named,
    Values,
    flatten_arguments,
    pack,
    replace_present,
    unpack,
)
from deliralike.backends.jax.replicas.placement import replica_function
from deliralike.parallel.batches.scatter import Shares, mean_by_samples
from deliralike.parallel.replicas.context import Replica, entered
from deliralike.parallel.replicas.run_in_threads import run_in_turn


class TracedReplicas:
    """The replicas of one network inside a program.

    Attributes:
        parameters, others: The values of each replica: of all its parameters by name, and of its
            buffers and random states in the order of ``variables.others``.
        sizes: The samples in each share of the latest run.
        active_count: How many replicas have run.
    """

    def __init__(
        self, variables: ModuleVariables, by_replica: Sequence[Values], buffers: str
    ) -> None:
        """Begin with the values of each replica.

        Args:
            buffers: The policy in `ReplicaSettings`.
        """
        self.variables, self.buffers = variables, buffers
        self.parameters = [
            {**trainable, **frozen} for trainable, frozen, _ in by_replica
        ]
        self.others = [list(others) for *_, others in by_replica]
        self._before = [list(others) for others in self.others]
        self.sizes: tuple[int, ...] = ()
        self.active_count = 0

    def compute(self, function: Callable[..., Any], batch: tuple) -> Any:
        """Return ``function(network, *batch)``, with the network around the root's values."""
        parameters, others = self.parameters[0], [*self.others[0]]
        rebuilt = self.variables.rebuild(parameters, parameters, others)
        vars(rebuilt.network)["_inside"] = self
        with self.variables.in_place(rebuilt, parameters, parameters, others):
            result = function(rebuilt.network, *batch)
        # what was set without running the replicas
        changed = changed_values(rebuilt.others, others)
        self.others[0] = replace_present(self.others[0], changed)
        return result

    def run(
        self,
        function: Callable[[Any, Any], Any],
        shares: Shares,
        contexts: Sequence[Replica],
    ) -> list[Any]:
        """Return ``function(replica, share)`` of every replica that has a share.

        Args:
            contexts: One for each of them.
        """
        self._synchronize()
        self.sizes = shares.sizes
        self.active_count = max(self.active_count, len(contexts))
        jobs = []
        for context, share in zip(contexts, shares.nests, strict=True):
            jobs.append(partial(self._run_replica, function, context, share))
        results = run_in_turn(jobs, contexts)
        for first in contexts[:1]:  # a process may have no share
            random.count_draws(first.stream)
        return results

    def changed_others(self) -> list[list[Any]]:
        """Return each replica's buffers and random states; None where nothing has changed."""
        changed: list[list[Any]] = []
        for values, before in zip(self.others, self._before, strict=True):
            pairs = zip(values, before, strict=True)
            changed.append([None if now is old else now for now, old in pairs])
        return changed

    def _run_replica(self, function: Callable, context: Replica, share: Any) -> Any:
        arguments = flatten_arguments((share,))
        position, variables = context.position, self.variables

        def compute(parameters: Named, others: list[Any], batch: list[Any]) -> tuple:
            rebuilt = variables.rebuild(parameters, parameters, others)
            in_place = variables.in_place(rebuilt, parameters, parameters, others)
            with entered(context), in_place:
                result = function(rebuilt.network.root, *arguments.unflatten(batch))
            variables.refuse_written(rebuilt, parameters, parameters)
            return result, changed_values(rebuilt.others, others)

        values = self.parameters[position], self.others[position], arguments.arrays
        result, changed = _run(compute, position, *values)
        self.others[position] = replace_present(self.others[position], changed)
        return result

    def _synchronize(self) -> None:
        """Apply the policy of `Replicas.synchronize_buffers` between two runs in one program."""
        if not self.sizes:
            return
        for place, variable in enumerate(self.variables.others):
            is_changed = self.others[0][place] is not self._before[0][place]
            if isinstance(variable, nnx.RngKey) or not is_changed:
                continue
            values = [others[place] for others in self.others[: len(self.sizes)]]
            value = values[0]
            if self.buffers == "mean" and is_floating(value):
                value = mean_by_samples(values, self.sizes)
            for others in self.others:
                others[place] = value


def is_floating(value: Any) -> bool:
    """Return whether a value is an array of floating numbers."""
    return hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.floating)


def _run(compute: Callable, position: int, *values: Any) -> tuple[Any, list[Any]]:
    """Return what a replica computes, from one program."""

    def packed(*values: Any) -> tuple:
        result, changed = compute(*values)
        return pack(result), changed

    result, changed = replica_function(packed, position)(*values)
    return unpack(result), changed
