"""The seam: what a backend must provide. All else is written once, above it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from deliralike import nest
from deliralike.backends.calls import Around, called_through
from deliralike.errors import (
    CapabilityError,
    DeviceError,
    DtypeError,
    SettingError,
    StateError,
    suggestion,
)
from deliralike.nest import host_arrays
from deliralike.network.base import AbstractNetwork
from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS
from deliralike.optim.groups import Settings
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import Rule
from deliralike.parallel.layerwise import LayerwiseNetwork
from deliralike.parallel.processes.group import Place, ProcessGroup
from deliralike.parallel.processes.network import DistributedNetwork
from deliralike.parallel.replicas.holder import Holder
from deliralike.parallel.replicas.network import ReplicaSettings, ReplicatedNetwork


@dataclass(frozen=True)
class Gradients:
    """A loss and its gradients, as NumPy arrays in neutral names and layouts.

    Attributes:
        loss: The value of the function.
        parameters: One array for each trainable parameter; None where the loss does not depend on
            it.
        inputs: The gradient with respect to each input: a nest like it, None at leaves that are not
            floating arrays.
        beside: What the function returned after the loss, where it returned a tuple; arrays as
            NumPy ones.
    """

    loss: float
    parameters: dict[str, np.ndarray | None]
    inputs: tuple[Any, ...]
    beside: tuple[Any, ...] = ()


class Backend(ABC):
    """One framework, seen from above.

    Attributes:
        name: What users call it.
        nn: The vocabulary: functions, and layers bound to this backend.
        network_base: The native class that networks written once are bound to.
        dtypes: The floating types that networks can compute in.
        capabilities: What it declares to have beyond the minimum: ``"double_backward"``,
            ``"compile"``, ``"threads"`` …
        lacks: Names of functions and layers of `nn` that it does not have: calling one is an error
            that says so.
        optimizers_hold_state: Whether the framework's own optimizers hold their state and may be
            wrapped twice.
        native_layers_mix: Whether layers of the framework's own follow `computing_in`.
        modules: The framework's own modules by what they hold: ``"nn"``, ``"functional"``,
            ``"optim"``, ``"lr_scheduler"``.
        holder: The class of a native network that holds another one, calls it, and has its names.
    """

    name: ClassVar[str]
    nn: Functions
    network_base: type[AbstractNetwork]
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    capabilities: ClassVar[frozenset[str]] = frozenset()
    lacks: ClassVar[frozenset[str]] = frozenset()
    optimizers_hold_state: ClassVar[bool] = True
    native_layers_mix: ClassVar[bool] = False
    modules: ClassVar[Mapping[str, Any]] = {}
    holder: ClassVar[type[Holder]] = Holder

    # About the framework
    # -----------------------------------------------------------------------------------------

    @abstractmethod
    def version(self) -> str:
        """The framework's version, for example ``"torch 2.13.0"``."""

    @abstractmethod
    def devices(self) -> list[str]:
        """The devices present on this machine, the default one first."""

    @abstractmethod
    def precision(self) -> dict[str, str]:
        """Return the settings that decide the precision of results.

        For example ``{"float64": "on", "TF32": "off"}``.
        """

    # Arrays
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def array(self, value: Any, dtype: str | None = None, device: str | None = None) -> Any:
        """Return a host value as a native array that owns its storage.

        The array has the value's own type unless `dtype` is given.
        """

    @abstractmethod
    def numpy(self, array: Any) -> np.ndarray:
        """A native array as a NumPy array that the caller owns."""

    @abstractmethod
    def is_array(self, value: Any) -> bool:
        """Whether a value is one of the backend's own arrays."""

    def add(self, total: Any, addition: Any, device: str) -> Any:
        """Return the sum of two gradients on a device.

        `total` may be None, and its storage may be used for the result.
        """
        moved = self.array(addition, device=device)
        return moved if total is None else total + moved

    def weighted(
        self, values: Sequence[Any], weight: float, totals: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return gradients times a weight, added to any totals on the same device.

        The storage of the totals may be used for the result.
        """
        products = [value * weight for value in values]
        return (
            products
            if totals is None
            else [total + new for total, new in zip(totals, products, strict=True)]
        )

    def all_finite(self, values: Sequence[Any]) -> bool:
        """Whether no array holds a NaN or an infinity."""
        return all(bool(np.isfinite(self.numpy(value)).all()) for value in values)

    def copied(self, array: Any) -> Any:
        """Return a copy of a native array on its device, apart from any graph.

        An array that cannot change may come back as it is.
        """
        return array.copy()

    def blended(self, averages: Sequence[Any], values: Sequence[Any], weight: float) -> list[Any]:
        """Return each average moved towards its value, on their device.

        The result is ``average + weight * (value - average)``.

        The averages' storage may be used for the result.
        """
        return [
            average + (value - average) * weight
            for average, value in zip(averages, values, strict=True)
        ]

    @abstractmethod
    def split(
        self, array: Any, sizes: Sequence[int], dim: int, devices: Sequence[Any]
    ) -> list[Any]:
        """Contiguous pieces of an array, piece i on device i; differentiable.

        Pieces that stay on the device of the array may be views of it. With one size the array
        stays whole, so that one without axes can be moved.
        """

    @abstractmethod
    def concatenate(self, values: Sequence[Any], dim: int, device: Any = None) -> Any:
        """Concatenate arrays along an axis, on a device; the result is differentiable.

        The device is that of the first array when None.

        One array alone may come back as it is.
        """

    def concatenate_all(
        self, columns: Sequence[Sequence[Any]], dim: int, device: Any = None
    ) -> list[Any]:
        """`concatenate` of each column; all arrays have at least one axis."""
        return [self.concatenate(column, dim, device) for column in columns]

    @abstractmethod
    def stack(self, values: Sequence[Any], device: Any = None) -> Any:
        """Stack arrays of one shape along a new first axis; the result is differentiable.

        The result is in new storage, on a device as for `concatenate`.
        """

    # Files
    # ----------------------------------------------------------------------------------------------

    def read_weights(self, path: Path) -> dict[str, np.ndarray]:
        """The neutral state in a weight file of the framework's own, without running code from it.

        Raises:
            WeightFileError: The file cannot be read safely, or holds something else.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no weight files of its own: use safetensors"
        )

    def read_states(self, path: Path) -> dict[str, dict[str, np.ndarray]]:
        """Return every state in a weight file by the key under which it lies.

        The most likely one comes first; the key is ``""`` for a state without any.

        Raises:
            WeightFileError: As `read_weights`.
        """
        return {"": self.read_weights(path)}

    def write_weights(self, path: Path, state: Mapping[str, np.ndarray]) -> None:
        """Write a neutral state as a weight file of the framework's own."""
        raise CapabilityError(
            f"backend {self.name!r} has no weight files of its own: use safetensors"
        )

    def own_outputs(
        self, state: Mapping[str, np.ndarray], x: np.ndarray
    ) -> tuple[str, np.ndarray] | None:
        """Return the name and outputs of the framework's own network that has such names.

        The name is that of the network among the framework's own; None when there is no such
        network.
        """
        return None

    # Networks
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def is_native(self, value: Any) -> bool:
        """Whether a value is a network or layer of the framework."""

    def is_parameter(self, value: Any) -> bool:
        """Whether a value is a parameter of the framework."""
        return False

    def wrappers(self) -> tuple[type, ...]:
        """Return the framework's own classes of networks that only wrap another network.

        They wrap it over devices or processes.
        """
        return ()

    @abstractmethod
    def wrap(self, native: Any) -> AbstractNetwork:
        """Wrap a native network as an abstract one.

        It has the same weights, under the same names, without a prefix.
        """

    @abstractmethod
    def gradients(
        self, loss_function: Callable[..., Any], network: AbstractNetwork, *inputs: Any
    ) -> Gradients:
        """Return the loss ``loss_function(network, *inputs)`` and its gradients.

        Running statistics move, weights do not.

        The function is taken to be called once; see `compiling_quickly`.
        """

    def prepare_process(self, devices: int = 1, quickly: bool = False) -> None:
        """Apply settings that a framework reads when it starts.

        Once something was computed it is too late, and the settings are then left alone.

        Args:
            devices: How many CPU devices replicas are to find, where a CPU can be split into
                several.
            quickly: Whether all of the process is like `compiling_quickly`, single operations too.
        """

    def compiling_quickly(self) -> AbstractContextManager[Any]:
        """Return a context for programs that run a few times only.

        A backend that compiles spends little on them.
        """
        return nullcontext()

    def op_by_op(self) -> AbstractContextManager[Any]:
        """Return a context for many small networks that run once.

        A backend that compiles does so by single operations.
        """
        return nullcontext()

    def in_dtype(self, network: AbstractNetwork, dtype: str) -> AbstractNetwork:
        """Return a copy of a network that computes in another floating type.

        The copy shares nothing with the network.

        Raises:
            DtypeError: The backend cannot compute in that type.
            StateError: The network holds something that cannot be copied.
        """
        name = self.check_dtype(dtype)
        try:
            twin = deepcopy(network)
        except Exception as error:  # of whatever the network holds
            raise StateError(f"{type(network).__name__} cannot be copied: {error}") from error
        self.set_dtype(twin, name)
        for block in (
            block for _, block in twin.named_blocks() if isinstance(block, AbstractNetwork)
        ):
            block.dtype_built = name
        return twin

    def set_dtype(self, network: AbstractNetwork, dtype: str) -> None:
        """Convert the floating parameters and buffers of a network to a type.

        The type is one that `check_dtype` has named.
        """
        raise CapabilityError(
            f"backend {self.name!r} cannot change the type of a network: build it in {dtype}"
        )

    def called_through(
        self, network: AbstractNetwork, around: Around
    ) -> AbstractContextManager[None]:
        """Return a context in which another function calls each block of a network.

        A block may be written once or native.

        Within a function given to `gradients`, it is the network that the function gets which is to
        be followed.

        Args:
            around: Called with the block's dotted path, the block, the call that it makes, and the
                call's arguments; what it returns takes the place of the block's output.
        """
        blocks = dict(
            network.named_blocks()
        )  # where a path has two, that of the native network itself comes last
        return called_through(blocks, around, self.calls_forward)

    def calls_forward(self, block: Any) -> bool:
        """Whether calling a block of the framework ends in its method ``forward``."""
        return hasattr(block, "forward")

    def neutral_layer(self, block: Any) -> tuple[str, dict[str, Any]] | None:
        """The layer of `nn` that a layer of the framework's own is, and its settings there.

        None for all others, and for layers with the names and settings of those of `nn`.
        """
        return None

    def replicate(self, network: AbstractNetwork, settings: ReplicaSettings) -> ReplicatedNetwork:
        """A network as several replicas; its weights and the random state stay as they are."""
        raise CapabilityError(f"backend {self.name!r} has no replicated networks: use one device")

    def loader_of(self, source: Any, seed: int, processes: ProcessGroup) -> Any:
        """Return an iterator of the framework's own as a `data.Loader` of the same data.

        Anything else is returned as it is.

        Args:
            seed: Keys the order of the samples.
            processes: Those that train with it together.
        """
        return source

    def join(self, timeout: float, place: Place | None = None) -> ProcessGroup:
        """The processes that the framework's own runtime connects; see `deliralike.join`.

        Args:
            timeout: Seconds.
            place: Which of them this is; what the framework's own launcher says when None.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no runtime of its own for several processes: use MPI"
        )

    def is_connected(self) -> bool:
        """Return whether the framework's own runtime already connects several processes.

        The connection is one that the user's program has made.
        """
        return False

    def distribute(
        self,
        network: AbstractNetwork,
        settings: ReplicaSettings,
        processes: ProcessGroup,
        takes_whole: bool,
    ) -> DistributedNetwork:
        """A network that trains in several processes; all of them start with the root's weights."""
        raise CapabilityError(
            f"backend {self.name!r} has no networks that train in several processes: use one "
            "process"
        )

    def layerwise(self) -> type[LayerwiseNetwork]:
        """Return the class of networks whose updates wait until they are needed.

        The gradients of these networks are averaged.
        """
        raise CapabilityError(
            f"backend {self.name!r} has no networks whose updates wait for other processes: use "
            f"deliralike.DistributedDataParallel"
        )

    def shard(
        self, network: AbstractNetwork, processes: ProcessGroup, **keywords: Any
    ) -> AbstractNetwork:
        """A network whose parameters, gradients and optimizer states are spread over processes."""
        raise CapabilityError(
            f"backend {self.name!r} has no fully sharded networks: DistributedDataParallel keeps "
            "the whole network in each process"
        )

    @abstractmethod
    def optimizer(
        self,
        rule: Rule,
        network: AbstractNetwork,
        parameters: str | None = None,
        groups: Settings | None = None,
    ) -> AbstractOptimizer:
        """An optimizer that follows one of the neutral update rules.

        Args:
            parameters: A pattern of neutral names, such as ``"generator.*"``; all trainable
                parameters when None.
            groups: Settings that differ from the rule's, by patterns of neutral names of which the
                first that matches decides: ``{"*.bias": {"weight_decay": 0.0}, "encoder.*": {"lr":
                1e-4}}``. A learning rate of a group's own keeps its ratio to the rule's when
                ``optimizer.lr`` is set.

        Raises:
            UnknownName: A pattern matches no parameter.
            ArgumentError: The rule has no such setting.
            SettingError: A setting makes no sense, or a ratio to a learning rate of 0 is wanted.
        """

    @abstractmethod
    def wrap_optimizer(self, native: Any, network: AbstractNetwork) -> AbstractOptimizer:
        """Any optimizer of the framework as an abstract one."""

    def evaluating(self) -> AbstractContextManager[Any]:
        """A context in which no graph for gradients is built."""
        return nullcontext()

    def computing_in(self, precision: str) -> AbstractContextManager[Any]:
        """Return a context in which forward passes compute in a shorter floating type.

        It applies to float32 networks, where a shorter type is safe.

        Matrix products and convolutions take it; sums, exponentials and losses are computed in
        float32, and so are norms, which give back the type of their input. Double precision stays
        as it is. Where PyTorch's own layers and functions are called, its own lists of
        ``torch.autocast`` decide.

        Raises:
            CapabilityError: The backend does not declare ``"mixed <precision>"``.
        """
        self.require(f"mixed {precision}")
        return nullcontext()

    def check_mixed(self, precision: str, network: AbstractNetwork) -> None:
        """An error when a network cannot compute in a shorter type.

        Raises:
            CapabilityError: The backend cannot, or blocks of the framework's own would go on in
                their own type.
            SettingError: The network is not one of float32.
        """
        self.require(f"mixed {precision}")
        if network.dtype_name != "float32":
            raise SettingError(
                f"mixed precision is for networks of float32, and {type(network).__name__} is one "
                f"of {network.dtype_name}: build it in float32, or leave precision out"
            )
        blocks = dict(network.named_blocks())
        owners = [
            name.rpartition(".")[0]
            for name, slot in network.neutral_slots().items()
            if slot.is_parameter
        ]
        for path in (path for path in owners if not self.native_layers_mix and path in blocks):
            if not isinstance(blocks[path], self.network_base):
                raise CapabilityError(
                    f"the block {path!r} is a {type(blocks[path]).__name__} of the framework's "
                    f"own, and on backend {self.name!r} only the layers and functions of nn "
                    f"compute in {precision}: give the block a type of its own, or leave precision "
                    "out"
                )

    # Chance
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed the framework's own generators that random layers draw from."""

    def random_state(self, network: AbstractNetwork) -> dict[str, Any]:
        """Return the state of the generators that the network's random layers draw from.

        The state consists of numbers, texts and arrays.
        """
        return {}

    def load_random_state(self, network: AbstractNetwork, state: Mapping[str, Any]) -> None:
        """Let the generators go on from what `random_state` gave.

        Those of devices that are not here are left out.

        Raises:
            StateError: It is the state of another network; nothing has changed.
        """

    # Written once
    # ----------------------------------------------------------------------------------------------

    def bind(
        self,
        functions: Functions,
        base: type[AbstractNetwork],
        layers: Mapping[str, type] | None = None,
    ) -> None:
        """Make this backend's `nn` and `network_base` known to each other.

        `layers` are native ones.
        """
        self.nn, self.network_base = functions, base
        base.backend, base.nn = self, functions
        for name, layer in LAYERS.items():
            setattr(functions, name, (layers or {}).get(name) or layer.on(self))
        for name in self.lacks:
            setattr(functions, name, partial(self._refuse_lacking, name))

    def _refuse_lacking(self, name: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise CapabilityError(
            f"backend {self.name!r} declares that it does not have the function or layer {name!r}"
        )

    def prepare(self, batch: Any, network: AbstractNetwork) -> Any:
        """Prepare a batch for a network: move its arrays to the network's device.

        Floating NumPy arrays take the network's type, all others keep their own.

        Raises:
            DtypeError: A NumPy array holds objects, texts or masked elements, or an array is
                another framework's.
            IndexRangeError: A whole number does not fit the type that the backend has for it.
        """
        device, dtype = network.device_name, network.dtype_name

        def leaf(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                value = host_arrays.plain(value)
                return self.array(
                    value, dtype=dtype if value.dtype.kind == "f" else None, device=device
                )
            if self.is_array(value):
                return self.array(value, device=device)
            return host_arrays.refuse_foreign(value, self.is_array)

        try:
            if type(batch) is tuple and all(isinstance(value, np.ndarray) for value in batch):
                return tuple(
                    map(leaf, batch)
                )  # as most are: taking a nest apart takes longer than a small step has
            return nest.map(leaf, batch)
        except DtypeError as error:
            raise host_arrays.explained(error, batch, self.is_array) from None

    def number(self, value: Any) -> float:
        """A native scalar, or a plain number, as a number."""
        return float(self.numpy(value)) if self.is_array(value) else float(value)

    def to_numpy(self, outputs: Any) -> Any:
        """A nest with every native array as a NumPy array."""
        return nest.map(lambda leaf: self.numpy(leaf) if self.is_array(leaf) else leaf, outputs)

    def check_dtype(self, dtype: str) -> str:
        """Return the name of a floating type that networks can compute in.

        An error names the types that there are.
        """
        name = str(np.dtype(dtype)) if not isinstance(dtype, str) else dtype
        if name not in self.dtypes:
            raise DtypeError(
                f"backend {self.name!r} cannot compute in {dtype!r}. "
                f"{suggestion(name, self.dtypes)}"
            )
        return name

    def name_of_device(self, device: Any) -> str:
        """Return the name of a device given in another form.

        The device is an object of the framework's own, or another of the device's names.
        """
        return str(device)

    def check_device(self, device: Any) -> str:
        """Return the name of a device that is present; the default device for None.

        The device is given by name or as the framework's own object.

        Raises:
            DeviceError: There is no such device.
        """
        present = self.devices()
        if device is None:
            return present[0]
        name = device if device in present else self.name_of_device(device)
        if name not in present:
            raise DeviceError(
                f"backend {self.name!r} has no device {device!r} here. {suggestion(name, present)}"
            )
        return name

    def require(self, capability: str) -> None:
        """An error when the backend does not declare a capability."""
        if capability not in self.capabilities:
            have: Sequence[str] = sorted(self.capabilities)
            raise CapabilityError(
                f"backend {self.name!r} does not have {capability!r}; it has {', '.join(have)}"
            )
