"""Copies of a network that own their storage and follow the user's changes of the original."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from types import FunctionType, MethodType, ModuleType
from typing import Any

from chainer.link_hooks import SpectralNormalization, WeightStandardization

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import Variable, chainer
from deliralike.backends.chainer.network import set_requires_grad
from deliralike.errors import StructureError
from deliralike.parallel.batches.scatter import mean_by_samples

# The sets of names of a link's parameters, persistent values and children.
_NAMES = ("_params", "_persistent", "_children")
_HOOKS = "_local_link_hooks"
_PLAIN = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    ModuleType,
    FunctionType,
    Variable,
)
# Chainer's own hooks that hold one link's weights while it runs: each copy of the link needs its
# own.
_HOOKS_OF_ONE_LINK = (SpectralNormalization, WeightStandardization)


class Copies:
    """A network and its copies, link by link.

    Parameters, persistent values and arrays are copied; settings and other objects are shared,
    unless they contain links or parameters. Only the root keeps its update rules.

    Attributes:
        links: For each link of the root, in Chainer's order, that link and its copies.
        parameters: For each parameter of the root, that parameter and its copies.
    """

    def __init__(self, root: chainer.Link, devices: Sequence[str]) -> None:
        """Copy the root to each device except the first, which is the root's own.

        Nothing is drawn, and the root does not change.
        """
        self.root = root
        self._memos: list[dict[int, Any]] = []
        with _without_update_rules(root):
            self.networks = [root, *(self._copy_to(device) for device in devices[1:])]
        self.links = _aligned(_unique(network.links()) for network in self.networks)
        self.parameters = _aligned(
            _unique(_parameters(network)) for network in self.networks
        )
        for _, *others in self.parameters:
            for other in others:
                other.cleargrad()  # without a shape too, or it would begin with NaNs
        self._hooks: list[tuple] = [()] * len(self.links)
        self._follow_hooks()
        self._follow_parameters()
        self.remember()

    def _copy_to(self, device: str) -> chainer.Link:
        memo: dict[int, Any] = {}
        for link in self.root.links():
            memo.update((id(value), value) for value in _shared(link))
            hooks = vars(link).get(_HOOKS)
            if hooks is not None:
                memo[id(hooks)] = OrderedDict()
        network = copy.deepcopy(self.root, memo)
        self._memos.append(memo)
        if network.device == chainer.get_device(device):
            return network
        return network.to_device(device)

    # Following
    # ------------------------------------------------------------

    def remember(self) -> None:
        """Record the present attributes of the root's links.

        Attributes that a run has changed in each copy are the copy's own.
        """
        self._attributes = [dict(vars(link)) for link, *_ in self.links]
        self._hooks = [_hooks(link) for link, *_ in self.links]
        self._former_structure = self._structure()

    def follow(self) -> bool:
        """Copy what has changed on the root since `remember`.

        Returns:
            False if the root has other links or parameters now.
        """
        if self._structure() != self._former_structure:
            return False
        for links, former in zip(self.links, self._attributes, strict=True):
            self._follow_attributes(links, former)
        self._follow_hooks()
        self._follow_parameters()
        self.copy_persistent()
        return True

    def _structure(self) -> list[int]:
        """Return the identities of the links and parameters."""
        return [id(each) for each in (*self.root.links(), *_parameters(self.root))]

    def _follow_attributes(
        self, links: Sequence[chainer.Link], former: dict[str, Any]
    ) -> None:
        """Set and delete attributes of the copies of a link as on the link itself."""
        link, *others = links
        present = vars(link)
        changed = []
        for name, value in present.items():
            if name != _HOOKS and (name not in former or former[name] is not value):
                changed.append(name)
        deleted = [name for name in former if name not in present]
        for other, memo in zip(others, self._memos, strict=True):
            for name in changed:
                value = present[name]
                if _holds_own(value):
                    value = copy.deepcopy(value, memo.copy())
                vars(other)[name] = value
            for name in deleted:
                vars(other).pop(name, None)

    def _follow_hooks(self) -> None:
        for (link, *others), former in zip(self.links, self._hooks, strict=True):
            hooks = _hooks(link)
            if hooks == former:
                continue
            for other, memo in zip(others, self._memos, strict=True):
                copies = [(name, _hook_of_copy(hook, memo)) for name, hook in hooks]
                vars(other)[_HOOKS] = OrderedDict(copies)

    def _follow_parameters(self) -> None:
        for parameter, *others in self.parameters:
            for other in others:
                if other.requires_grad != parameter.requires_grad:
                    set_requires_grad(other, parameter.requires_grad)
                if parameter.is_initialized and not other.is_initialized:
                    copy_parameter(parameter, other)

    # Parameters
    # ------------------------------------------------------------

    def stale_parameter(self) -> chainer.Parameter | None:
        """Return a parameter of the root whose values a copy does not have; None where all do.

        Chainer counts no changes of an array, so values are compared, which takes as long as
        copying them. Copies are always written at the same time, so only the first one is compared.
        """
        for parameter, *others in self.parameters:
            if others and _differs(parameter, others[0]):
                return parameter
        return None

    def share(self, original: Copies) -> None:
        """Use the arrays of another network's copies, where the root shares its parameters."""
        for targets, sources in zip(self.parameters, original.parameters, strict=True):
            for target, source in zip(targets[1:], sources[1:], strict=True):
                if source.is_initialized:
                    target.array = source.array

    # Persistent values
    # ------------------------------------------------------------

    def copy_persistent(self) -> None:
        """Copy the root's persistent values to every copy."""
        for link, *others in self.links:
            for name in link._persistent:
                for other in others:
                    _copy_persistent(link, other, name)

    def average_persistent(self, sizes: Sequence[int]) -> None:
        """Average floating persistent values on the root, weighted by the sizes of the shares.

        Only the copies that took part count.
        """
        for links in self.links:
            for name in links[0]._persistent:
                values = [vars(link).get(name) for link in links[: len(sizes)]]
                if all(map(_is_floating, values)):
                    _average(links[0], name, values, sizes)


