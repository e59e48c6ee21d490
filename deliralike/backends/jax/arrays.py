"""Arrays: to and from NumPy, devices, types, and the settings that decide their precision.

float64 is a switch of the whole process in JAX (``jax_enable_x64``). Nothing turns it at import;
asking for a network or an array of ``"float64"`` turns it on. Without it whole numbers are int32 on
the device.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from deliralike.errors import CapabilityError, DeviceError, DtypeError, IndexRangeError, suggestion

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


def dtype(name: str) -> Any:
    """The type of a name; ``"int64"`` is int32 while 64-bit types are off."""
    if name not in DTYPES:
        raise DtypeError(f"backend 'jax' has no type {name!r}. {suggestion(name, DTYPES)}")
    if name == "float64" and not jax.config.jax_enable_x64:
        raise DtypeError(
            "backend 'jax' computes in 'float64' only after a network or array was asked for with "
            "dtype='float64', or after jax.config.update('jax_enable_x64', True)"
        )
    return jax.dtypes.canonicalize_dtype(jnp.dtype(name))


def array(value: Any, name: str | None = None, device: Any = None) -> jax.Array:
    """An array that owns its storage."""
    if name == "float64":
        enable_float64()
    if not isinstance(value, jax.Array):
        value = np.asarray(value)
        if name in (None, "int64", "uint64"):
            value = narrow(value)
        wanted = value.dtype if name is None else dtype(name)
        return put(value.astype(wanted, copy=False), device)
    value = value if name is None else value.astype(dtype(name))
    return (
        value
        if device is None or name_of_device(value) == device
        else jax.device_put(value, find_device(device))
    )


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


_computing: list[
    int
] = []  # the process that computed first, and by this those that were forked from it


def narrow(value: np.ndarray) -> np.ndarray:
    """Return a host array in the type that it has on a device.

    Without 64-bit types, integers are int32 there.

    Raises:
        IndexRangeError: One of them does not fit; JAX would take others in its place.
    """
    wanted = jax.dtypes.canonicalize_dtype(value.dtype)
    if wanted == value.dtype:
        return value
    if wanted.kind in "iu" and value.size:
        fits = np.iinfo(wanted)
        found = next(
            (each for each in (value.min(), value.max()) if not fits.min <= each <= fits.max), None
        )
        if found is not None:
            raise IndexRangeError(
                f"the whole number {found} does not fit {wanted}, which backend 'jax' computes in "
                "while 64-bit types are off: turn them on with "
                "jax.config.update('jax_enable_x64', True), or give smaller numbers"
            )
    return value.astype(wanted)


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

    `like` may be sharded over several devices or processes.
    """
    refuse_fork()
    value = value.astype(like.dtype)  # a copy
    if not like.is_fully_addressable:
        return jax.make_array_from_callback(value.shape, like.sharding, lambda index: value[index])
    return jax.device_put(value, like.sharding if like.committed else None)


def zeros_like(like: jax.Array) -> jax.Array:
    """Return zeros with the type and placement of `like`.

    ``jnp.zeros_like`` would compile a program for each new shape.
    """
    return put_like(np.zeros(like.shape, like.dtype), like)


def numpy(value: Any) -> np.ndarray:
    """A NumPy array that owns its storage; bfloat16, which NumPy lacks, becomes float32.

    Of an array that is spread over processes each gets the whole: all of them make this call.
    """
    value = np.array(whole(value) if isinstance(value, jax.Array) else value)
    return value.astype(np.float32) if value.dtype == jnp.bfloat16 else value


def host_values(value: Any) -> np.ndarray | None:
    """Return the values as a NumPy array if they are on the host, else None.

    None stands for values that are traced, on a GPU, or in other processes.
    """
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return None
    on_host = all(device.platform == "cpu" for device in value.devices())
    return np.asarray(value) if on_host and value.is_fully_addressable else None


def whole(value: jax.Array) -> jax.Array:
    """Return an array on one of this process's devices.

    An array that is sharded over processes is gathered from all of them.
    """
    if value.is_fully_addressable:
        return value
    if value.is_fully_replicated:
        return value.addressable_shards[0].data
    everywhere = NamedSharding(value.sharding.mesh, PartitionSpec())
    gathered = jax.jit(_same, out_shardings=everywhere)(value)
    return jax.block_until_ready(gathered).addressable_data(0)  # see ProcessMesh.compile


def _same(value: jax.Array) -> jax.Array:
    return value


def split(
    value: jax.Array, sizes: Sequence[int], dim: int, devices: Sequence[Any]
) -> list[jax.Array]:
    """Pieces of an array."""
    pieces = [value] if len(sizes) == 1 else jax.lax.split(value, sizes, dim % value.ndim)
    return [move(piece, device) for piece, device in zip(pieces, devices, strict=False)]


def concatenate(values: Sequence[jax.Array], dim: int, device: Any = None) -> jax.Array:
    """Arrays one after another; one array alone as it is."""
    values = _together(values, device)
    if len(values) == 1:
        return values[0]
    if any(value.dtype != values[0].dtype for value in values):
        return jnp.concatenate(values, dim)
    return jax.lax.concatenate(values, dim % values[0].ndim)


def stack(values: Sequence[jax.Array], device: Any = None) -> jax.Array:
    """Arrays along a new first axis."""
    return jnp.stack(_together(values, device))


