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
        self.length = len(blocks)
        for index, block in enumerate(blocks):
            setattr(self, str(index), block)

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
    """Blocks that are applied one after the other; the arguments are the blocks."""

    def __init__(self, *blocks: Any) -> None:
        super().__init__(blocks)

    def forward(self, x):
        for block in self:
            x = block(x)
        return x


class ModuleList(_Numbered):
    """A list of blocks whose parameters belong to the network. It is not called itself."""

    def __init__(self, blocks: Sequence[Any] = ()) -> None:
        super().__init__(list(blocks))


class ModuleDict(Network):
    """Blocks by name. It is not called itself."""

    def __init__(self, blocks: Mapping[str, Any]) -> None:
        super().__init__()
        self.names = tuple(blocks)
        for name, block in blocks.items():
            if hasattr(self, name):
                raise SettingError(
                    f"ModuleDict: a block cannot be called {name!r}, which every network has"
                )
            setattr(self, name, block)

    def __getitem__(self, name: str) -> Any:
        """The block of that name."""
        if name not in self.names:
            raise KeyError(f"ModuleDict has no block {name!r}; it has {', '.join(self.names)}")
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

    def items(self) -> list[tuple[str, Any]]:
        """Names and blocks in order."""
        return [(name, self[name]) for name in self.names]
