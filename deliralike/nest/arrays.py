"""The interface of a backend's arrays: how to create, move, join and compute them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from deliralike import nest
from deliralike.errors import CapabilityError, DeviceError, DtypeError, suggestion


class HasDevice(Protocol):
    """A network, or anything else with a device and a type, for which a batch is prepared."""

    @property
    def device_name(self) -> str:
        """The name of the device."""

    @property
    def dtype_name(self) -> str:
        """The name of the floating type."""


class Arrays(ABC):
    """The arrays of one framework.

    Attributes:
        name: The name by which users choose the backend.
        dtypes: The floating types that networks can compute in.
        capabilities: The features beyond the minimum: ``"double_backward"``, ``"compile"``,
            ``"threads"`` …
        strided: Whether an array may be a view with strides of its own, of a permuted array for
            example; False where they lie as a compiler chooses.
        native_layers_mix: Whether layers of the framework's own follow `computing_in`.
    """

    name: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")
    capabilities: ClassVar[frozenset[str]] = frozenset()
    strided: ClassVar[bool] = True
    native_layers_mix: ClassVar[bool] = False

    # About the framework
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def version(self) -> str:
        """Return the framework's version, for example ``"torch 2.13.0"``."""

    @abstractmethod
    def devices(self) -> list[str]:
        """Return the devices present on this machine, the default one first."""

    @abstractmethod
    def precision(self) -> dict[str, str]:
        """Return the settings that decide the precision of results.

        For example ``{"float64": "on", "TF32": "off"}``.
        """

    def require(self, capability: str) -> None:
        """Check that the backend declares a capability.

        Raises:
            CapabilityError: It does not.
        """
        if capability not in self.capabilities:
            declared = ", ".join(sorted(self.capabilities))
            raise CapabilityError(
                f"backend {self.name!r} does not have {capability!r}; it has {declared}"
            )

    # Arrays
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def array(
        self, value: Any, dtype: str | None = None, device: str | None = None
    ) -> Any:
        """Return a host value as a native array that owns its storage.

        The array has the value's own type unless `dtype` is given.
        """

    @abstractmethod
    def numpy(self, array: Any) -> np.ndarray:
        """Return a native array as a NumPy array that the caller owns."""

    @abstractmethod
    def is_array(self, value: Any) -> bool:
        """Return whether a value is one of the backend's own arrays."""

    def number(self, value: Any) -> float:
        """Return a native scalar, or a plain number, as a number."""
        return float(self.numpy(value) if self.is_array(value) else value)

    def numbers(self, values: Sequence[Any]) -> list[float]:
        """Return native scalars, or plain numbers, as numbers; in one transfer if it can."""
        return [self.number(value) for value in values]

    def detached(self, value: Any) -> Any:
        """Return a native scalar without the graph that it came from, if it has one."""
        return value

    def to_numpy(self, outputs: Any) -> Any:
        """Return a nest with every native array as a NumPy array."""
        return nest.map_where(self.is_array, self.numpy, outputs)

    def prepare(self, batch: Any, network: HasDevice) -> Any:
        """Prepare a batch for a network: move its arrays to the network's device.

        Floating NumPy arrays take the network's type, all others keep their own.

        Raises:
            DtypeError: A NumPy array holds objects, texts or masked elements, or an array is
                another framework's.
            IndexRangeError: A whole number does not fit the type that the backend has for it.
        """
        device = network.device_name
        floating_type = network.dtype_name

        def prepare(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray):
                array = plain(leaf)
                dtype = floating_type if array.dtype.kind == "f" else None
                return self.array(array, dtype, device)
            if self.is_array(leaf):
                return self.array(leaf, device=device)
            return refuse_foreign(leaf, self.is_array)

        return converted(batch, prepare, self.is_array)

    def copied(self, array: Any) -> Any:
        """Return a copy of a native array on its device, apart from any graph.

        An array that cannot change may come back as it is.
        """
        return array.copy()

    @abstractmethod
    def split(
        self, array: Any, sizes: Sequence[int], dim: int, devices: Sequence[Any]
    ) -> list[Any]:
        """Return contiguous pieces of an array, piece i on device i; they are differentiable.

        Pieces that stay on the device of the array may be views of it. With one size the array
        stays whole, so that one without axes can be moved.
        """

    @abstractmethod
    def concatenate(self, values: Sequence[Any], dim: int, device: Any = None) -> Any:
        """Concatenate arrays along an axis, on a device; the result is differentiable.

        The device is that of the first array when None. A single array may be returned itself.
        """

    def concatenate_all(
        self, columns: Sequence[Sequence[Any]], dim: int, device: Any = None
    ) -> list[Any]:
        """Concatenate the arrays of each column; all arrays have at least one axis."""
        return [self.concatenate(column, dim, device) for column in columns]

    @abstractmethod
    def stack(self, values: Sequence[Any], device: Any = None) -> Any:
        """Stack arrays of one shape along a new first axis; the result is differentiable.

        It is in new storage, on a device as for `concatenate`.
        """

    # Gradients and averages
    # ----------------------------------------------------------------------------------------------

    def add(self, total: Any, addition: Any, device: str) -> Any:
        """Return the sum of two gradients on a device.

        `total` may be None, and its storage may be used for the result.
        """
        moved = self.array(addition, device=device)
        if total is None:
            return moved
        return total + moved

    def add_gradients(
        self, totals: dict[str, Any], additions: dict[str, Any], device: str
    ) -> dict[str, Any]:
        """Return the sums of gradients by name on a device, as `add` does; None is left out.

        Additions of other names than the totals are left out, too.
        """
        sums = dict(totals)
        for name, total in totals.items():
            addition = additions.get(name)
            if addition is not None:
                sums[name] = self.add(total, addition, device)
        return sums

    def weighted(
        self, values: Sequence[Any], weight: float, totals: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return gradients times a weight, added to any totals on the same device.

        The storage of the totals may be used for the result.
        """
        products = [value * weight for value in values]
        if totals is None:
            return products
        return [
            total + product for total, product in zip(totals, products, strict=True)
        ]

    def blended(
        self, averages: Sequence[Any], values: Sequence[Any], weight: float
    ) -> list[Any]:
        """Return ``average + weight * (value - average)`` for each average, on its device.

        The averages' storage may be used for the result.
        """
        pairs = zip(averages, values, strict=True)
        return [average + (value - average) * weight for average, value in pairs]

    def clipped(self, value: Any, bound: float) -> Any:
        """Return a gradient with each element brought into ``[-bound, bound]``."""
        return value.clip(-bound, bound)

    def largest(self, value: Any) -> Any:
        """Return the largest element of an array, as a native scalar; NaN where it has one."""
        return value.max()

    def all_finite(self, values: Sequence[Any]) -> bool:
        """Return whether no array holds a NaN or an infinity."""
        return all(np.isfinite(self.numpy(value)).all() for value in values)

    # Types and devices
    # ----------------------------------------------------------------------------------------------

    def check_dtype(self, dtype: str) -> str:
        """Return the name of a floating type that networks can compute in.

        Raises:
            DtypeError: They cannot compute in this type.
        """
        name = dtype
        if not isinstance(dtype, str):
            name = str(np.dtype(dtype))
        if name not in self.dtypes:
            raise DtypeError(
                f"backend {self.name!r} cannot compute in {dtype!r}. "
                f"{suggestion(name, self.dtypes)}"
            )
        return name

    def check_device(self, device: Any) -> str:
        """Return the name of a device that is present; the default device for None.

        The device is given by name or as the framework's own object.

        Raises:
            DeviceError: There is no such device.
        """
        present = self.devices()
        if device is None:
            return present[0]
        name = device
        if device not in present:
            name = self.name_of_device(device)
        if name not in present:
            raise DeviceError(
                f"backend {self.name!r} has no device {device!r} here. {suggestion(name, present)}"
            )
        return name

    def name_of_device(self, device: Any) -> str:
        """Return the name of a device given in another form.

        The device is an object of the framework's own, or another of the device's names.
        """
        return str(device)

    # How arrays are computed
    # ----------------------------------------------------------------------------------------------

    def evaluating(self) -> AbstractContextManager[Any]:
        """Return a context in which no graph for gradients is built."""
        return nullcontext()

    def computing_in(
        self, precision: str, device: str | None = None
    ) -> AbstractContextManager[Any]:
        """Return a context in which forward passes compute in a shorter type where that is safe.

        In float32 networks matrix products and convolutions take the shorter type. Sums,
        exponentials and losses are computed in float32, and so are norms, which return the type of
        their input. Double precision stays as it is. Where PyTorch's own layers and functions are
        called, the lists of ``torch.autocast`` decide.

        Args:
            precision: The shorter type: ``"bfloat16"`` or ``"float16"``.
            device: Where the forward pass computes; any device if it is not known.

        Raises:
            CapabilityError: The backend does not declare ``"mixed <precision>"``.
        """
        self.require(f"mixed {precision}")
        return nullcontext()

    def compiling_quickly(self) -> AbstractContextManager[Any]:
        """Return a context for programs that run a few times only.

        A backend that compiles spends little on them.
        """
        return nullcontext()

    def cache_programs(self, folder: str | Path) -> None:
        """Keep compiled programs in a folder, where later processes find them.

        It is for the whole process, and is called before the first computation. The environment
        variable ``DELIRALIKE_PROGRAMS`` names a folder in which each backend has one of its own.

        Raises:
            CapabilityError: The backend does not declare ``"kept programs"``.
        """
        self.require("kept programs")

    def forget_programs(self) -> None:
        """Drop the programs that are compiled; what is called again is compiled anew.

        A backend that compiles nothing does nothing.
        """

    def op_by_op(self) -> AbstractContextManager[Any]:
        """Return a context for many small networks that run once.

        A backend that compiles does so by single operations.
        """
        return nullcontext()

    def preserve_global_state(self) -> AbstractContextManager[Any]:
        """Return a context in which float64 can be computed in, and that leaves no trace.

        When it ends, the framework's switches and generators are as they were before.
        """
        return nullcontext()

    def in_float64(self) -> AbstractContextManager[Any]:
        """Return a context in which a network's code computes in float64 where it says float32.

        Arrays that it creates without a type are of float64, too.
        """
        return nullcontext()

    def override_dropout_masks(
        self, factors: Callable[..., np.ndarray]
    ) -> AbstractContextManager[Any]:
        """Return a context in which the framework's own dropout multiplies by given factors.

        The noise of its functions, such as ``torch.randn_like``, is given as well.

        Args:
            factors: Called with the shape of a mask and the rate; gives zeros and scales. Where a
                framework does not know the rate, with None; gives numbers from 0 to 1, which a
                rate is compared with. Called with a shape, None and ``"normal"`` it gives noise.
        """
        return nullcontext()

    # Random numbers
    # ----------------------------------------------------------------------------------------------

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed the framework's own generators that random layers draw from."""

    def random_state(self, network: Any) -> dict[str, Any]:
        """Return the state of the generators that the network's random layers draw from.

        The state consists of numbers, texts and arrays.
        """
        return {}

    def load_random_state(self, network: Any, state: Mapping[str, Any]) -> None:
        """Restore the state of `random_state`; that of devices that are not present is left out.

        Raises:
            StateError: It is the state of another network; nothing has changed.
        """


_NUMERIC_KINDS = "fiubc"  # numbers and truth values
_WIDEST = {"f": 8, "c": 16}  # bytes: float64 and complex128


def widest(dtypes: Iterable[Any]) -> Any:
    """Return the first floating type of at least 32 bits, else the first one; None of none.

    Floating inputs and targets take the type of the network: they are not to be rounded to that of
    a part in a shorter one.
    """
    short = None
    for dtype in dtypes:
        if dtype.itemsize >= 4:
            return dtype
        short = short or dtype
    return short


def plain(array: np.ndarray, where: str = "an array") -> np.ndarray:
    """Return an array of numbers or truth values in this machine's byte order.

    An array that is so already is returned itself. Floating types longer than float64 become
    float64, bfloat16 becomes float32. Values do not change otherwise.

    Raises:
        DtypeError: The array holds objects, texts or dates, or masked elements.

    Example:
        >>> plain(np.arange(3, dtype=">i4")).dtype.isnative
        True
    """
    dtype = array.dtype
    is_plain_type = (
        dtype.kind in _NUMERIC_KINDS and dtype.isnative and dtype.itemsize <= 8
    )
    if type(array) is np.ndarray and is_plain_type:
        return array
    if np.ma.is_masked(array):
        raise DtypeError(
            f"{where} has {np.ma.count_masked(array)} masked elements, of which a network would "
            "see what lies under the mask: fill them, array.filled(value), or leave those samples "
            "out"
        )
    array = np.asarray(array)
    if "float" in dtype.name and dtype.kind != "f":
        # bfloat16 and shorter ones, which NumPy itself lacks
        return array.astype(np.float32)
    if dtype.kind not in _NUMERIC_KINDS:
        remedy = "convert it, such as by array.astype('float32')"
        first = array.flat[0] if array.size else None
        if isinstance(first, str | bytes):
            remedy = (
                "number the texts, labels = np.unique(texts, return_inverse=True)[1]"
            )
        raise DtypeError(
            f"{where} is an array of {dtype}, wanted numbers or truth values: {remedy}"
        )
    size = min(dtype.itemsize, _WIDEST.get(dtype.kind, dtype.itemsize))
    return array.astype(np.dtype(f"{dtype.kind}{size}"), copy=False)


def converted(
    batch: Any, convert: Callable[[Any], Any], is_native: Callable[[Any], bool]
) -> Any:
    """Return a batch with every leaf converted.

    Raises:
        DtypeError: `convert` raises it; the error has the path of the leaf.
    """
    try:
        # Most batches are tuples of arrays: flattening a nest costs more than a small step.
        if type(batch) is tuple and {*map(type, batch)} == {np.ndarray}:
            return tuple([convert(leaf) for leaf in batch])
        return nest.map(convert, batch)
    except DtypeError as error:
        raise _explained(error, batch, is_native) from None


def _explained(
    error: Exception, batch: Any, is_native: Callable[[Any], bool]
) -> Exception:
    """Return the error of the first leaf of a batch that no backend takes, with its path.

    Where every leaf is fine, `error` itself is returned.
    """
    for path, leaf in nest.leaves_with_paths(batch, "batch"):
        try:
            if isinstance(leaf, np.ndarray):
                plain(leaf, path)
            else:
                refuse_foreign(leaf, is_native, path)
        except DtypeError as leaf_error:
            return leaf_error
    return error


def refuse_foreign(
    value: Any, is_native: Callable[[Any], bool], where: str = "an array"
) -> Any:
    """Return a value that is not an array of another framework, unchanged.

    Raises:
        DtypeError: The value is an array of another framework.
    """
    is_array = hasattr(value, "__dlpack__") and not isinstance(value, np.generic)
    if is_array and not is_native(value):
        raise DtypeError(
            f"{where} is {nest.described(value)}, which this backend does not compute on: convert "
            "it to a NumPy array"
        )
    return value
