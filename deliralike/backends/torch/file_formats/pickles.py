"""Read a pickle of PyTorch's as descriptions.

Nothing that the pickle names is imported or called: functions of this file stand in for all that
a state may name. No memory is allocated for its tensors.
"""

import math
import pickle
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import IO, Any

import torch

# NumPy's codes of the types of elements; bfloat16 by its bits.
TYPES = {
    "float64": "f8",
    "float32": "f4",
    "float16": "f2",
    "bfloat16": "u2",
    "complex128": "c16",
    "complex64": "c8",
    "int64": "i8",
    "int32": "i4",
    "int16": "i2",
    "int8": "i1",
    "uint64": "u8",
    "uint32": "u4",
    "uint16": "u2",
    "uint8": "u1",
    "bool": "u1",
}
# PyTorch's classes of storages, and the types of their elements.
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "uint8",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt8Storage": "quint8",
}
_SIZES = {kind: int(code[1:]) for kind, code in TYPES.items()}  # bytes
_SIZES |= {"qint8": 1, "qint32": 4, "quint8": 1}
_MOST_AXES = 32


@dataclass(frozen=True, eq=False)
class Named:
    """A type that a pickle refers to by its name."""

    name: str


@dataclass(frozen=True, eq=False)
class Other:
    """An object without weights that NumPy could hold; only the name of its class is known."""

    name: str

    def __setitem__(self, key: Any, value: Any) -> None:
        """Take no item."""

    def append(self, item: Any) -> None:
        """Take no element."""

    add = append


@dataclass(frozen=True)
class Storage:
    """Bytes elsewhere in the file.

    Attributes:
        key: The key of the bytes.
        kind: The type of the elements.
        elements: The number of elements that the pickle claims.
    """

    key: str
    kind: str
    elements: int

    @property
    def nbytes(self) -> int:
        """The claimed size in bytes."""
        return self.elements * _SIZES[self.kind]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of non-negative strides that lies within the claimed size of its storage.

    Attributes:
        offset, strides: Numbers of elements, as PyTorch counts.
    """

    storage: Storage
    kind: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size in bytes of a contiguous array with these values."""
        return math.prod(self.shape) * _SIZES[self.kind]


class Table(dict[Any, Any]):
    """A dict whose keys are quick to compare, whatever a pickle names as one."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set an item."""
        super().__setitem__(_key(key), value)


class _Codes(dict[int, Callable[..., None]]):
    """The functions of the codes that PyTorch writes."""

    def __missing__(self, code: int) -> Callable[..., None]:
        raise ValueError(f"its pickle uses {chr(code)!r}, which PyTorch does not write")


_NAMES = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT "
    "BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BINSTRING "
    "SHORT_BINSTRING EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_LIST APPEND APPENDS SETITEM "
    "SETITEMS ADDITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE "
    "BINPERSID"
)
_CODES = [getattr(pickle, name)[0] for name in _NAMES.split()]
# The unpickler in C allocates what a pickle claims, and its dicts hash any key.
_Unpickler: Any = vars(pickle)["_Unpickler"]