def _average(
    link: chainer.Link, name: str, values: Sequence[Any], sizes: Sequence[int]
) -> None:
    first = values[0]
    if not arrays.is_array(first):
        if any(value != first for value in values):
            weighted = [value * size for value, size in zip(values, sizes, strict=True)]
            vars(link)[name] = sum(weighted) / sum(sizes)
        return
    device = chainer.backend.get_device_from_array(first)
    values = [device.send(value) for value in values]
    if all((value == first).all() for value in values[1:]):
        return  # no replica has changed it: no rounding either
    first[...] = mean_by_samples(values, sizes)


def _is_floating(value: Any) -> bool:
    if arrays.is_array(value):
        return value.dtype.kind == "f"
    return isinstance(value, float)


def _copy_persistent(link: chainer.Link, other: chainer.Link, name: str) -> None:
    value = vars(link)[name]
    if arrays.is_array(value):
        copied = _written(vars(other).get(name), value, other.device)
    else:
        copied = value if isinstance(value, _PLAIN) else copy.deepcopy(value)
    vars(other)[name] = copied


def _written(former: Any, value: Any, device: Any) -> Any:
    """Return an array with other values: the former one where it fits, else a new one."""
    is_array = arrays.is_array(former)
    if is_array and former.shape == value.shape and former.dtype == value.dtype:
        chainer.backend.copyto(former, value)
        return former
    return device.send(value.copy())


# Parameters
# ------------------------------------------------------------


def copy_parameter(source: chainer.Parameter, target: chainer.Parameter) -> None:
    """Copy the values of one parameter into the storage of another."""
    if source.array is None:
        return
    array = _written(target.array, source.array, target.device)
    if array is not target.array:  # one of another kind has taken the source's place
        target.cleargrad()
        target.array = array


def _differs(parameter: chainer.Parameter, other: chainer.Parameter) -> bool:
    """Return whether values differ; two NaNs count as equal."""
    if not (parameter.is_initialized and other.is_initialized):
        return False
    if parameter.dtype != other.dtype:
        return True
    are_equal = parameter.device.xp.array_equal
    values = parameter.array, parameter.device.send(other.array)
    return not (are_equal(*values) or are_equal(*values, equal_nan=True))


class _SharedStart(chainer.Initializer):
    """Start values for a parameter and its copies.

    The first thread draws them, the others copy them.
    """

    def __init__(self, initializer: Any) -> None:
        super().__init__(getattr(initializer, "dtype", None))
        self.initializer = initializer
        self.value: Any = None
        self._lock = Lock()

    def __call__(self, array: Any) -> None:
        with self._lock:
            if self.value is None:
                self.initializer(array)
                self.value = array.copy()
            else:
                chainer.backend.copyto(array, self.value)


