"""Arrays: to and from NumPy, devices, types, and the settings that decide their precision.

float64 is a switch of the whole process in JAX (``jax_enable_x64``). Nothing turns it at import;
asking for a network or an array of ``"float64"`` turns it on. Without it whole numbers are int32 on
the device.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jax.sharding import Mesh, PartitionSpec

from deliralike.backends.jax import unstable
from deliralike.backends.jax.compiled.compilation_cache import compile_once
from deliralike.context import context_value
from deliralike.errors import (
    CapabilityError,
    DeviceError,
    DtypeError,
    IndexRangeError,
    suggestion,
)
from deliralike.nn.start import Shape

DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "bool",
)


def enable_float64() -> None:
    """Turn on 64-bit types, for the whole process."""
    if not jax.config.jax_enable_x64:
        jax.config.update("jax_enable_x64", True)


def find_dtype(name: str) -> Any:
    """The type of a name; ``"int64"`` is int32 while 64-bit types are off."""
    if name not in DTYPES:
        raise DtypeError(
            f"backend 'jax' has no type {name!r}. {suggestion(name, DTYPES)}"
        )
    if name == "float64" and not jax.config.jax_enable_x64:
        raise DtypeError(
            "backend 'jax' computes in 'float64' only after a network or array was asked for with "
            "dtype='float64', or after jax.config.update('jax_enable_x64', True)"
        )
    return jax.dtypes.canonicalize_dtype(jnp.dtype(name))


def array(value: Any, dtype: str | None = None, device: Any = None) -> jax.Array:
    """An array that owns its storage."""
    if dtype == "float64":
        enable_float64()
    if isinstance(value, jax.Array):
        if dtype is not None:
            value = value.astype(find_dtype(dtype))
        if device is None or name_of_device(value) == device:
            return value
        return jax.device_put(value, find_device(device))
    value = np.asarray(value)
    if dtype in (None, "int64", "uint64"):
        value = narrow(value)
    if dtype is not None:
        value = value.astype(find_dtype(dtype), copy=False)
    return put(value, device)


def refuse_fork() -> None:
    """Raise an error in a process that was forked after JAX had computed.

    Such a process lacks JAX's threads and would hang.

    Raises:
        CapabilityError: Says how to start such a process.
    """
    first = _computing[0] if _computing else os.getpid()
    if first != os.getpid():
        raise CapabilityError(
            f"process {os.getpid()} was forked from process {first} after backend 'jax' had "
            "computed there: JAX's threads are not copied, and it would hang. Start it with "
            "multiprocessing.get_context('spawn'), or fork before anything is computed"
        )
    if not _computing:
        _computing.append(first)


# the process that computed first, and by this those that were forked from it
_computing: list[int] = []


def narrow(value: np.ndarray) -> np.ndarray:
    """Return a host array in the type that it has on a device.

    Without 64-bit types, integers are int32 there.

    Raises:
        IndexRangeError: One of them does not fit; JAX would take others in its place.
    """
    if value.dtype.itemsize <= 4:
        return value
    device_dtype = jax.dtypes.canonicalize_dtype(value.dtype)
    if device_dtype == value.dtype:
        return value
    narrowed = value.astype(device_dtype)
    if device_dtype.kind in "iu" and not (narrowed == value).all():
        [first, *_] = value[narrowed != value].ravel()
        raise IndexRangeError(
            f"the whole number {first} does not fit {device_dtype}, which backend 'jax' computes "
            "in while 64-bit types are off: turn them on with "
            "jax.config.update('jax_enable_x64', True), or give smaller numbers"
        )
    return narrowed


def put(value: np.ndarray, device: str | None = None) -> jax.Array:
    """Copy a host array to a device.

    On the default device the copy is not committed: it can follow other arrays to their device.

    ``jnp.array`` would compile a program for each new shape.
    """
    refuse_fork()
    if device is None or device == default_device():
        return jax.device_put(value.copy())
    return jax.device_put(value.copy(), find_device(device))


def put_like(value: np.ndarray, like: jax.Array) -> jax.Array:
    """Copy a host array to where `like` is, in its type.

    `like` may be sharded over several devices.
    """
    refuse_fork()
    value = value.astype(like.dtype)  # a copy
    if is_traced(like):  # built within `nnx.eval_shape` or `nnx.jit`
        return jax.numpy.asarray(value)
    return jax.device_put(value, like.sharding if like.committed else None)


def copied(value: jax.Array, name: str | None = None) -> jax.Array:
    """Return a copy, in another type if one is named.

    It goes by way of the host, as JAX would compile a program for each shape.
    """
    is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended)
    if is_key or is_traced(value) or value.weak_type:
        return deepcopy(value) if name is None else value.astype(find_dtype(name))
    dtype = value.dtype if name is None else find_dtype(name)
    host = np.array(value, dtype)
    return jax.device_put(host, value.sharding if value.committed else None)


def zeros(shape: Shape, like: jax.Array) -> jax.Array:
    """Return zeros with the type of `like`, placed as it is.

    ``jnp.zeros`` would compile a program for each new shape.
    """
    return put_like(np.zeros(shape, like.dtype), like)


def numpy(array: Any) -> np.ndarray:
    """Return a NumPy array that owns its storage.

    NumPy has neither bfloat16, which becomes float32, nor typed keys, which become their words.
    """
    is_jax = isinstance(array, jax.Array)
    if is_jax and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    copy = np.array(array)
    return copy.astype(np.float32) if copy.dtype == jnp.bfloat16 else copy


def numbers(values: Sequence[Any]) -> list[float]:
    """Return scalars as numbers, whose transfers from a GPU are begun together."""
    if jax.default_backend() != "cpu":
        for each in values:
            if isinstance(each, jax.Array):
                each.copy_to_host_async()
    return list(map(float, values))


def host_values(value: Any) -> np.ndarray | None:
    """Return the values as a NumPy array if they are on the host, else None.

    None stands for values that are traced, on a GPU, or in other processes.
    """
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, jax.Array) or is_traced(value):
        return None
    if not value.is_fully_addressable:
        return None
    if any(device.platform != "cpu" for device in value.devices()):
        return None
    return np.asarray(value)


@cache
def is_floating(dtype: np.dtype) -> bool:
    """Return whether a type is a floating one, of those that NumPy lacks as well."""
    return jnp.issubdtype(dtype, jnp.floating)


def is_traced(value: Any) -> bool:
    """Whether a value stands for an array while a program is traced."""
    return isinstance(value, jax.core.Tracer)


def split(
    array: jax.Array, sizes: Sequence[int], dim: int, devices: Sequence[Any]
) -> list[jax.Array]:
    """Split an array into pieces of these sizes, each on its device."""
    pieces = [array]
    if len(sizes) > 1:
        pieces = jax.lax.split(array, sizes, dim % array.ndim)
    return [move(piece, device) for piece, device in zip(pieces, devices, strict=False)]


def concatenate(values: Sequence[jax.Array], dim: int, device: Any = None) -> jax.Array:
    """Concatenate arrays; one array alone is returned as it is."""
    values = _on_one_device(values, device)
    if len(values) == 1:
        return values[0]
    dtypes = {value.dtype for value in values}
    if len(dtypes) > 1:
        return jnp.concatenate(values, dim)
    return jax.lax.concatenate(values, dim % values[0].ndim)


def stack(values: Sequence[jax.Array], device: Any = None) -> jax.Array:
    """Stack arrays along a new first axis."""
    return jnp.stack(_on_one_device(values, device))


def move(value: jax.Array, device: Any) -> jax.Array:
    """Move an array to a device.

    The array itself is returned where it is there already, and inside a traced program, which has
    its own device.
    """
    if is_traced(value):
        return value
    if not isinstance(device, jax.Device):
        device = find_device(device)
    if value.devices() == {device}:
        return value
    return jax.device_put(value, device)


def local_shard(value: jax.Array) -> jax.Array:
    """Return the part of an array on the first of this process's devices that have one."""
    return value.addressable_shards[0].data


