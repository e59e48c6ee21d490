"""What checks compare with, and the arrays that they compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike.backends.base import Backend, Gradients
from deliralike.conformance.agreement import relative_difference
from deliralike.errors import DeliralikeError
from deliralike.network.base import Network, build
from deliralike.nn.start import ONES

LIMITS = {
    "float64": 1e-10,
    "float32": 1e-4,
}  # of relative differences; right backends agree to 1e-14 in float64
BY_DIFFERENCES = {
    "float64": 1e-7,
    "float32": 1e-3,
}  # of gradients, where the answer comes from finite differences
_STEP = 1e-3  # of finite differences, whose error is of the fourth order


class Disagreement(DeliralikeError, AssertionError):
    """A backend does something else than it should."""


class Anchor(Network):
    """A network with one parameter, for checks of functions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = self.nn.Parameter((2,), ONES)

    def forward(self, x: Any) -> Any:
        """Give back the input."""
        return x


def dtype_of(backend: Backend) -> str:
    """The type that a backend is checked in: the widest that it declares."""
    return "float64" if "float64" in backend.dtypes else "float32"


def values(*shape: int, seed: int = 0, low: float | None = None, gap: float = 0.0) -> np.ndarray:
    """Random numbers in float64.

    Args:
        shape: Their shape.
        seed: Other numbers for other seeds.
        low: Uniform from here to ``low + 2``; normal when None.
        gap: No number is nearer to zero than this.
    """
    rng = np.random.default_rng([seed, *shape])
    drawn = rng.standard_normal(shape) if low is None else rng.uniform(low, low + 2.0, shape)
    return drawn + np.sign(drawn) * gap


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers in random order that are all at least 0.1 apart, so that no maximum is close."""
    order = np.random.default_rng([seed, *shape]).permutation(int(np.prod(shape)))
    return (order.reshape(shape) - order.size / 2) * 0.1 + 0.03


def native(backend: Backend, value: np.ndarray) -> Any:
    """A host array as the backend's; floating ones in the type that it is checked in."""
    return backend.array(value, dtype=dtype_of(backend) if value.dtype.kind == "f" else None)


def made(
    backend: Backend, network: type[Network] | str, *args: Any, seed: int = 0, **kwargs: Any
) -> Any:
    """Build a network written once, or a layer of `nn` by name, in the type it is checked in."""
    bound = getattr(backend.nn, network) if isinstance(network, str) else network.on(backend)
    if network in backend.lacks:
        bound()  # an error that says so
    return build(bound, *args, seed=seed, dtype=dtype_of(backend), **kwargs)


def agree(what: str, got: Any, wanted: Any, limit: float | None = None) -> None:
    """An error where two arrays differ in shape, kind of type or values.

    Args:
        what: How the error names the array.
        got: A NumPy array; None where there is none.
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
        raise Disagreement(f"{what}: got an array of {got.dtype}, wanted one of {wanted.dtype}")
    limit = LIMITS.get(str(got.dtype), 0.0) if limit is None else limit
    if np.array_equal(got, wanted, equal_nan=got.dtype.kind == "f"):
        return
    if (difference := relative_difference(wanted, got)) > limit or got.dtype.kind != "f":
        place = _first_place(got, wanted, limit)
        raise Disagreement(
            f"{what}: at {place} got {got[place]!r}, wanted {wanted[place]!r}; as a whole they are "
            f"{difference:.1e} apart (limit {limit:g})"
        )


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


@contextmanager
def refused(what: str, *errors: type[Exception]) -> Any:
    """An error unless the block raises one of these.

    Raises:
        Disagreement: Nothing was raised, or something else.
    """
    wanted = " or ".join(error.__name__ for error in errors)
    try:
        yield
    except errors:
        return
    except Exception as error:
        raise Disagreement(
            f"{what}: raised {type(error).__name__} ({error}), wanted {wanted}"
        ) from error
    raise Disagreement(f"{what}: was accepted, wanted {wanted}")


def gradients(backend: Backend, function: Callable[..., Any], *inputs: np.ndarray) -> Gradients:
    """The gradients of a scalar function ``function(nn, *inputs)``."""
    network = made(backend, Anchor)
    return backend.gradients(lambda here, *at: function(here.nn, *at), network, *inputs)


def each(result: Any) -> tuple[Any, ...]:
    """What a function gave, as a tuple of arrays."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def against(nn: Any, result: Any, cotangents: Sequence[np.ndarray]) -> Any:
    """A scalar whose gradient with respect to the results are the cotangents."""
    products = [
        nn.sum(y * nn.constant(c, like=y)) for y, c in zip(each(result), cotangents, strict=True)
    ]
    return products[0] if len(products) == 1 else sum(products[1:], products[0])


def differences(
    function: Callable[..., float], inputs: Sequence[np.ndarray], which: int
) -> np.ndarray:
    """Return the gradient of a NumPy function with respect to one of its inputs.

    It is computed by finite differences of fourth order.
    """
    found = np.zeros(inputs[which].shape)
    for place in np.ndindex(found.shape):
        moved = [_moved(function, inputs, which, place, by) for by in (-2, -1, 1, 2)]
        found[place] = (moved[0] - 8.0 * moved[1] + 8.0 * moved[2] - moved[3]) / (12.0 * _STEP)
    return found


def _moved(
    function: Callable[..., float], inputs: Sequence[np.ndarray], which: int, place: Any, by: int
) -> float:
    changed = [np.array(x) for x in inputs]
    changed[which][place] += by * _STEP
    return function(*changed)


def _first_place(got: np.ndarray, wanted: np.ndarray, limit: float) -> tuple[int, ...]:
    """Return the first place where two arrays differ by more than the limit.

    If there is none, it is the place where they differ most.
    """
    first, second = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(first == second, 0.0, np.abs(first - second))
    apart = np.where(np.isnan(apart), np.inf, apart)
    sizes = np.abs(second[np.isfinite(second)])
    far = np.argwhere(apart > limit * max(sizes.max(initial=0.0), 1e-300))
    chosen: Iterable[Any] = far[0] if len(far) else np.unravel_index(apart.argmax(), apart.shape)
    return tuple(int(index) for index in chosen)


def _brief(value: Any) -> str:
    return "None" if value is None else f"an array of shape {np.shape(value)}"
