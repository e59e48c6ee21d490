"""Parameter groups state which parameters have settings that differ from the rule's.

An optimizer updates the parameters of a group with these settings.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deliralike.errors import (
    ArgumentError,
    SettingError,
    matching,
    refuse_unknown_settings,
)
from deliralike.optim.rules import Rule, number

if TYPE_CHECKING:
    from deliralike.network.state import Slot

Settings = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Groups:
    """Groups hold an optimizer's rule and its variants for some parameters.

    A variant is the same rule with other settings for parameters whose names match a pattern.

    Attributes:
        rules: The rule for all other parameters, then its variants, none of them twice.
        patterns: Patterns of neutral names; the first one that matches a name decides.
        places: The place in `rules` of each pattern's variant.
        first: The rules' learning rates at the start; their ratios are kept.

    Example:
        >>> from deliralike.optim.rules import rule
        >>> groups = Groups.of(rule("sgd", lr=0.5), {"encoder.*": {"lr": 0.25}})
        >>> groups.with_lr(0.25).rules[groups.index("encoder.weight")].lr
        0.125
    """

    rules: tuple[Rule, ...]
    patterns: tuple[str, ...]
    places: tuple[int, ...]
    first: tuple[float, ...]

    @classmethod
    def of(cls, rule: Rule, settings: Settings | None = None) -> Groups:
        """Return groups from the settings that differ from the rule's, by patterns of names.

        Raises:
            ArgumentError: `rule` is none, it has no such setting, or `settings` is no mapping of
                mappings.
            SettingError: A setting makes no sense, or the rule's learning rate is 0 and a group's
                is not.
        """
        if not isinstance(rule, Rule):
            raise ArgumentError(
                f"an optimizer is made of an update rule, not of {rule!r}: wanted "
                "rules.rule('adam', lr=1e-3); an optimizer of a framework goes to "
                "backend.wrap_optimizer"
            )
        if settings is not None and not isinstance(settings, Mapping):
            raise ArgumentError(
                f"groups={settings!r}: wanted patterns with settings, {{'*.bias': {{...}}}}"
            )
        settings = settings or {}
        rules = [rule]
        places = []
        for pattern, differing in settings.items():
            variant = _variant(rule, pattern, differing)
            if variant not in rules:
                rules.append(variant)
            places.append(rules.index(variant))
        rates = tuple(each.lr for each in rules)
        return cls(tuple(rules), tuple(settings), tuple(places), rates)

    @property
    def lr(self) -> float:
        """The learning rate of the rule itself."""
        return self.rules[0].lr

    def with_lr(self, lr: float) -> Groups:
        """Return the same groups with another learning rate.

        A group's own learning rate keeps its ratio to it.
        """
        rules = []
        for rule, own in zip(self.rules, self.first, strict=True):
            rules.append(rule.with_lr(scaled_lr(own, self.first[0], lr)))
        return replace(self, rules=tuple(rules))

    def without_lr(self) -> tuple[Rule, ...]:
        """Return the rules with a learning rate of 0.

        They are what stays the same when the learning rate changes, for a compiled step.
        """
        return tuple(rule.with_lr(0.0) for rule in self.rules)

    def index(self, *names: str) -> int:
        """Return the place in `rules` of a parameter by its names (several, where it is tied)."""
        pattern = first_matching(self.patterns, *names)
        return 0 if pattern is None else self.places[self.patterns.index(pattern)]

    def indices(self, slots: Mapping[str, Slot]) -> dict[str, int]:
        """Return the place in `rules` of each parameter, by the names of `slots`.

        A tied parameter has one place under all its names.

        Raises:
            UnknownName: A pattern matches no parameter.
        """
        for pattern in self.patterns:
            matching(pattern, slots, "groups: no parameter")
        names: dict[int, list[str]] = {}  # of each native parameter
        for name, slot in slots.items():
            names.setdefault(id(slot.native), []).append(name)
        indices = {}
        for name, slot in slots.items():
            indices[name] = self.index(*names[id(slot.native)])
        return indices


def first_matching(patterns: Iterable[str], *names: str) -> str | None:
    """Return the first pattern that one of a parameter's names matches; None where there is none.

    Example:
        >>> first_matching(["*.bias", "fc.*"], "fc.weight"), first_matching([], "fc.weight")
        ('fc.*', None)
    """
    for pattern in patterns:
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            return pattern
    return None


def scaled_lr(own: float, first: float, lr: float) -> float:
    """Return a group's learning rate when that of the first group becomes `lr`.

    The ratio they started with is kept.

    Raises:
        SettingError: The learning rate of the first group started at 0, which has no ratio to
            another.
    """
    if own == first:
        return number(lr)
    refuse_lost_ratio(own, first, "a group of parameters")
    return own * (number(lr) / first)


def refuse_lost_ratio(own: float, first: float, where: str) -> None:
    """Refuse a learning rate that has no ratio to that of the first group, since that is 0.

    Args:
        where: What has the learning rate, for the message.

    Raises:
        SettingError: Names `where`.
    """
    if own and not first:
        raise SettingError(
            f"{where} has lr={own!r} while the optimizer's own is 0: groups keep their ratio to "
            "it, so start with an optimizer's lr above 0 and set it to 0 later"
        )


def _variant(rule: Rule, pattern: str, settings: Mapping[str, Any]) -> Rule:
    """Return the rule with the settings of one group.

    Raises:
        ArgumentError: The rule has no such setting, or `settings` is no mapping.
        SettingError: A setting makes no sense.
    """
    where = f"groups[{pattern!r}]"
    if not isinstance(settings, Mapping):
        raise ArgumentError(
            f"{where}={settings!r}: wanted settings by name, such as {{'weight_decay': 0.0}}"
        )
    refuse_unknown_settings(where, settings, rule.settings())
    try:
        variant = replace(rule, **settings)
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None
    refuse_lost_ratio(variant.lr, rule.lr, where)
    return variant