def move_all(values: Sequence[Any], device: Any) -> list[Any]:
    """Return values as arrays on a device; those that are elsewhere are copied there together.

    All are committed to it, as JAX compiles anew for arrays that may be moved.
    """
    if not isinstance(device, jax.Device):
        device = find_device(device)
    there = {device}
    places = []
    for place, value in enumerate(values):
        is_array = isinstance(value, jax.Array)
        if not (is_array and value.committed and value.devices() == there):
            places.append(place)
    moved = list(values)
    if not places:
        return moved
    copies = jax.device_put([values[place] for place in places], device)
    for place, copy in zip(places, copies, strict=True):
        moved[place] = copy
    return moved


def _on_one_device(values: Sequence[jax.Array], device: Any) -> list[jax.Array]:
    """The arrays on a device, or on that of the first where they are on several."""
    if device is None:
        concrete = [value for value in values if not is_traced(value)]
        if not concrete:
            return list(values)
        devices = concrete[0].devices()
        if all(value.devices() == devices for value in concrete):
            return list(values)
        device = _first(devices)
    return [move(value, device) for value in values]


def _first(devices: Iterable[jax.Device]) -> jax.Device:
    return min(devices, key=lambda device: device.id)


def devices() -> list[str]:
    """Return the devices of this process, the default one first.

    ``"cpu"`` is the first CPU, then ``"cpu:1"`` and so on.
    """
    return [*map(name_of, _devices())]


def default_device() -> str:
    """The device that JAX uses when none is named."""
    chosen = jax.config.jax_default_device
    if isinstance(chosen, jax.Device):
        return name_of(chosen)
    return devices()[0]


def find_device(name: str) -> jax.Device:
    """The device of a name."""
    for device in _devices():
        if name_of(device) == name:
            return device
    raise DeviceError(
        f"backend 'jax' has no device {name!r} here. {suggestion(name, devices())}"
    )


def name_of_device(value: Any) -> str:
    """The name of the (first) device that holds an array."""
    if is_traced(value):
        return default_device()
    return name_of(_first(value.devices()))


