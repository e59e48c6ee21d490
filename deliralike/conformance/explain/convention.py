"""Conventions as data: a setting, what it may be elsewhere, and how to apply that to a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deliralike import nest
from deliralike.conformance.causes import in_words
from deliralike.conformance.kinds import Named

# What a block is given, by name: its inputs, weights, buffers and settings; arrays are of NumPy
# where alternatives are chosen, and of a backend where a formula is executed.
Arguments = Named
Formula = Callable[
    [Any, Arguments], Any
]  # of `nn` and the arguments, gives the outputs
Alternatives = Named | Sequence[Any]
Change = Callable[[Any, Any], Any]  # of `nn` and one array
Application = Callable[[Formula, Any, Arguments, Any], Any]  # see `Convention.apply`


POSITIVE = 4.0  # the power for numbers from 0 on, over many decades


@dataclass(frozen=True)
class Convention:
    """One setting of a block with what other code may have there.

    Attributes:
        setting: What a report calls it.
        alternatives: Values by the words for them, or values that are words enough, the likely ones
            first. Of a number that is searched for: where to begin.
        apply: ``apply(formula, nn, arguments, value)`` gives the outputs of a block that has that
            value there.
        usual: What the reference has there, or a function of the arguments that gives it.
        free: Whether it is a number that is searched for.
        power: It is searched for along its root of this power.
    """

    setting: str
    alternatives: Alternatives
    apply: Application
    usual: Any = None
    free: bool = False
    power: float = 1.0

    def choices(self, arguments: Arguments) -> Iterator[Choice]:
        """Each alternative to what the reference has."""
        found = self.alternatives
        usual = self.usual(arguments) if callable(self.usual) else self.usual
        if self.free:
            yield Choice(self, tuple(found), None, usual)
            return
        named: Iterable[tuple[Any, Any]] = zip(found, found, strict=True)
        if isinstance(found, Mapping):
            named = found.items()
        for words, value in named:
            if usual is None or words != usual:
                yield Choice(self, words, value, usual)


@dataclass(frozen=True)
class Choice:
    """One alternative of a convention; of a free one `words` are the numbers to begin with."""

    convention: Convention
    words: Any
    value: Any
    usual: Any

    def formula(self, formula: Formula) -> Formula:
        """Another formula with this alternative applied."""
        return lambda nn, arguments: self.convention.apply(
            formula, nn, arguments, self.value
        )

    @property
    def cause(self) -> str:
        """What a report says."""
        return in_words(self.convention.setting, self.words, self.usual)


Known = tuple[
    Formula, list[Convention]
]  # of a block: what it computes, and may compute instead

# How an alternative is applied
# -----------------------------------------------------------------------------


def changing(changes: Callable[[Any, Arguments, Any], Named]) -> Application:
    """That a value changes what a formula is given: ``changes(nn, given, value)`` instead."""
    return lambda formula, nn, given, value: formula(
        nn, {**given, **changes(nn, given, value)}
    )


def setting(
    name: str, alternatives: Any, words: str | None = None, **how: Any
) -> Convention:
    """A setting with other values; the usual one is the reference's."""
    how.setdefault("usual", lambda given: given.get(name))
    apply = changing(lambda nn, given, value: {name: value})
    return Convention(name if words is None else words, alternatives, apply, **how)


def values(name: str, known: Alternatives, words: str = "", **how: Any) -> Convention:
    """Other values of one thing that a formula reads, by the words for them, or a free number."""
    return setting(name, known, words, **{"usual": None} | how)


def with_usual(formula: Formula, usual: Arguments) -> Formula:
    """A formula that is told what does not change from call to call, unless it is given otherwise."""
    return lambda nn, given: formula(nn, {**usual, **given})


def rules(words: str, alternatives: Any, **how: Any) -> Convention:
    """Ways in which a formula can be told to work: each is a mapping of what it reads."""
    return Convention(
        words, alternatives, changing(lambda nn, given, value: value), **how
    )


def array(words: str, name: str, alternatives: Any, **how: Any) -> Convention:
    """Changes ``change(nn, array)`` of one array before the formula."""
    apply = changing(lambda nn, given, change: {name: change(nn, given[name])})
    return Convention(words, alternatives, apply, **how)


def output(words: str, alternatives: Any, **how: Any) -> Convention:
    """Changes ``change(nn, array)`` of the first output."""

    def apply(formula: Formula, nn: Any, given: Arguments, change: Any) -> Any:
        return with_first(formula(nn, given), lambda y: change(nn, y))

    return Convention(words, alternatives, apply, **how)


def with_first(outputs: Any, change: Callable[[Any], Any]) -> Any:
    """Outputs with the first one changed."""
    leaves, structure = nest.flatten(outputs)
    return nest.unflatten(structure, [change(leaves[0]), *leaves[1:]])


def instead(words: str, alternatives: Any, **how: Any) -> Convention:
    """Other formulas ``formula(nn, arguments)`` in the place of the block's."""

    def apply(formula: Formula, nn: Any, given: Arguments, value: Formula) -> Any:
        return value(nn, given)

    return Convention(words, alternatives, apply, **how)


def factor(words: str, apply: Application, **how: Any) -> Any:
    """A number that is searched for and that a formula has no name for; 1 is the usual one."""
    given: dict[str, Any] = {"alternatives": (0.5, 2.0), "usual": 1.0} | how
    return Convention(words, apply=apply, free=True, **given)
