"""Containers of blocks: in order, as a list, by name.

Names are those of PyTorch, ``0``, ``1`` and so on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network


class _Numbered(Network):
    def __init__(self, blocks: Sequence[Any]) -> None:
        super().__init__()
        self.length = 0
        for block in blocks:
            self._add(str(self.length), block)

    def _add(self, name: str, block: Any) -> None:
        setattr(self, name, block)
        self.length += 1

    def __len__(self) -> int:
        """Return the number of blocks."""
        return self.length

    def __getitem__(self, index: int) -> Any:
        """Return the block at a position, also counted from the end."""
        if not -self.length <= index < self.length:
            raise IndexError(f"{type(self).__name__} has {self.length} blocks, no block {index}")
        return getattr(self, str(index % self.length))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the blocks in order."""
        return (self[index] for index in range(self.length))


class Sequential(_Numbered):
    """Blocks that are applied one after the other.

    The arguments are the blocks, or a dict of them by name.
    """

    def __init__(self, *blocks: Any) -> None:
        named = len(blocks) == 1 and isinstance(blocks[0], Mapping)
        super().__init__(() if named else blocks)
        self.names = tuple(blocks[0]) if named else ()
        for name in self.names:
            self._add(name, blocks[0][name])

    def __getitem__(self, index: int) -> Any:
        """Return the block at a position, also counted from the end."""
        if not self.names:
            return super().__getitem__(index)
        return getattr(self, self.names[index])

    def forward(self, x):
        for block in self:
            x = block(x)
        return x


class ModuleList(_Numbered):
    """A list of blocks whose parameters belong to the network. It is not called itself."""

    def __init__(self, blocks: Sequence[Any] = ()) -> None:
        super().__init__(list(blocks))

    def append(self, block: Any) -> Any:
        """Add a block at the end, in the `__init__` of the network that has the list."""
        self._add(str(self.length), block)
        return self

    def extend(self, blocks: Sequence[Any]) -> Any:
        """Add blocks at the end."""
        for block in blocks:
            self.append(block)
        return self


class ParameterList(_Numbered):
    """A list of parameters that belong to the network. It is not called itself."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        super().__init__(list(values))


class ModuleDict(Network):
    """Blocks by name. It is not called itself."""

    def __init__(self, blocks: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.names: tuple[str, ...] = ()
        for name, block in (blocks or {}).items():
            self[name] = block

    def __setitem__(self, name: str, block: Any) -> None:
        """Add a block, in the `__init__` of the network that has the dict."""
        if name not in self.names:
            if hasattr(self, name):
                raise SettingError(
                    f"{type(self).__name__}: a member cannot be called {name!r}, which every "
                    "network has"
                )
            self.names = (*self.names, name)
        setattr(self, name, block)

    def __contains__(self, name: object) -> bool:
        """Whether there is a block of that name."""
        return name in self.names

    def __getitem__(self, name: str) -> Any:
        """The block of that name."""
        if name not in self.names:
            raise KeyError(
                f"{type(self).__name__} has no member {name!r}; it has {', '.join(self.names)}"
            )
        return getattr(self, name)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self.names)

    def keys(self) -> tuple[str, ...]:
        """The names in order."""
        return self.names

    def values(self) -> list[Any]:
        """The blocks in order."""
        return [self[name] for name in self.names]

    def items(self) -> list[tuple[str, Any]]:
        """Names and blocks in order."""
        return [(name, self[name]) for name in self.names]


class ParameterDict(ModuleDict):
    """Parameters by name that belong to the network. It is not called itself."""
