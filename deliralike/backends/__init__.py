"""Find backends by name, and replicate, distribute or shard networks of any backend.

Backends come from a table of our own three and from the entry points of the group
"deliralike.backends".

Nothing is imported until a backend is asked for; one that is missing or broken disables only
itself.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deliralike.errors import (
    BackendUnavailable,
    SettingError,
    UnknownName,
    suggestion,
)
from deliralike.network.base import AbstractNetwork
from deliralike.network.recomputed import refuse_synchronised_norms
from deliralike.parallel.averaging.local_sgd import LocalSGD
from deliralike.parallel.processes.group import ProcessGroup
from deliralike.parallel.replicas.network import ReplicaSettings
from deliralike.random import unchanged_generators
from deliralike.weights.framework_files import WeightFiles as WeightFiles

if TYPE_CHECKING:
    from deliralike.backends.base import Backend

ENTRY_POINTS = "deliralike.backends"
PROGRAMS = "DELIRALIKE_PROGRAMS"  # the folder of `Backend.cache_programs`
_FOLDERS = (
    PROGRAMS,
    "JAX_COMPILATION_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUPY_CACHE_DIR",
)


@dataclass(frozen=True)
class Entry:
    """An entry describes a backend that can be imported.

    It holds where the backend lives (``"module:ATTRIBUTE"``), the packages that it needs, how to
    install them, and its files.

    Attributes:
        engine: The engine that connects several processes of its networks by default; see
            `deliralike.join`.
    """

    target: str
    packages: tuple[str, ...] = ()
    install: str = ""
    weight_files: WeightFiles | None = None
    engine: str = "torch"

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that are not installed; nothing is imported to find out."""
        missing = []
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                missing.append(package)
        return tuple(missing)

    def versions(self) -> dict[str, str]:
        """Return the version of each installed package, as it was installed: none is imported."""
        found = {}
        for package in self.packages:
            with suppress(importlib.metadata.PackageNotFoundError):
                found[package] = importlib.metadata.version(package)
        return found


_PYTORCH_FILES = WeightFiles(
    "a PyTorch checkpoint",
    (".pth", ".pt"),
    (b"PK\x03\x04", b"\x80"),  # a zip, or a pickle
)
_SMALL_DICTS = tuple(
    bytes([0x80 + count]) for count in range(1, 16)
)  # 0x80 is an empty one
_FLAX_FILES = WeightFiles(
    "a flax checkpoint (msgpack, or a folder of Orbax)",
    (),
    (*_SMALL_DICTS, b"\xde", b"\xdf"),  # dicts of msgpack
    ("_METADATA", "manifest.ocdbt", "_CHECKPOINT_METADATA"),
    order="",  # trees of JAX are sorted by name
    channels_last=True,
)
_SHIPPED = {
    "torch": Entry(
        "deliralike.backends.torch:BACKEND",
        ("torch",),
        "pip install 'deliralike[torch]'",
        _PYTORCH_FILES,
    ),
    "chainer": Entry(
        "deliralike.backends.chainer:BACKEND",
        ("chainer",),
        # No later setuptools builds Chainer, and one before 71 needs the package wheel for it.
        "pip install 'setuptools>=71,<81' && pip install --no-build-isolation "
        "'deliralike[chainer]'",
    ),
    "jax": Entry(
        "deliralike.backends.jax:BACKEND",
        ("jax", "flax", "optax"),
        "pip install 'deliralike[jax]'",
        _FLAX_FILES,
        "jax",
    ),
}


def known() -> dict[str, Entry]:
    """Return every known backend by its name, installed or not; our own come first.

    Example:
        >>> list(known())[:3]
        ['torch', 'chainer', 'jax']
    """
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    others = {
        point.name: Entry(point.value) for point in points if point.name not in _SHIPPED
    }
    return _SHIPPED | others


def available() -> list[str]:
    """Return the names of the backends whose packages are installed, without importing any."""
    return [name for name, entry in known().items() if not entry.missing]


def weight_files() -> list[tuple[str, WeightFiles]]:
    """Return the backends that read and write weight files of a framework's own, with these files.

    No framework is imported.

    Example:
        >>> [(name, files.suffixes) for name, files in weight_files()][:1]
        [('torch', ('.pth', '.pt'))]
    """
    return [
        (name, entry.weight_files)
        for name, entry in known().items()
        if entry.weight_files
    ]


