"""Read a pickle of PyTorch's as descriptions.

Nothing that the pickle names is imported or called, and no memory is allocated for its tensors.
"""

import math
import pickletools
from collections.abc import Callable
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
    """A function or class that a pickle refers to by its name."""

    name: str


@dataclass(frozen=True, eq=False)
class Other:
    """An object without weights that NumPy could hold; only the name of its class is known."""

    name: str


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


class PickleReader:
    """An interpreter of pickles, which runs at construction.

    Args:
        file: A file at the beginning of the pickle; afterwards it is at the pickle's end.

    Attributes:
        value: The contents: dicts, lists, tuples, texts and numbers, and instances of the classes
            above for all else.
        storages: The storages that the pickle refers to, by key.

    Raises:
        ValueError: The pickle is damaged, or refers to something that is no part of a state.
    """

    def __init__(self, file: IO[bytes]):
        self.storages: dict[str, Storage] = {}
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks under the marks
        self._memo: dict[int, Any] = {}
        self._copied_items = 0
        self._steps = 0
        try:
            for opcode, argument, _ in pickletools.genops(file):
                self._steps += 1
                self._execute(opcode.name, argument)
            self.value = self._stack.pop()
        except (LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(
                f"its pickle is damaged ({type(error).__name__}: {error!s:.200})"
            ) from error

    def _execute(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _NEW:
            self._stack.append(_NEW[name]())
        elif name in _TUPLES:
            self._put_tuple(_TUPLES[name])
        elif name in _METHODS:
            _METHODS[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"its pickle uses {name}, which PyTorch does not write")

    # Containers

    def _put_tuple(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        if len(items) < count:
            raise ValueError("its pickle is damaged: a tuple lacks elements")
        self._stack[-count:] = [items]

    def _mark(self, _: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._below.pop()
        return items

    def _tuple(self, _: Any) -> None:
        items = self._since_mark()
        self._stack.append(tuple(items))

    def _append(self, _: Any) -> None:
        self._extend([self._stack.pop()])

    def _appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Other):
            raise ValueError(f"its pickle is damaged: it appends to a {type(target).__name__}")

    def _set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def _set_items(self, _: Any) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Other):
            return
        if not isinstance(target, dict):
            raise ValueError(f"its pickle is damaged: it sets items of a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def _add_items(self, _: Any) -> None:
        self._since_mark()

    # Memo and texts

    def _put(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def _text(self, text: str) -> None:
        # a text of Python 2: bytes, which PyTorch takes for UTF-8
        self._stack.append(text.encode("latin-1").decode())

    # Objects, as descriptions

    def _global(self, argument: str) -> None:
        self._stack.append(_named(*argument.split(" ", 1)))

    def _stack_global(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(_named(module, name))

    def _reduce(self, _: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._stack.append(self._call(function, arguments))

    def _call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, Named) or not isinstance(arguments, tuple):
            raise ValueError(f"its pickle calls a {type(function).__name__}")
        if function.name == "collections.OrderedDict":
            return self._ordered_dict(*arguments)
        if function.name == "torch._tensor._rebuild_from_type_v2":
            return self._call(arguments[0], arguments[2])
        describe = _CALLS.get(function.name)
        if describe is None:
            return Other(function.name)
        return describe(*arguments)

    def _ordered_dict(self, pairs: Any = ()) -> dict[Any, Any]:
        """Return a dict of pairs, as Python 2 has written them.

        The copied items are counted: a hostile pickle may have the same list copied many times.
        """
        self._copied_items += len(pairs)
        if self._copied_items > self._steps:
            raise ValueError("its pickle repeats itself without an end")
        return {_key(key): value for key, value in pairs}

    def _build(self, _: Any) -> None:
        self._stack.pop()  # attributes, such as the versions of a state's modules

    def _storage(self, _: Any) -> None:
        tag, kind, key, _location, elements, *view = self._stack.pop()
        has_types = isinstance(kind, Named) and isinstance(key, str | int)
        if tag != "storage" or not has_types or any(view):
            raise ValueError("its pickle refers to something that is no plain storage")
        module, _, name = kind.name.rpartition(".")
        if module not in _STORAGE_MODULES or name not in _STORAGES:
            raise ValueError(f"its pickle has a storage of the type {kind.name}")
        _refuse_unless_counts(elements)
        storage = Storage(str(key), _STORAGES[name], elements)
        if self.storages.setdefault(storage.key, storage) != storage:
            raise ValueError(f"its pickle describes the storage {storage.key!r} in two ways")
        self._stack.append(storage)


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


def _named(module: Any, name: Any) -> Named:
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("its pickle is damaged: it names a function by something else than texts")
    module = {"__builtin__": "builtins", "torch.tensor": "torch._tensor"}.get(module, module)
    if module.startswith("numpy.core"):  # as NumPy 1 called it
        module = module.replace("core", "_core", 1)
    full = f"{module}.{name}"
    if full not in _KNOWN:
        raise ValueError(
            f"Unsupported global: GLOBAL {full} is no part of a state, and making it might run code"
        )
    return Named(full)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor | Other:
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
    if not isinstance(shape, tuple) or not isinstance(strides, tuple) or len(shape) != len(strides):
        raise ValueError("its pickle has a tensor whose shape and strides do not fit each other")
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
    "torch.Size": _inner,
    "collections.Counter": lambda counts=None: {} if counts is None else counts,
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
    "collections.OrderedDict",
    "torch._tensor._rebuild_from_type_v2",
}
_CONSTANTS = {
    str(value)
    for value in vars(torch).values()
    if isinstance(value, torch.dtype | torch.layout | torch.qscheme)
}
_STORAGE_MODULES = ("torch", "torch.cuda", "torch.storage")
_STORAGE_NAMES = {".".join(pair) for pair in product(_STORAGE_MODULES, _STORAGES)}
_KNOWN = _BESIDE | _CONSTANTS | _STORAGE_NAMES | set(_CALLS)

_VALUES = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "LONG4",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
}
_NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": lambda: Other("builtins.set"),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_METHODS: dict[str, Callable[[PickleReader, Any], None]] = {
    "MARK": PickleReader._mark,
    "TUPLE": PickleReader._tuple,
    "APPEND": PickleReader._append,
    "APPENDS": PickleReader._appends,
    "SETITEM": PickleReader._set_item,
    "SETITEMS": PickleReader._set_items,
    "ADDITEMS": PickleReader._add_items,
    "BINPUT": PickleReader._put,
    "LONG_BINPUT": PickleReader._put,
    "MEMOIZE": PickleReader._memoize,
    "BINGET": PickleReader._get,
    "LONG_BINGET": PickleReader._get,
    "BINSTRING": PickleReader._text,
    "SHORT_BINSTRING": PickleReader._text,
    "GLOBAL": PickleReader._global,
    "STACK_GLOBAL": PickleReader._stack_global,
    "REDUCE": PickleReader._reduce,
    "NEWOBJ": PickleReader._reduce,
    "BUILD": PickleReader._build,
    "BINPERSID": PickleReader._storage,
}
