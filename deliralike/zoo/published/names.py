"""The names of published weights: which are known, and which entry a name means."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from deliralike.errors import SettingError, UnknownName, suggestion
from deliralike.weights.downloads import HubFile
from deliralike.zoo.published import descriptions
from deliralike.zoo.published.entries import Published, WeightsTable, registry

BEST = "pretrained"
HUB = "hf-hub:"
_PREFIXES = ("torchvision/", "timm/", "smp/", "monai/", HUB)


def weights(name: str = "*") -> WeightsTable:
    """Return the published weights of an architecture, or of all whose names match a pattern.

    The entry that ``weights="pretrained"`` means is marked by a star in the printed table. What the
    table says is what the publishers' libraries say.

    Example:
        >>> for entry in weights("alexnet"):
        ...     print(entry.name, entry.classes, entry.accuracy)
        torchvision/IMAGENET1K_V1 1000 56.522 acc@1 (ImageNet-1K)
    """
    return WeightsTable(
        entry for entry in registry() if fnmatch.fnmatchcase(entry.architecture, name)
    )


def is_name(value: Any) -> bool:
    """Return whether a value has the form of a name; any other text is a file.

    Example:
        >>> is_name("pretrained"), is_name("timm/resnet50.a1_in1k"), is_name("./timm/resnet50.pth")
        (True, True, False)
    """
    return isinstance(value, str) and (value == BEST or value.startswith(_PREFIXES))


def choose(architecture: str, name: str, known: Collection[str] = ()) -> Published:
    """Return the entry of a name for an architecture.

    A repository of the Hub that is not in the registry (``hf-hub:owner/name``) is described by the
    files of settings in it, which are downloaded for that. ``@revision`` may follow the name of a
    repository.

    Args:
        known: The settings of the architecture, of which those may be set that the description of
            such a repository states.

    Raises:
        UnknownName: There is no such entry.
        SettingError: The weights are another architecture's.
        DownloadError: The description of a repository cannot be had.
    """
    if name == BEST:
        return _pretrained(architecture)
    asked, _, revision = name.partition("@")
    if asked.startswith(f"{HUB}timm/"):  # timm's own way of saying it
        asked = asked.removeprefix(HUB)
    others = []
    for entry in registry():
        if entry.name != asked:
            continue
        if entry.architecture == architecture:
            return _at(entry, revision)
        others.append(entry.architecture)
    if name.startswith(HUB) and not others:
        file = HubFile(name.removeprefix(HUB).partition("@")[0], revision or "main")
        return descriptions.described(architecture, name, file, known)
    if others and not asked.startswith("torchvision/"):
        raise SettingError(
            f"{name!r} are weights of {' and '.join(map(repr, others))}, not of {architecture!r}: "
            f"zoo.build({others[0]!r}, ..., weights={name!r})"
        )
    names = weights(architecture).names
    raise UnknownName(
        f"there are no published weights {name!r} of {architecture!r}. "
        f"{suggestion(name, names)} {how_to_see_all(architecture)}"
    )


def how_to_see_all(architecture: str) -> str:
    """Return a sentence that says where the names are listed."""
    return f"zoo.weights({architecture!r}), or deliralike zoo {architecture} --weights, lists all"


def _pretrained(architecture: str) -> Published:
    for entry in registry():
        if entry.architecture == architecture and entry.default:
            return entry
    raise UnknownName(
        f"nobody is known to have published weights of {architecture!r}; zoo.weights() lists those "
        "of all architectures, and weights='hf-hub:owner/name' takes any repository of the Hub"
    )


def _at(entry: Published, revision: str) -> Published:
    if not revision:
        return entry
    if not isinstance(entry.file, HubFile):
        raise SettingError(
            f"{entry.name!r} is no repository, so it has no revision {revision!r}"
        )
    return replace(
        entry,
        name=f"{entry.name}@{revision}",
        file=replace(entry.file, revision=revision),
    )