def get(name: str) -> Backend:
    """Return the backend of that name; it is imported on its first use.

    Raises:
        BackendUnavailable: There is no such name, a package is missing, or importing it failed; the
            message says what to do and which backends are ready.
    """
    # Our own come first, without a search through the installed packages, which takes 20 ms.
    entry = _SHIPPED.get(name) or known().get(name)
    if entry is None:
        raise BackendUnavailable(
            f"there is no backend {name!r}. {suggestion(name, known())}"
        )
    missing = entry.missing
    if missing:
        noun = "package" if len(missing) == 1 else "packages"
        raise BackendUnavailable(
            f"backend {name!r} needs the {noun} {', '.join(map(repr, missing))}, not installed "
            f"here: {entry.install}. Ready to use: {', '.join(available()) or 'none'}."
        )
    return _load(name, entry)


def backend_of_packages(packages: Set[str]) -> str | None:
    """Return the first of our own backends that is built on one of these packages, or None.

    Example:
        >>> backend_of_packages({"flax", "builtins"})
        'jax'
    """
    for name, entry in _SHIPPED.items():
        if not packages.isdisjoint(entry.packages):
            return name
    return None


def of(network: Any) -> Backend:
    """Return the backend that a network belongs to, be it written once or native.

    Raises:
        UnknownName: The network belongs to no backend that is available.

    Example:
        >>> import torch
        >>> of(torch.nn.Linear(3, 2)).name
        'torch'
    """
    if isinstance(network, AbstractNetwork):
        own: Any = network.backend
        return own
    how_to_bind = ""
    for backend in imported():
        if backend.is_native(network):
            return backend
        how_to_bind = how_to_bind or backend.how_to_bind(network)
    names = ", ".join(available())
    message = f"{type(network).__name__} is a network of no available backend ({names})"
    if how_to_bind:
        message += f": {how_to_bind}"
    raise UnknownName(message)


def imported() -> list[Backend]:
    """Return the backends whose framework has been imported or is unknown.

    A native network exists only there.
    """
    return [get(name) for name, entry in known().items() if _may_be_imported(entry)]


def _may_be_imported(entry: Entry) -> bool:
    """Return whether a backend's framework has been imported, or is unknown."""
    return not entry.packages or entry.packages[0] in sys.modules


def wrap(native: Any) -> AbstractNetwork:
    """Wrap a native network as an abstract one.

    The wrapped network has the same weights under neutral names and is usable wherever a network
    is.

    Example:
        >>> import torch
        >>> list(wrap(torch.nn.Linear(3, 2)).neutral_state())
        ['weight', 'bias']
    """
    return of(native).wrap(native)


def DataParallel(
    network: Any,
    devices: Sequence[str],
    output_device: str | None = None,
    dim: int = 0,
    **settings: Any,
) -> AbstractNetwork:
    """Return a network that runs as several replicas, one for each device.

    On one device it is the network itself, wrapped.

    Each replica computes on its share of a batch; outputs are gathered. An optimizer over it
    accumulates the replicas' gradients before each update and copies the parameters after it. Its
    weights are the given network's, under the same names, whatever the number of replicas.

    Args:
        network: Written once or native, on the first device.
        devices: Names of the backend's devices. One may stand several times; replicas own their
            storage all the same.
        output_device: Where outputs are gathered; the first device when None.
        dim: The axis that counts samples, in inputs and outputs.
        settings: ``buffers``, ``scalars``, ``spec``, ``virtual_shards`` …;
            `deliralike.parallel.replicas.network.ReplicaSettings` says what they do.

    Raises:
        DeviceError: The backend has no such device, or the network is on another one than the
            first.
        SettingError: A setting makes no sense, or the network, or a block of it, is replicated
            already.
        CapabilityError: A checkpointed block has batch norms that are to be synchronised.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> net = DataParallel(net, ["cpu", "cpu"])
        >>> import torch
        >>> net(torch.ones(5, 3)).shape
        torch.Size([5, 2])
    """
    wrapped = wrap(network)
    wrapped.parallelism.refuse_replicas()
    if isinstance(devices, str) or not isinstance(devices, Iterable):
        raise SettingError(
            f"devices={devices!r}: wanted a list with one device for each replica"
        )
    chosen = ReplicaSettings.on_devices(
        wrapped, devices, output_device, dim=dim, **settings
    )
    if len(chosen.places) > 1:
        refuse_synchronised_norms(wrapped, chosen.buffers)
        return of(wrapped).replicate(wrapped, chosen)
    return wrapped


