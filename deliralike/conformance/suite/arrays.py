"""Checks of arrays: to and from NumPy, types, own storage, and what scatter and gather need."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    aligned,
    build_network,
    dtype_of,
    equal,
    native,
    output,
    refused,
    true,
    type_of,
    values,
)
from deliralike.conformance.suite.layouts import LAYOUTS
from deliralike.conformance.suite.nets import Moved
from deliralike.errors import DeviceError, DtypeError

# values that float32 has as well
_X = values(3, 4, 2).astype(np.float32).astype(np.float64)
_Y = values(3, 4, 2, seed=1)
_LABELS = np.arange(6).reshape(2, 3)


@check("arrays", "L0")
def there_and_back(backend: Backend) -> None:
    """An array comes back with the same values, shape and type."""
    floating = [name for name in backend.dtypes if name.startswith("float")]
    for dtype in ("int64", "int32", "uint8", "bool", *floating):
        before = (_X * 3.0).astype(dtype)
        array = backend.array(before, dtype=dtype)
        true(f"is_array holds for an array of {dtype}", backend.is_array(array))
        equal(
            f"the type of an array of {dtype} that came back",
            type_of(backend, array),
            dtype,
        )
        agree(f"an array of {dtype} that came back", backend.numpy(array), before, 0.0)
    for before in (np.ones(()), np.ones((0, 3)), np.ones((1, 1, 2, 1)), _X.T):
        after = backend.numpy(native(backend, before))
        agree(f"an array of shape {before.shape}", after, before, 0.0)
    for other in (1.0, [1.0], None, "text"):
        true(f"is_array does not hold for {other!r}", not backend.is_array(other))


@check("arrays", "L0")
def types_are_kept_and_converted(backend: Backend) -> None:
    """Without `dtype` an array keeps its own type; with it, native arrays are converted as well."""
    narrow = backend.array(_X.astype(np.float32))
    equal("the type of an array from float32", type_of(backend, narrow), "float32")
    for name in ("float32", dtype_of(backend)):
        for array in (native(backend, _X), narrow):
            again = backend.array(array, dtype=name)
            equal(
                "the type of a native array that was converted",
                type_of(backend, again),
                name,
            )


@check("arrays", "L0")
def storage_of_its_own(backend: Backend) -> None:
    """Neither way shares memory with the caller's array."""
    given = aligned(_X.astype(dtype_of(backend)))
    array = native(backend, given)
    given[:] = 0.0
    agree(
        "an array after the one that it was made of has changed",
        backend.numpy(array),
        _X,
    )
    taken = backend.numpy(array)
    true("the array that numpy() gives may be written to", taken.flags.writeable)
    taken[:] = 0.0
    agree(
        "an array after the one that numpy() gave has changed", backend.numpy(array), _X
    )


@check("arrays", "L0")
def any_layout_of_the_host(backend: Backend) -> None:
    """Arrays of the host may lie in any way: alone, in a batch, as inputs and in a state."""
    network = build_network(backend, Moved)
    for layout in LAYOUTS:
        given = layout.of(_X)
        agree(f"an array, {layout.name}", backend.numpy(native(backend, given)), given)
        ready = backend.prepare([given, layout.of(_LABELS)], network)
        for found, wanted in zip(ready, (given, layout.of(_LABELS)), strict=True):
            agree(f"a batch, {layout.name}", backend.numpy(found), wanted)
        found = backend.gradients(_half_of_squares, network, given).inputs[0]
        agree(f"the gradient of an input, {layout.name}", found, given)
        weight = layout.of(values(3, 2))
        network.load_neutral_state({"weight": weight}, strict=False)
        agree(f"a parameter, {layout.name}", network.neutral_state()["weight"], weight)


def _half_of_squares(network: Any, x: Any) -> Any:
    return network.nn.sum(x * x) * 0.5


