"""Containers of blocks: in order, as a list, by name.

Names are those of PyTorch, ``0``, ``1`` and so on. What they hold may be replaced, added and
removed at any time, as with PyTorch's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.network.construction import current_construction


class _Named(Network):
    """Members that are attributes, with their names in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: tuple[str, ...] = ()

    def _add(self, name: str, member: Any) -> None:
        if name not in self.names:
            if hasattr(self, name):
                raise SettingError(
                    f"{type(self).__name__}: a member cannot be called {name!r}, which every "
                    "network has"
                )
            self.names = (*self.names, name)
        setattr(self, name, member)

    def add_module(self, name: str, module: Any) -> None:
        """Add a member by name, as PyTorch's containers do."""
        self._add(name, module)

    def _remove(self, name: str) -> None:
        delattr(self, name)
        self.names = tuple(each for each in self.names if each != name)

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self.names)


class _Numbered(_Named):
    """Members in order, called by their numbers."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        super().__init__()
        self.extend(blocks)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the blocks in order."""
        return (getattr(self, name) for name in self.names)

    def __getitem__(self, index: int | slice) -> Any:
        """Return the block at a position, also counted from the end, or a list of several.

        While a network is built the list is a container, which the network may keep.
        """
        if not isinstance(index, slice):
            return getattr(self, self._name(index))
        blocks = {name: getattr(self, name) for name in self.names[index]}
        return self._several(blocks, current_construction() is not None)

    def __add__(self, others: Iterable[Any]) -> Any:
        """Return these blocks and others as a slice is returned, numbered anew."""
        blocks = {str(place): block for place, block in enumerate([*self, *others])}
        return self._several(blocks, current_construction() is not None)

    def _several(self, blocks: dict[str, Any], is_kept: bool) -> Any:
        """Return a slice; it may be kept while a network is built."""
        listed = list(blocks.values())
        return type(self)(listed) if is_kept else listed

    def __setitem__(self, index: int, block: Any) -> None:
        """Put a block in the place of another."""
        setattr(self, self._name(index), block)

    def __delitem__(self, index: int | slice) -> None:
        """Remove one block or several. The others are numbered anew."""
        blocks = list(self)
        del blocks[index]
        self._renumber(blocks)

    def append(self, block: Any) -> Any:
        """Add a block at the end."""
        self._add(str(len(self)), block)
        return self

    def extend(self, blocks: Iterable[Any]) -> Any:
        """Add blocks at the end."""
        for block in blocks:
            self.append(block)
        return self

    def __iadd__(self, blocks: Iterable[Any]) -> Any:
        """Add blocks at the end."""
        return self.extend(blocks)

    def insert(self, index: int, block: Any) -> Any:
        """Add a block before another. All are numbered anew."""
        blocks = list(self)
        blocks.insert(index, block)
        self._renumber(blocks)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove a block and return it. The others are numbered anew."""
        block = self[index]
        del self[index]
        return block

    def _name(self, index: int) -> str:
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"{type(self).__name__} has {len(self)} blocks, no block {index}"
            )
        return self.names[index]

    def _renumber(self, blocks: Sequence[Any]) -> None:
        for name in self.names:
            self._remove(name)
        self.extend(blocks)


class Sequential(_Numbered):
    """Blocks that are applied one after the other.

    The arguments are the blocks, or a dict of them by name. A slice can be called as well,
    ``self.body[:3](x)``; while a network is built it is a `Sequential` that the network may keep.
    """

    def __init__(self, *blocks: Any) -> None:
        # In some frameworks a layer is a mapping itself, of its parameters.
        named = (
            len(blocks) == 1
            and isinstance(blocks[0], Mapping)
            and not self.backend.is_native(blocks[0])
        )
        super().__init__(() if named else blocks)
        if named:
            for name, block in blocks[0].items():
                self._add(name, block)

    def _several(self, blocks: dict[str, Any], is_kept: bool) -> Any:
        return type(self)(blocks) if is_kept else _Applied(blocks.values())

    def forward(self, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return x


class _Applied(list[Any]):
    """Blocks of a `Sequential`, to be called one after the other."""

    def __call__(self, x: Any) -> Any:
        for block in self:
            x = block(x)
        return x


class ModuleList(_Numbered):
    """A list of blocks whose parameters belong to the network. It is not called itself."""

    def __init__(self, blocks: Iterable[Any] = ()) -> None:
        super().__init__(blocks)


class ParameterList(_Numbered):
    """A list of parameters that belong to the network. It is not called itself."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(values)


class ModuleDict(_Named):
    """Blocks by name. It is not called itself."""

    def __init__(self, blocks: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(blocks or {})

    def __setitem__(self, name: str, block: Any) -> None:
        """Add a block, or put it in the place of another."""
        self._add(name, block)

    def __delitem__(self, name: str) -> None:
        """Remove a block."""
        self._known(name)
        self._remove(name)

    def __contains__(self, name: object) -> bool:
        """Whether there is a block of that name."""
        return name in self.names

    def __getitem__(self, name: str) -> Any:
        """The block of that name."""
        return getattr(self, self._known(name))

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self.names)

    def update(self, blocks: Mapping[str, Any]) -> None:
        """Add several blocks."""
        for name, block in blocks.items():
            self[name] = block

    def pop(self, name: str) -> Any:
        """Remove a block and return it."""
        block = self[name]
        del self[name]
        return block

    def keys(self) -> tuple[str, ...]:
        """The names in order."""
        return self.names

    def values(self) -> list[Any]:
        """The blocks in order."""
        return [self[name] for name in self.names]

    def items(self) -> list[tuple[str, Any]]:
        """Names and blocks in order."""
        return [(name, self[name]) for name in self.names]

    def _known(self, name: str) -> str:
        if name in self.names:
            return name
        raise KeyError(
            f"{type(self).__name__} has no member {name!r}; it has {', '.join(self.names)}"
        )


class ParameterDict(ModuleDict):
    """Parameters by name that belong to the network. It is not called itself."""