def precision() -> dict[str, str]:
    """The settings that decide the precision of results."""
    products = jax.config.jax_default_matmul_precision
    is_exact = products in (None, "highest", "float32")
    has_tf32 = not is_exact and any(name.startswith("cuda") for name in devices())
    return {
        "float64": "on" if jax.config.jax_enable_x64 else "off until asked for",
        "float32 products": products or "highest (our functions ask for it)",
        "TF32": "on" if has_tf32 else "off",
    }


def _devices() -> list[jax.Device]:
    local = jax.local_devices()
    if local[0].platform == "cpu":
        return local
    return [*local, *jax.local_devices(backend="cpu")]


def name_of(device: jax.Device) -> str:
    """The name by which `find_device` finds a device."""
    if device.platform == "cpu":
        first = _first(jax.local_devices(backend="cpu"))
        return "cpu" if device.id == first.id else f"cpu:{device.id - first.id}"
    kind = device.platform
    if kind == "gpu":
        kind = str(device).partition(":")[0]
    return f"{kind}:{device.id}"


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function as ``jax.jit`` does.

    Within `compiling_quickly` the compilation is fast and the program slower, and none is compiled
    that has been; results with a NaN are computed again by a program compiled as usual. Within
    `op_by_op` the function itself is called, with JAX's arrays, as a program is.
    """
    if _op_by_op.get():
        return lambda *args: function(*jax.tree.map(_on_device, args))
    if not _quickly.get():
        return jax.jit(function, **options)
    if jax.default_backend() != "cpu":
        return compile_once(function, **options)
    quick = compile_once(function, compiler_options=unstable.quickly(), **options)
    # of several processes all have to run the same programs, and each sees its own results alone
    if "donate_argnums" in options or jax.process_count() > 1:
        return quick
    return _again_without_nan(
        quick, compile_once(function, compiler_options=unstable.as_usual(), **options)
    )


def _again_without_nan(
    quick: Callable[..., Any], usual: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a program that gives what another gives where its own results have a NaN.

    XLA, compiling quickly, may compute a number twice, and round it in two ways: the gradient of a
    maximum then divides by the count of elements that are the maximum, which is zero.
    """

    def run(*args: Any) -> Any:
        results = quick(*args)
        if any(map(_has_nan, jax.tree.leaves(results))):
            return usual(*args)
        return results

    return run


def _has_nan(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array) or is_traced(leaf):
        return False
    return jnp.issubdtype(leaf.dtype, jnp.inexact) and bool(np.isnan(leaf).any())


def _on_device(leaf: Any) -> Any:
    return put(narrow(leaf)) if isinstance(leaf, np.ndarray) else leaf


def draw_on_host(
    draw: Callable[..., np.ndarray],
    shape: Shape,
    dtype: np.dtype,
    *numbers: Any,
) -> jax.Array:
    """Return an array that the host draws from numbers while a program runs.

    Where there are several processes, each draws them.
    """

    def call_host(*numbers: Any) -> jax.Array:
        result = jax.ShapeDtypeStruct(shape, dtype)
        return jax.pure_callback(draw, result, *numbers, vmap_method="sequential")

    mesh, everywhere = _drawing.get(), PartitionSpec()
    if mesh is None:
        return call_host(*numbers)
    on_each_device = jax.shard_map(
        call_host, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False
    )
    return on_each_device(*map(jnp.asarray, numbers))


def draw_on_each_device(mesh: Mesh) -> AbstractContextManager[Any]:
    """Return a context in which programs over a mesh draw on the host of each device.

    Outside of it the first device draws for all.
    """
    return context_value(_drawing, mesh)


def cache_programs(folder: str | Path) -> None:
    """Keep compiled programs in a folder by JAX's own cache, small ones too."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # it has looked for a folder at the first compilation


def compiling_quickly() -> AbstractContextManager[Any]:
    """Return a context for programs that run a few times only: these compile twice as fast."""
    return context_value(_quickly, True)


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Return a context with 64-bit types; afterwards they are on or off as they were before."""
    before = jax.config.jax_enable_x64
    try:
        with jax.enable_x64(True):
            yield
    finally:
        if (
            jax.config.jax_enable_x64 != before
        ):  # code within has set it for the whole process
            jax.config.update("jax_enable_x64", before)


def op_by_op() -> AbstractContextManager[Any]:
    """Return a context in which operations are compiled, once for all, and no whole programs."""
    return context_value(_op_by_op, True)


def is_op_by_op() -> bool:
    """Return whether no whole programs are to be compiled here; see `op_by_op`."""
    return _op_by_op.get()


def is_quick() -> bool:
    """Return whether programs are compiled as those that run once; see `compiling_quickly`."""
    return _quickly.get()


def scan_context() -> AbstractContextManager[Any]:
    """Return a context for `jax.lax.scan`.

    Within `op_by_op` the scan is a loop in Python, since a scan is a program of its own.
    """
    if _op_by_op.get():
        return jax.disable_jit()
    return nullcontext()


_quickly: ContextVar[bool] = ContextVar(
    "deliralike_jax_compiling_quickly", default=False
)
_drawing: ContextVar[Mesh | None] = ContextVar("deliralike_jax_drawing", default=None)
_op_by_op: ContextVar[bool] = ContextVar("deliralike_jax_op_by_op", default=False)