def move(value: jax.Array, device: Any) -> jax.Array:
    """Move an array to a device.

    The array itself is returned where it is there already, and inside a traced program, which has
    its own device.
    """
    if isinstance(value, jax.core.Tracer):
        return value
    place = device if isinstance(device, jax.Device) else find_device(device)
    return value if value.devices() == {place} else jax.device_put(value, place)


def _together(values: Sequence[jax.Array], device: Any) -> list[jax.Array]:
    concrete = [value for value in values if not isinstance(value, jax.core.Tracer)]
    if device is None and (
        not concrete or all(value.devices() == concrete[0].devices() for value in concrete)
    ):
        return list(values)
    place = min(concrete[0].devices(), key=lambda found: found.id) if device is None else device
    return [move(value, place) for value in values]


def devices() -> list[str]:
    """Return the devices of this process, the default one first.

    ``"cpu"`` is the first CPU, then ``"cpu:1"`` and so on.
    """
    return [name_of(device) for device in _devices()]


def default_device() -> str:
    """The device that JAX uses when none is named."""
    chosen = jax.config.jax_default_device
    return name_of(chosen) if isinstance(chosen, jax.Device) else devices()[0]


def find_device(name: str) -> jax.Device:
    """The device of a name."""
    for device in _devices():
        if name_of(device) == name:
            return device
    raise DeviceError(f"backend 'jax' has no device {name!r} here. {suggestion(name, devices())}")


def name_of_device(value: Any) -> str:
    """The name of the (first) device that holds an array."""
    if isinstance(value, jax.core.Tracer):
        return default_device()
    held = value.devices() if value.is_fully_addressable else value.sharding.addressable_devices
    return name_of(min(held, key=lambda device: device.id))


def precision() -> dict[str, str]:
    """What decides the precision of results."""
    asked = jax.config.jax_default_matmul_precision
    exact = asked in (None, "highest", "float32")
    return {
        "float64": "on" if jax.config.jax_enable_x64 else "off until asked for",
        "float32 products": asked or "highest (our functions ask for it)",
        "TF32": "on" if not exact and any(name.startswith("cuda") for name in devices()) else "off",
    }


def _devices() -> list[jax.Device]:
    local = jax.local_devices()
    return local if local[0].platform == "cpu" else [*local, *jax.local_devices(backend="cpu")]


def name_of(device: jax.Device) -> str:
    """What `find_device` finds a device by."""
    if device.platform == "cpu":
        first = min(other.id for other in jax.local_devices(backend="cpu"))
        return "cpu" if device.id == first else f"cpu:{device.id - first}"
    kind = str(device).partition(":")[0] if device.platform == "gpu" else device.platform
    return f"{kind}:{device.id}"


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function as ``jax.jit`` does.

    Within `compiling_quickly` the compilation is fast and the program slower; within `op_by_op` the
    function itself is returned.
    """
    if _op_by_op.get():
        return function
    quickly = _quickly.get() and jax.default_backend() == "cpu"
    return jax.jit(function, **options, compiler_options=_QUICKLY if quickly else None)


def draw_on_host(
    draw: Callable[..., np.ndarray], shape: tuple[int, ...], *numbers: Any
) -> jax.Array:
    """Return booleans that the host draws from numbers while a program runs.

    Where there are several processes, each draws them.
    """

    def called(*numbers: Any) -> jax.Array:
        return jax.pure_callback(
            draw, jax.ShapeDtypeStruct(shape, jnp.bool_), *numbers, vmap_method="sequential"
        )

    mesh, everywhere = _drawing.get(), PartitionSpec()
    if mesh is None:
        return called(*numbers)
    by_device = jax.shard_map(
        called, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False
    )
    return by_device(*map(jnp.asarray, numbers))


@contextmanager
def draw_on_each_device(mesh: Mesh) -> Iterator[None]:
    """Return a context in which programs over a mesh draw on the host of each device.

    Outside of it the first device draws for all.
    """
    token = _drawing.set(mesh)
    try:
        yield
    finally:
        _drawing.reset(token)


def prepare_process(devices: int, quickly: bool) -> None:
    """CPU devices and flags of XLA, which both count from the first computation on."""
    if devices > max(1, jax.config.jax_num_cpu_devices):  # -1 where nobody has said anything
        with suppress(RuntimeError):  # it has started
            jax.config.update("jax_num_cpu_devices", devices)
    if quickly:
        jax.config.update("jax_disable_most_optimizations", True)
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()
        )


@contextmanager
def compiling_quickly() -> Iterator[None]:
    """A context for programs that run a few times only: less than half of the time to compile."""
    token = _quickly.set(True)
    try:
        yield
    finally:
        _quickly.reset(token)


@contextmanager
def op_by_op() -> Iterator[None]:
    """A context in which programs are not compiled whole; operations are, once for all programs."""
    token = _op_by_op.set(True)
    try:
        yield
    finally:
        _op_by_op.reset(token)


def scan_context() -> AbstractContextManager[Any]:
    """Return a context for `jax.lax.scan`.

    Within `op_by_op` the scan is a loop in Python, since a scan is a program of its own.
    """
    return jax.disable_jit() if _op_by_op.get() else nullcontext()


_quickly: ContextVar[bool] = ContextVar("deliralike_jax_compiling_quickly", default=False)
_drawing: ContextVar[Mesh | None] = ContextVar("deliralike_jax_drawing", default=None)
_op_by_op: ContextVar[bool] = ContextVar("deliralike_jax_op_by_op", default=False)
_QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
