"""Checks of arrays: to and from NumPy, types, own storage, and what scatter and gather need."""

from __future__ import annotations

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    Anchor,
    agree,
    dtype_of,
    equal,
    made,
    native,
    refused,
    true,
    values,
)
from deliralike.errors import DeviceError, DtypeError

_X = (
    values(3, 4, 2).astype(np.float32).astype(np.float64)
)  # so that nothing is rounded in float32 either


@check("arrays", "L0")
def there_and_back(backend: Backend) -> None:
    """An array comes back with the same values, shape and type."""
    for dtype in (
        "int64",
        "int32",
        "uint8",
        "bool",
        *(name for name in backend.dtypes if name.startswith("float")),
    ):
        before = (_X * 3.0).astype(dtype)
        array = backend.array(before, dtype=dtype)
        true(f"is_array holds for an array of {dtype}", backend.is_array(array))
        back = backend.numpy(array)
        equal(f"the type of an array of {dtype} that came back", str(back.dtype), dtype)
        agree(f"an array of {dtype} that came back", back, before, 0.0)
    for shape in ((), (0, 3), (1, 1, 2, 1)):
        agree(
            f"an array of shape {shape}",
            backend.numpy(native(backend, np.ones(shape))),
            np.ones(shape),
            0.0,
        )
    for other in (1.0, [1.0], None, "text"):
        true(f"is_array does not hold for a {type(other).__name__}", not backend.is_array(other))


@check("arrays", "L0")
def types_are_kept_and_converted(backend: Backend) -> None:
    """Without `dtype` an array keeps its own type; with it, native arrays are converted as well."""
    equal(
        "the type of an array from float32",
        str(backend.numpy(backend.array(np.ones(2, np.float32))).dtype),
        "float32",
    )
    for name in ("float32", dtype_of(backend)):
        again = backend.array(native(backend, _X), dtype=name)
        equal(
            f"the type of a native array converted to {name}", str(backend.numpy(again).dtype), name
        )
    agree(
        "numbers from a list",
        backend.numpy(native(backend, np.asarray([[1, 2], [3, 4]]))),
        np.array([[1, 2], [3, 4]]),
    )


@check("arrays", "L0")
def storage_of_its_own(backend: Backend) -> None:
    """Neither way shares memory with the caller's array."""
    given = _X.copy()
    array = native(backend, given)
    given[:] = 0.0
    agree(
        "a native array after the array that it was made of has changed", backend.numpy(array), _X
    )
    taken = backend.numpy(array)
    true("the array that numpy() gives may be written to", taken.flags.writeable)
    taken[:] = 0.0
    agree("a native array after the array that numpy() gave has changed", backend.numpy(array), _X)
    turned = backend.array(_X.T, dtype=dtype_of(backend))
    agree("an array made of a transposed one", backend.numpy(turned), _X.T)


@check("arrays", "L0")
def split_concatenate_and_stack(backend: Backend) -> None:
    """Pieces of any sizes, and how they become one again."""
    array, device = native(backend, _X), backend.devices()[0]
    for dim, sizes in ((0, (1, 2)), (1, (2, 1, 1)), (-1, (1, 1))):
        pieces = backend.split(array, sizes, dim, (device,) * len(sizes))
        cuts = np.cumsum(sizes)[:-1]
        for piece, wanted in zip(pieces, np.split(_X, cuts, dim), strict=True):
            agree(f"a piece of {sizes} along axis {dim}", backend.numpy(piece), wanted, 0.0)
        agree(
            f"pieces put together along axis {dim}",
            backend.numpy(backend.concatenate(pieces, dim)),
            _X,
            0.0,
        )
        agree(
            "pieces put together on a device",
            backend.numpy(backend.concatenate(pieces, dim, device)),
            _X,
            0.0,
        )
    whole = backend.split(native(backend, np.float64(2.0) * np.ones(())), (1,), 0, (device,))
    agree("an array without axes, split into one", backend.numpy(whole[0]), np.array(2.0))
    agree(
        "a stack", backend.numpy(backend.stack([array, array * 2.0])), np.stack([_X, _X * 2.0]), 0.0
    )
    agree(
        "a stack of scalars",
        backend.numpy(backend.stack([array[0, 0, 0], array[1, 0, 0]])),
        _X[:2, 0, 0],
        0.0,
    )


@check("arrays", "L1")
def sums_of_gradients(backend: Backend) -> None:
    """Check `add`, `weighted`, `blended`, `all_finite` and `copied`.

    Accumulation and averaging are built on these.
    """
    device, y = backend.devices()[0], values(3, 4, 2, seed=1)
    x, twice = native(backend, _X), native(backend, 2.0 * _X)
    agree("add(None, x)", backend.numpy(backend.add(None, native(backend, _X), device)), _X)
    agree(
        "add(x, y)",
        backend.numpy(backend.add(native(backend, _X), native(backend, y), device)),
        _X + y,
    )
    agree("weighted([x], 0.25)", backend.numpy(backend.weighted([x], 0.25)[0]), 0.25 * _X)
    total = backend.weighted([native(backend, y)], 0.5, [native(backend, _X)])[0]
    agree("weighted([y], 0.5, [x])", backend.numpy(total), _X + 0.5 * y)
    agree(
        "blended([x], [y], 0.1)",
        backend.numpy(backend.blended([native(backend, _X)], [native(backend, y)], 0.1)[0]),
        _X + 0.1 * (y - _X),
    )
    true("finite arrays are all finite", backend.all_finite([x, twice]))
    for bad in (np.nan, np.inf):
        true(
            f"arrays with {bad} are not",
            not backend.all_finite([x, native(backend, np.array([1.0, bad]))]),
        )
    agree("a copy", backend.numpy(backend.copied(x)), _X, 0.0)


@check("arrays", "L0")
def what_is_there_is_named(backend: Backend) -> None:
    """Name, version, devices, precision and types; what is not there is refused."""
    for what, text in (("name", backend.name), ("version()", backend.version())):
        true(f"{what} is a text", isinstance(text, str) and text)
    true("there is a device", backend.devices())
    equal("the default device", backend.check_device(None), backend.devices()[0])
    true(
        "precision() gives texts by name",
        all(isinstance(x, str) for pair in backend.precision().items() for x in pair),
    )
    equal(
        "the types that are no floating types",
        [name for name in backend.dtypes if "float" not in name],
        [],
    )
    true("float32 is declared", "float32" in backend.dtypes)
    unknown = [name for name in backend.lacks if not hasattr(backend.nn, name)]
    equal("names in lacks that no function or layer has", unknown, [])
    with refused("a type that is not declared", DtypeError):
        backend.check_dtype("float8")
    with refused("a device that is not there", DeviceError):
        backend.check_device("nowhere:7")


@check("arrays", "L0")
def batches_are_prepared(backend: Backend) -> None:
    """Floating arrays of a batch take the network's type; others keep theirs, and nests their form."""
    network = made(backend, Anchor)
    batch = {"x": _X.astype(np.float32), "labels": [np.arange(3), "name"]}
    ready = backend.prepare(batch, network)
    equal("the form of a batch", (list(ready), ready["labels"][1]), (["x", "labels"], "name"))
    equal("the type of a floating array", str(backend.numpy(ready["x"]).dtype), dtype_of(backend))
    equal("the kind of type of labels", backend.numpy(ready["labels"][0]).dtype.kind, "i")
    equal("a scalar", backend.number(native(backend, np.array(1.5))), 1.5)