@contextmanager
def equal_start_values(copies: Copies) -> Iterator[None]:
    """Draw start values once for parameters without a shape, equal in all copies.

    Layers run in the same order everywhere, so the draws come in the order in which one network
    would make them.
    """
    pending = []
    for parameters in copies.parameters:
        if not parameters[0].is_initialized:
            shared = _SharedStart(parameters[0].initializer)
            pending.append((parameters, shared))
            _set_initializer(parameters, shared)
    try:
        yield
    finally:
        for parameters, shared in pending:
            if shared.value is not None:
                for parameter in parameters:
                    if not parameter.is_initialized:
                        parameter.initialize(shared.value.shape)
            _set_initializer(parameters, shared.initializer)


def _set_initializer(parameters: Iterable[chainer.Parameter], initializer: Any) -> None:
    for parameter in parameters:
        parameter.initializer = initializer


@contextmanager
def _without_update_rules(root: chainer.Link) -> Iterator[None]:
    """Remove update rules, which no copy needs, for a ``with`` block."""
    with ExitStack() as stack:
        for parameter in _unique(_parameters(root)):
            stack.callback(setattr, parameter, "update_rule", parameter.update_rule)
            parameter.update_rule = None
        yield


# The parts of a network
# ------------------------------------------------------------


def _unique(things: Iterable[Any]) -> list[Any]:
    """Return each object once, in order."""
    return list({id(thing): thing for thing in things}.values())


def _aligned(columns: Iterable[list[Any]]) -> list[tuple]:
    """Return the corresponding objects of a network and its copies.

    Raises:
        StructureError: A copy is built differently.
    """
    first, *others = map(list, columns)
    for replica, column in enumerate(others, start=1):
        if [type(each) for each in column] != [type(each) for each in first]:
            raise StructureError(
                f"the network is {_listed(first)} on replica 0 and {_listed(column)} on replica "
                f"{replica}: a copy, copy.deepcopy(network), must have the links and parameters of "
                "the network"
            )
    return list(zip(first, *others, strict=True))


def _listed(things: Sequence[Any]) -> str:
    return ", ".join(type(thing).__name__ for thing in things) or "nothing"


def _parameters(network: chainer.Link) -> Iterator[chainer.Parameter]:
    """Return the parameters link by link, a shared one as often as it is held."""
    for link in network.links():
        for name in sorted(link._params):
            yield vars(link)[name]


def _shared(link: chainer.Link) -> Iterator[Any]:
    """Return the values that a link's copies share with it."""
    for name, value in vars(link).items():
        if (
            name not in _NAMES
            and name not in link._persistent
            and not _holds_own(value)
        ):
            yield value


def _holds_own(value: Any) -> bool:
    """Return whether a copy needs its own copy of a value: it holds arrays, links or parameters."""
    return _holds_links(value, set()) or _holds_arrays(value)


def _holds_arrays(value: Any) -> bool:
    """Return whether a value is an array other than a variable, or a container of such."""
    if arrays.is_array(value):
        return not isinstance(value, Variable)
    if isinstance(value, dict):
        return any(map(_holds_arrays, value.values()))
    if isinstance(value, list | tuple | set):
        return any(map(_holds_arrays, value))
    return False


def _holds_links(value: Any, visited: set[int]) -> bool:
    """Return whether a value is a link or parameter, or refers to one."""
    if isinstance(value, chainer.Link | chainer.Parameter):
        return True
    if isinstance(value, _PLAIN) or id(value) in visited:
        return False
    visited.add(id(value))
    return any(_holds_links(part, visited) for part in _parts(value))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, MethodType):
        return (value.__self__,)
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    return list(getattr(value, "__dict__", {}).values())


def _hooks(link: chainer.Link) -> tuple:
    return tuple((vars(link).get(_HOOKS) or {}).items())


def _hook_of_copy(hook: Any, memo: dict[int, Any]) -> Any:
    if isinstance(hook, _HOOKS_OF_ONE_LINK):
        return copy.deepcopy(hook, memo.copy())
    return hook
