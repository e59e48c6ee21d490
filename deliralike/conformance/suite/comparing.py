"""What checks compare with, and the arrays that they compare."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.kinds import Function, Named, Shape
from deliralike.errors import DeliralikeError
from deliralike.network.base import Network, build

# Limits of relative differences; right backends agree to 1e-14 in float64.
LIMITS = {"float64": 1e-10, "float32": 1e-4}
# The same for gradients, where the answer comes from finite differences.
BY_DIFFERENCES = {"float64": 1e-7, "float32": 1e-3}


class Disagreement(DeliralikeError, AssertionError):
    """A backend does something else than it should."""


def dtype_of(backend: Backend) -> str:
    """The type that a backend is checked in: the widest that it declares."""
    return "float64" if "float64" in backend.dtypes else "float32"


def values(
    *shape: int, seed: int = 0, low: float | None = None, gap: float = 0.0
) -> np.ndarray:
    """Random numbers in float64.

    Args:
        shape: Their shape.
        seed: Other numbers for other seeds.
        low: Uniform from here to ``low + 2``; normal when None.
        gap: No number is nearer to zero than this.
    """
    rng = np.random.default_rng([seed, *shape])
    if low is None:
        drawn = rng.standard_normal(shape)
    else:
        drawn = rng.uniform(low, low + 2.0, shape)
    return drawn + np.sign(drawn) * gap


def distinct(*shape: int) -> np.ndarray:
    """Numbers in random order that are all at least 0.1 apart, so that no maximum is close."""
    order = np.random.default_rng(shape).permutation(int(np.prod(shape)))
    return (order.reshape(shape) - order.size / 2) * 0.1 + 0.03


def aligned(value: np.ndarray) -> np.ndarray:
    """A copy whose address frameworks like: some share such memory where they promise a copy."""
    room = np.empty(value.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def native(backend: Backend, value: np.ndarray) -> Any:
    """A host array as the backend's; floating ones in the type that it is checked in."""
    return backend.array(
        value, dtype=dtype_of(backend) if value.dtype.kind == "f" else None
    )


def output(backend: Backend, function: Function, *inputs: np.ndarray) -> np.ndarray:
    """What a network or function of the backend's arrays gives for host arrays, as a host array."""
    return backend.numpy(function(*(native(backend, x) for x in inputs)))


def type_of(backend: Backend, array: Any) -> str:
    """The type of an array of the backend, by NumPy's name."""
    return str(backend.numpy(array).dtype)


def build_network(
    backend: Backend,
    network: type[Network] | str,
    *args: Any,
    seed: int = 0,
    **kwargs: Any,
) -> Any:
    """Build a network written once, or a layer of `nn` by name, in the type it is checked in."""
    if isinstance(network, str):
        bound = getattr(backend.nn, network)
    else:
        bound = network.on(backend)
    if network in backend.lacks:
        bound()  # an error that says so
    return build(bound, *args, seed=seed, dtype=dtype_of(backend), **kwargs)


def agree(what: str, got: Any, wanted: Any, limit: float | None = None) -> None:
    """An error where two arrays differ in shape, kind of type or values.

    Args:
        what: How the error names the array.
        got: A NumPy array or a number; None where there is none.
        wanted: What it should be.
        limit: Of the relative difference (L2); what the array's type allows when None. Whole
            numbers must be equal.

    Raises:
        Disagreement: Names the first place that differs.
    """
    if got is None or wanted is None:
        if got is not wanted:
            raise Disagreement(f"{what}: got {_brief(got)}, wanted {_brief(wanted)}")
        return
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape:
        raise Disagreement(f"{what}: got shape {got.shape}, wanted {wanted.shape}")
    if (got.dtype.kind == "f") != (wanted.dtype.kind == "f"):
        raise Disagreement(
            f"{what}: got an array of {got.dtype}, wanted one of {wanted.dtype}"
        )
    limit = LIMITS.get(str(got.dtype), 0.0) if limit is None else limit
    if np.array_equal(got, wanted, equal_nan=got.dtype.kind == "f"):
        return
    difference = relative_difference(wanted, got)
    if difference > limit or got.dtype.kind != "f":
        place = _first_place(got, wanted, limit)
        raise Disagreement(
            f"{what}: at {place} got {got[place]!r}, wanted {wanted[place]!r}; as a whole they are "
            f"{difference:.1e} apart (limit {limit:g})"
        )


def agree_all(what: str, got: Named, wanted: Named, limit: float | None = None) -> None:
    """An error where an array of `wanted` differs from the one of that name in `got`.

    Raises:
        Disagreement: Names the array and its first place that differs.
    """
    for name, value in wanted.items():
        agree(f"{name} {what}", got.get(name), value, limit)


def equal(what: str, got: Any, wanted: Any) -> None:
    """An error where two plain values differ.

    Raises:
        Disagreement: Says what came and what was wanted.
    """
    if got != wanted:
        raise Disagreement(f"{what}: got {got!r}, wanted {wanted!r}")


def true(what: str, holds: Any) -> None:
    """An error where something that must hold does not.

    Raises:
        Disagreement: Says what should hold.
    """
    if not holds:
        raise Disagreement(f"this does not hold: {what}")


def equal_all(what: str, got: Named, wanted: Named) -> None:
    """An error where two tables of plain values differ in their names, their order or a value.

    Raises:
        Disagreement: Names the first that differs.
    """
    equal(f"names: {what}", list(got), list(wanted))
    for name, value in wanted.items():
        equal(f"{name}: {what}", got[name], value)


@contextmanager
def refused(what: str, wanted: type[Exception]) -> Any:
    """An error unless the block raises one of this class.

    Raises:
        Disagreement: Nothing was raised, or something else.
    """
    try:
        yield
    except wanted:
        return
    except Exception as error:
        came = f"{type(error).__name__} ({error})"
        raise Disagreement(
            f"{what}: raised {came}, wanted {wanted.__name__}"
        ) from error
    raise Disagreement(f"{what}: was accepted, wanted {wanted.__name__}")


def _first_place(got: np.ndarray, wanted: np.ndarray, limit: float) -> Shape:
    """Return the first place where two arrays differ by more than the limit.

    If there is none, it is the first place where they differ at all.
    """
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    near = np.isclose(got, wanted, rtol=0.0, atol=limit * size, equal_nan=True)
    far = np.argwhere(~near) if not near.all() else np.argwhere(got != wanted)
    return tuple(map(int, far[0]))


def _brief(value: Any) -> str:
    return "None" if value is None else f"an array of shape {np.shape(value)}"
