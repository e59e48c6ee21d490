"""Learning rates that fall with the distance from the output: layer-wise decay."""

from __future__ import annotations

from typing import Any

from deliralike.errors import SettingError
from deliralike.network.core import NetworkCore
from deliralike.optim.groups import Settings, first_matching


def groups_by_depth(
    network: NetworkCore, lr: float, decay: float, groups: Settings | None = None
) -> dict[str, dict[str, Any]]:
    """Return groups in which a layer has `decay` times the learning rate of the layer after it.

    The last layer has the full rate. Settings of `groups` stay, and a learning rate among them is
    multiplied as well. See `layers` for what counts as a layer.

    Raises:
        SettingError: `decay` is not above 0 and at most 1.

    Source: timm's ``param_groups_layer_decay`` (which also takes weight decay from vectors: give
        that as a group).

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=4, hidden=(3,))
        >>> groups_by_depth(net, 0.1, 0.5)
        {'layers.0.*': {'lr': 0.05}, 'layers.1.*': {'lr': 0.1}}
    """
    if not 0 < decay <= 1:
        raise SettingError(f"layer_decay={decay!r} must be above 0 and at most 1")
    given = groups or {}
    singly: dict[str, dict[str, Any]] = {}
    by_layer: dict[str, dict[str, Any]] = {}
    all_layers = layers(network)
    for height, paths in enumerate(reversed(all_layers)):
        for path, names in reversed(paths.items()):
            by_layer[path if path in names else f"{path}.*"] = {
                "lr": lr * decay**height
            }
            for name in names:
                pattern = first_matching(given, name)
                if pattern is not None:
                    own = given[pattern]
                    singly[name] = {**own, "lr": own.get("lr", lr) * decay**height}
    return singly | dict(reversed(by_layer.items()))


def layers(network: NetworkCore) -> list[dict[str, list[str]]]:
    """Return the layers of a network from input to output: parameters by the path of their block.

    A layer is an item of a list of blocks of one class, such as a block of a transformer or of a
    ResNet. All before the first of them is one layer, the stem, and the last block after them is
    one, the head. Blocks between two items go with the second, those before the head with the last
    item. The layers of a network without such lists are its own blocks.
    """
    tree = _Tree(network)
    blocks: dict[str, list[str]] = {}
    for name, slot in network.neutral_slots().items():
        if slot.is_parameter:
            blocks.setdefault(tree.layer_of(name), []).append(name)
    if not any(map(tree.is_item, blocks)):
        return [{path: names} for path, names in blocks.items()]
    result: list[dict[str, list[str]]] = []
    waiting: dict[str, list[str]] = {}
    for path, names in blocks.items():
        if tree.is_item(path):
            if waiting and not result:
                result.append(waiting)  # the stem
                waiting = {}
            result.append({**waiting, path: names})
            waiting = {}
        else:
            waiting[path] = names
    if waiting:
        head = next(reversed(waiting))
        names = waiting.pop(head)
        result[-1] |= waiting
        result.append({head: names})
    return result


class _Tree:
    """The blocks with parameters of a network, and which of them are several layers."""

    def __init__(self, network: NetworkCore) -> None:
        self.kinds = {path: type(block) for path, block in network.named_blocks()}
        self.children: dict[str, list[str]] = {"": []}
        for name, slot in network.neutral_slots().items():
            if slot.is_parameter:
                self._add(_parent(name))

    def _add(self, path: str) -> None:
        if path not in self.children:
            self._add(_parent(path))
            self.children[path] = []
            self.children[_parent(path)].append(path)

    def layer_of(self, name: str) -> str:
        """Return the path of the block that is a layer and has a parameter; or its name."""
        parts = name.split(".")
        for count in range(1, len(parts)):
            path = ".".join(parts[:count])
            if not self._is_divided(path):
                return path
        return name

    def is_item(self, path: str) -> bool:
        """Return whether a block is an item of a list."""
        return "." in path and self._is_list(_parent(path))

    def _is_divided(self, path: str) -> bool:
        """Return whether a block is a list, holds one, or is numbered and the network's own."""
        below = self.children[path]
        if self._is_list(path) or any(map(self._is_divided, below)):
            return True
        return "." not in path and bool(below) and all(map(_is_numbered, below))

    def _is_list(self, path: str) -> bool:
        """Return whether a block holds blocks of one class, which have blocks of their own.

        Their names are numbers; or end in them, where no list is around.
        """
        below = self.children[path]
        if not below or len({self.kinds.get(each) for each in below}) > 1:
            return False
        if not all(self.children[each] for each in below):
            return False
        if all(map(_is_numbered, below)):
            return len(below) > 1
        return all(each[-1].isdigit() for each in below) and not self.is_item(path)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _is_numbered(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()