def DistributedDataParallel(
    network: Any,
    processes: ProcessGroup,
    dim: int = 0,
    *,
    buffers: str = "sync",
    scalars: str = "mean",
    in_backward: Mapping[str, Any] | None = None,
    averaging: LocalSGD | None = None,
    **settings: Any,
) -> AbstractNetwork:
    """Return a network that trains in several processes, each with a share of every batch.

    In a single process it is the network, wrapped.

    Every process starts with the root's weights, and makes the updates of one process that sees the
    whole batch. An optimizer over it adds the gradients of all processes before each update.
    Weights and checkpoints are those of the given network, under the same names.

    Args:
        network: Written once or native, on this process's device.
        processes: What `deliralike.join` gives.
        dim: The axis that counts samples, in inputs and outputs.
        buffers: How buffers of the processes are combined; see `ReplicaSettings`. By default batch
            normalisation has the statistics of the whole batch.
        scalars: How numbers that a loss function returns beside the loss are combined; see
            `ReplicaSettings`.
        in_backward: Keywords of the framework's own engine, which then adds the gradients during
            backward; for PyTorch those of its ``DistributedDataParallel``, such as
            ``{"bucket_cap_mb": 10}``; for Chainer none, ``{}``: ChainerMN adds them at the end of
            backward. When None, gradients are added after backward, by messages of ours.
        averaging: Lets each process update its parameters by itself for several updates between
            two averages; see `deliralike.parallel.LocalSGD`.
        settings: ``others`` and ``spec``; see `ReplicaSettings`.

    Raises:
        SettingError: A setting makes no sense, or the network, or a block of it, is replicated
            already.
        CapabilityError: The backend has no such networks, or does not add gradients during
            backward.

    Example:
        >>> from deliralike import zoo
        >>> from deliralike.parallel import SingleProcess
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> DistributedDataParallel(net, SingleProcess()) is net
        True
    """
    wrapped = wrap(network)
    if processes.count == 1:
        return wrapped  # be it replicated over several devices or not
    wrapped.parallelism.refuse_replicas("distribute")
    chosen = ReplicaSettings.of(
        devices=(wrapped.device_name,),
        dim=dim,
        buffers=buffers,
        scalars=scalars,
        **settings,
    )
    if len(chosen.places) > 1:
        raise SettingError(
            "in several processes each has one replica: leave virtual_shards out"
        )
    refuse_synchronised_norms(wrapped, chosen.buffers)
    distributed = of(wrapped).distribute(wrapped, chosen, processes)
    parallelism: Any = distributed.parallelism
    if in_backward is not None:
        parallelism.reduce_in_backward(**in_backward)
    if averaging is not None:
        parallelism.average_by(averaging)
    return distributed


def FullyShardedDataParallel(
    network: Any, processes: ProcessGroup, **keywords: Any
) -> AbstractNetwork:
    """Return a network that shards parameters, gradients and optimizer states over processes.

    Each process holds a part of them. In a single process it is the network, wrapped.

    Updates and checkpoints are those of `DistributedDataParallel`. Every process makes every call:
    evaluation too, and reading or writing the weights.

    Args:
        network: Written once or native, on this process's device.
        processes: What `deliralike.join` gives, on the framework's own runtime.
        keywords: Those of the framework's own engine; for PyTorch those of ``fully_shard``, such as
            ``reshard_after_forward``, and ``smallest``: the parameters of a block that is gathered
            separately.

    Raises:
        CapabilityError: The backend has no such networks, or these processes are connected by
            another engine.
        SettingError: The network, or a block of it, is replicated already.
    """
    wrapped = wrap(network)
    if processes.count == 1:
        return wrapped
    wrapped.parallelism.refuse_replicas("shard")
    return of(wrapped).shard(wrapped, processes, **keywords)


def cache_programs_by_default() -> None:
    """Keep compiled programs in the user's cache, here and in processes that are started from here.

    Its folder is ``$XDG_CACHE_HOME/deliralike``, or ``~/.cache/deliralike``. Where the environment
    names a folder, be it that of one framework, nothing changes; an empty name keeps nothing.
    """
    caches = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if os.path.isabs(caches) and not any(name in os.environ for name in _FOLDERS):
        os.environ[PROGRAMS] = os.path.join(caches, "deliralike")


@cache
def _load(name: str, entry: Entry) -> Backend:
    """Import a backend.

    Raises:
        BackendUnavailable: The import failed.
    """
    module, _, attribute = entry.target.partition(":")
    try:
        # Importing jax and flax draws random numbers, in the middle of a run maybe.
        with unchanged_generators():
            backend = getattr(importlib.import_module(module), attribute)
    # A broken installation may fail in any way, and must disable only its own backend.
    except Exception as error:
        others = ", ".join(other for other in available() if other != name)
        repair = entry.install or "repair or remove the package that registers it"
        raise BackendUnavailable(
            f"backend {name!r} is installed but failed to load ({type(error).__name__}: {error}); "
            f"to mend it: {repair}. Others: {others or 'none'}."
        ) from error
    folder = os.environ.get(PROGRAMS)
    if folder and "kept programs" in backend.capabilities:
        backend.cache_programs(Path(folder, name))
    return backend
