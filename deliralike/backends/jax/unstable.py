"""Every name of JAX and flax that is not public or may change: no other file uses one.

`jax.extend` and `jax.interpreters` are open to others, without a promise to stay. Where a version
of JAX lacks one that is imported here, the backend cannot be loaded, and ``deliralike backends``
names it; each function says what is lost without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from flax import nnx
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

__all__ = [
    "NNX_STATE",
    "ClosedJaxpr",
    "Jaxpr",
    "Literal",
    "Primitive",
    "ad",
    "as_usual",
    "batching",
    "checks_of_update",
    "coordinator",
    "dce_jaxpr",
    "drop_lowered_traces",
    "jaxpr_as_fun",
    "mlir",
    "older_emitters",
    "part_of",
    "quickly",
]

#: The attribute in which a module of flax keeps its bookkeeping; it is no setting.
NNX_STATE = "_pytree__state"


def older_emitters() -> dict[str, bool]:
    """Return XLA's option for its older code generator, which compiles in 0.6 of the time.

    JAX 0.11 has it no more, and stops at an option that it does not know.
    """
    if jax.__version_info__ >= (0, 11):
        return {}
    return {"xla_cpu_use_fusion_emitters": False}


def quickly() -> dict[str, Any]:
    """Return XLA's options to compile in a quarter of the time; the programs are slower.

    An unknown option stops every program of `backend.gradients` and ``compare``.
    """
    return {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        **older_emitters(),
    }


def as_usual() -> dict[str, Any]:
    """Return XLA's defaults, also in a process whose programs are all compiled quickly."""
    return {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
    }


def part_of(
    whole: Jaxpr,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    equations: Sequence[Any],
) -> Jaxpr:
    """Return some equations of a program as a program, whose variables have no names."""
    return Jaxpr(
        constvars=(),
        invars=list(inputs),
        outvars=list(outputs),
        eqns=list(equations),
        effects=whole.effects,
        debug_info=whole.debug_info.with_unknown_names(),
    )


def drop_lowered_traces() -> None:
    """Empty the cache of JAX in which a trace, once it is lowered, holds itself.

    JAX 0.12 keeps 2,048 of them, so that each call of `backend.gradients` would take memory.
    Where the cache is gone, or has another name, nothing happens.
    """
    if jax.__version_info__ < (0, 11):
        return
    from jax._src.interpreters import pxla  # noqa: PLC0415 - of these versions alone

    cache = getattr(pxla, "_dce_jaxpr", None)
    if cache is not None:
        cache.cache_clear()


def coordinator() -> Any:
    """Return the client of the store through which JAX's processes find one another.

    JAX's own `multihost_utils` goes this way, too. Without it there are no groups of processes.
    """
    from jax._src.distributed import global_state  # noqa: PLC0415 - groups of processes alone

    return global_state.client


def checks_of_update(variables: Iterable[nnx.Variable]) -> list[Callable[[], None]]:
    """Return functions that raise flax's error where a variable must not be set.

    It must not be within another trace. Without them it is set, and JAX raises an error later.
    """
    return [variable._check_can_update for variable in variables]
