"""The thread-local settings of Chainer, and how they pass to the threads of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from deliralike.backends.chainer import arrays, unstable
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.network import _running


def settings_of_this_thread() -> Callable[[], AbstractContextManager[None]]:
    """Return a context for another thread with this thread's Chainer settings and hooks.

    The user's own settings are included. Hooks are the same objects: in several threads at once
    they are called in any order.
    """
    settings = dict(unstable.config_of_thread())
    hooks = {
        "function_hooks": chainer.get_function_hooks(),
        "link_hooks": unstable.link_hooks(),
    }
    mode = {"allowed": _running.allowed, "last": _running.last}

    @contextmanager
    def thread_context() -> Iterator[None]:
        # tables of each thread's own, as a replica may add hooks while another one runs
        own_hooks = {name: table.copy() for name, table in hooks.items()}
        with (
            _entries_set(unstable.config_of_thread(), settings),
            _entries_set(unstable.hooks_of_thread(), own_hooks),
            _entries_set(vars(_running), mode),
        ):
            yield

    return thread_context


@contextmanager
def _entries_set(values: dict[str, Any], wanted: Mapping[str, Any]) -> Iterator[None]:
    """Set entries of a dict for a ``with`` block, then restore its former content."""
    before = dict(values)
    values.update(wanted)
    try:
        yield
    finally:
        values.clear()
        values.update(before)


class Reports:
    """The reports of the replicas to Chainer's reporter, which are combined into one report.

    A link of a replica reports under the name that the root's link has.
    """

    def __init__(
        self, links: Sequence[tuple], wrapper: Any, shares: Sequence[int]
    ) -> None:
        """Use the calling thread's reporter, if it has one."""
        self.shares = shares
        self.reporters: list[Any] = []
        reporters = unstable.reporters()
        self.target: Any = reporters[-1] if reporters else None
        if self.target is not None:
            self.reporters = [self._reporter(links, wrapper) for _ in shares]

    def _reporter(self, links: Sequence[tuple], wrapper: Any) -> Any:
        """Return a reporter in which copies of a link have the name of the original."""
        names = dict(self.target._observer_names)
        if id(wrapper) in names:
            for root, *copies in links[:2]:
                if root is wrapper.root or root is wrapper.module:
                    names.update(
                        (id(link), names[id(wrapper)]) for link in (root, *copies)
                    )
        for original, *copies in links:
            if id(original) in names:
                names.update((id(link), names[id(original)]) for link in copies)
        reporter = chainer.reporter.Reporter()
        reporter._observer_names = names
        return reporter

    @contextmanager
    def of(self, index: int) -> Iterator[None]:
        """Collect the reports of one replica for a ``with`` block."""
        if not self.reporters:
            yield
            return
        reporters = {"reporters": [self.reporters[index]]}
        with _entries_set(unstable.reporters_of_thread(), reporters):
            yield

    def combine(self) -> None:
        """Report to the calling thread's reporter: the mean of numbers, weighted by share.

        Of anything else it reports the first replica's value.
        """
        if self.target is None:
            return
        observations: dict[str, list[tuple[Any, int]]] = {}
        for reporter, share in zip(self.reporters, self.shares, strict=True):
            for name, value in reporter.observation.items():
                observations.setdefault(name, []).append((value, share))
        for name, weighted in observations.items():
            self.target.observation[name] = _mean(weighted)


def _mean(weighted: Iterable[tuple[Any, int]]) -> Any:
    values, shares = zip(*weighted, strict=True)
    if len(values) == 1 or not all(map(_is_number, values)):
        return values[0]
    total = sum(shares) or len(shares)
    weights = [share / total for share in shares]
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def _is_number(value: Any) -> bool:
    if arrays.is_array(value):
        return not value.shape and value.dtype.kind in "biuf"
    return isinstance(value, int | float) or hasattr(value, "dtype")