class PickleReader(_Unpickler):
    """A reader of pickles, which runs at construction.

    Args:
        file: A file at the beginning of the pickle; afterwards it is at the pickle's end.
        size: The most bytes that the pickle can have.

    Attributes:
        value: The contents: dicts, lists, tuples, texts and numbers, and instances of the classes
            above for all else.
        storages: The storages that the pickle refers to, by key.

    Raises:
        ValueError: The pickle is damaged, or refers to something that is no part of a state.
    """

    dispatch = _Codes({code: _Unpickler.dispatch[code] for code in _CODES})
    dispatch[pickle.EMPTY_DICT[0]] = lambda reader: reader.append(Table())
    dispatch[pickle.EMPTY_SET[0]] = lambda reader: reader.append(Other("builtins.set"))
    dispatch[pickle.NEWOBJ[0]] = _Unpickler.load_reduce
    # attributes, such as the versions of a state's modules
    dispatch[pickle.BUILD[0]] = lambda reader: reader.stack.pop()

    def __init__(self, file: IO[bytes], size: int):
        super().__init__(file, encoding="utf-8")
        self.storages: dict[str, Storage] = {}
        self._left_to_copy = size
        try:
            self.value = self.load()
        except _DAMAGES as error:
            raise ValueError(
                f"its pickle is damaged ({type(error).__name__}: {error!s:.200})"
            ) from error

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands in for a function or class."""
        module = {"__builtin__": "builtins", "torch.tensor": "torch._tensor"}.get(
            module, module
        )
        if module.startswith("numpy.core"):  # as NumPy 1 called it
            module = module.replace("core", "_core", 1)
        full = f"{module}.{name}"
        if full == "collections.OrderedDict":
            return self._ordered_dict
        if full in _CALLS:
            return _CALLS[full]
        if full in _TYPES:
            return Named(full)
        if full in _BESIDE:
            return lambda *_: Other(full)
        raise ValueError(
            f"Unsupported global: GLOBAL {full} is no part of a state, and making it might run code"
        )

    def _ordered_dict(self, pairs: Any = ()) -> Table:
        """Return a dict of pairs, as Python 2 has written them.

        The copied items are counted: a hostile pickle may have the same list copied many times.
        """
        self._left_to_copy -= len(pairs)
        if self._left_to_copy < 0:
            raise ValueError("its pickle repeats itself without an end")
        return _table(pairs)

    def persistent_load(self, pid: Any) -> Storage:
        """Return the description of a storage."""
        tag, kind, key, _location, elements, *view = pid
        has_types = isinstance(kind, Named) and isinstance(key, str | int)
        if tag != "storage" or not has_types or any(view):
            raise ValueError("its pickle refers to something that is no plain storage")
        if kind.name not in _STORAGE_NAMES:
            raise ValueError(f"its pickle has a storage of the type {kind.name}")
        _refuse_unless_counts(elements)
        element = _STORAGES[kind.name.rpartition(".")[2]]
        storage = Storage(str(key), element, elements)
        if self.storages.setdefault(storage.key, storage) != storage:
            raise ValueError(
                f"its pickle describes the storage {storage.key!r} in two ways"
            )
        return storage


_DAMAGES = (
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
    EOFError,
    struct.error,
    pickle.UnpicklingError,
)


def _table(pairs: Iterable[Any]) -> Table:
    table = Table()
    for key, value in pairs:
        table[key] = value
    return table


def _key(key: Any) -> Any:
    """Return a key that is quick to compare as it is, and a description of any other."""
    if isinstance(key, str | float) or (isinstance(key, int) and abs(key) < 2**60):
        return key
    return Other(type(key).__name__)


def _refuse_unless_counts(*values: Any) -> None:
    for value in values:
        if type(value) is not int:  # whose text may be without an end: tuples in tuples
            raise ValueError(
                f"its pickle has a {type(value).__name__} for a size, stride or place: wanted a "
                "whole number from 0"
            )
        if not 0 <= value < 2**62:
            raise ValueError(
                f"its pickle has a size, stride or place of {value.bit_length()} bits, or below 0: "
                "wanted a whole number from 0"
            )


def _tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any
) -> Tensor | Other:
    """Describe a tensor of ``_rebuild_tensor`` or ``_rebuild_tensor_v2``.

    `rest` is what the latter has beside: requires_grad, hooks, metadata.
    """
    if any(rest[2:]):
        return Other("torch.Tensor of conjugates or negatives")
    return _checked_tensor(storage, storage.kind, offset, shape, strides)


def _tensor_of_bytes(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    _grad: Any,
    _hooks: Any,
    kind: Any,
    metadata: Any = None,
) -> Tensor | Other:
    """Describe a tensor of ``_rebuild_tensor_v3``, whose type has no storage class of its own."""
    kind = kind.name.removeprefix("torch.")
    if metadata or kind not in TYPES:
        return Other(f"torch.Tensor of {kind}")
    return _checked_tensor(storage, kind, offset, shape, strides)


def _checked_tensor(
    storage: Storage, kind: str, offset: Any, shape: Any, strides: Any
) -> Tensor | Other:
    if kind not in TYPES:
        return Other(f"torch.Tensor of {kind}")
    if (
        not isinstance(shape, tuple)
        or not isinstance(strides, tuple)
        or len(shape) != len(strides)
    ):
        raise ValueError(
            "its pickle has a tensor whose shape and strides do not fit each other"
        )
    if len(shape) > _MOST_AXES:
        raise ValueError(
            f"its pickle has a tensor of {len(shape)} axes, wanted {_MOST_AXES} at most"
        )
    _refuse_unless_counts(offset, *shape, *strides)
    tensor = Tensor(storage, kind, offset, shape, strides)
    axes = zip(shape, strides, strict=True)
    end = offset + sum((size - 1) * stride for size, stride in axes) + 1
    if tensor.nbytes and end * _SIZES[kind] > storage.nbytes:
        raise ValueError(
            f"its pickle has a tensor of shape {shape} that ends outside of its storage "
            f"{storage.key!r}, after element {end:,} of {storage.nbytes // _SIZES[kind]:,}"
        )
    return tensor


def _inner(tensor: Any, *_: Any) -> Any:
    return tensor


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_bytes,
    "torch._utils._rebuild_parameter": _inner,
    "torch._utils._rebuild_parameter_with_state": _inner,
    "torch._tensor._rebuild_from_type_v2": lambda function, _kind, arguments, _state: (
        function(*arguments)
    ),
    "torch.Size": _inner,
    "collections.Counter": lambda counts=None: Table() if counts is None else counts,
}
# What checkpoints hold beside the weights. No object of these is made.
_BESIDE = {
    "argparse.Namespace",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.set",
    "_codecs.encode",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "torch.Tensor",
    "torch.device",
    "torch.nn.parameter.Parameter",
    "torch.serialization._get_layout",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
}
_CONSTANTS = {
    str(value)
    for value in vars(torch).values()
    if isinstance(value, torch.dtype | torch.layout | torch.qscheme)
}
_STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage")
_STORAGE_NAMES = {".".join(pair) for pair in product(_STORAGE_MODULES, _STORAGES)}
_TYPES = _CONSTANTS | _STORAGE_NAMES