@check("arrays", "L0")
def split_concatenate_and_stack(backend: Backend) -> None:
    """Pieces of any sizes, and how they become one again."""
    array, device = native(backend, _X), backend.devices()[0]
    for dim, sizes in ((0, (1, 2)), (1, (2, 1, 1)), (-1, (1, 1))):
        devices = (device,) * len(sizes)
        wanted = np.split(_X, np.cumsum(sizes)[:-1], dim)
        columns = [
            backend.split(array, sizes, dim, devices),
            backend.split(array * 2.0, sizes, dim, devices),
        ]
        for pieces, times in zip(columns, (1.0, 2.0), strict=True):
            for piece, part in zip(pieces, wanted, strict=True):
                what = f"a piece of {sizes} along axis {dim}"
                agree(what, backend.numpy(piece), times * part, 0.0)
            for place in (None, device):
                whole = backend.numpy(backend.concatenate(pieces, dim, place))
                agree(f"pieces put together along axis {dim}", whole, times * _X, 0.0)
        whole = backend.numpy(backend.concatenate_all(columns, dim)[1])
        agree("the second of several arrays put together", whole, 2.0 * _X, 0.0)
    (whole,) = backend.split(native(backend, np.array(2.0)), (1,), 0, (device,))
    agree("an array without axes, split into one", backend.numpy(whole), 2.0)
    stack = backend.stack([array, array * 2.0])
    agree("a stack", backend.numpy(stack), np.stack([_X, _X * 2.0]), 0.0)


@check("arrays", "L1")
def sums_of_gradients(backend: Backend) -> None:
    """Check what accumulation and averaging are built on."""
    device = backend.devices()[0]
    # each time anew, as a backend may add in place
    for what, call, wanted in (
        ("add(None, x)", lambda x, y: backend.add(None, x, device), _X),
        ("add(x, y)", lambda x, y: backend.add(x, y, device), _X + _Y),
        (
            "weighted([y], 0.5, [x])",
            lambda x, y: backend.weighted([y], 0.5, [x])[0],
            _X + 0.5 * _Y,
        ),
        ("weighted([x], 0.25)", lambda x, y: backend.weighted([x], 0.25)[0], 0.25 * _X),
        (
            "blended",
            lambda x, y: backend.blended([x], [y], 0.1)[0],
            0.9 * _X + 0.1 * _Y,
        ),
        ("copied(x)", lambda x, y: backend.copied(x), _X),
        (
            "clipped(x, 0.5)",
            lambda x, y: backend.clipped(x, 0.5),
            np.clip(_X, -0.5, 0.5),
        ),
    ):
        agree(what, output(backend, call, _X, _Y), wanted)
    array, bad = native(backend, _X), native(backend, np.array([1.0, np.inf]))
    found = backend.all_finite([array, array]), backend.all_finite([array, bad])
    equal(
        "all_finite without and with an infinity",
        tuple(map(bool, found)),
        (True, False),
    )


@check("arrays", "L0")
def what_is_there_is_named(backend: Backend) -> None:
    """Name, version, devices, precision and types; what is not there is refused."""
    for text in (
        backend.name,
        backend.version(),
        *sum(backend.precision().items(), ()),
    ):
        true(
            f"name, version() and what precision() gives are texts, not {text!r}",
            text == str(text),
        )
    true("name and version() are not empty", backend.name and backend.version())
    equal("the default device", backend.check_device(None), backend.devices()[0])
    for name in backend.dtypes:
        true(f"{name} is a floating type", "float" in name)
    true("float32 is declared", "float32" in backend.dtypes)
    for name in backend.lacks:
        true(f"{name} in lacks is a function or layer", hasattr(backend.nn, name))
    with refused("a type that is not declared", DtypeError):
        backend.check_dtype("float8")
    with refused("a device that is not there", DeviceError):
        backend.check_device("nowhere:7")


@check("arrays", "L0")
def batches_are_prepared(backend: Backend) -> None:
    """Floating arrays of a batch take the network's type; others keep theirs, and nests their form."""
    batch = {"x": _X.astype(np.float32), "labels": [np.arange(3), "name"]}
    ready = backend.prepare(batch, build_network(backend, Moved))
    labels, name = ready["labels"]
    equal("the form of a batch", (list(ready), name), (["x", "labels"], "name"))
    equal(
        "the type of a floating array", type_of(backend, ready["x"]), dtype_of(backend)
    )
    agree("labels", backend.numpy(labels), np.arange(3))
    equal("a scalar", backend.number(native(backend, np.array(1.5))), 1.5)
    found = backend.to_numpy([native(backend, _X), None])
    equal(
        "to_numpy of a nest", [type(leaf) for leaf in found], [np.ndarray, type(None)]
    )
