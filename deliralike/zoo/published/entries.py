"""An entry of the registry, the table of several, and the reading of the files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from deliralike.errors import UnknownName, suggestion
from deliralike.tables import text_table
from deliralike.weights.downloads import HubFile, RemoteFile, WebFile
from deliralike.zoo.images import Preprocessing

SOURCES = ("torchvision", "timm", "transformers", "smp", "monai")


@dataclass(frozen=True)
class Published:
    """Weights that somebody has published for an architecture.

    Attributes:
        architecture: The name in the zoo.
        name: The name for ``build(..., weights=name)``.
        file: The place of the file on the network.
        megabytes: The size that the publisher states, in MiB; None where none does.
        classes: The number of classes; None where the file has no head.
        labels: The name of the set of labels, or the labels themselves; empty if not known.
        metrics: The published figures: data set, metric, value.
        license: The licence that the publisher states; None where none does.
        preprocessing: The preparation of pictures; None for other inputs.
        settings: The settings under which the architecture is the publisher's network, as pairs.
        default: Whether ``weights="pretrained"`` means this entry: the one that its source calls
            the default, or the first one with a head.
    """

    architecture: str
    name: str
    file: RemoteFile
    megabytes: float | None = None
    classes: int | None = None
    labels: str | tuple[str, ...] = ""
    metrics: tuple[tuple[str, str, float], ...] = ()
    license: str | None = None
    preprocessing: Preprocessing | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    default: bool = False

    def fetch(self) -> Path:
        """Return the file, downloaded if it is not in the cache, and checked; for `zoo.load`.

        Raises:
            DownloadError: The file cannot be had.
            WeightFileError: Its hash is another one.
            BackendUnavailable: huggingface_hub is not installed.
        """
        return self.file.fetch()

    def label_names(self) -> tuple[str, ...]:
        """Return the names of the classes, in order; empty where they are not known."""
        if isinstance(self.labels, tuple):
            return self.labels
        if not self.labels:
            return ()
        return label_sets()[self.labels]

    def without_head(self) -> Published:
        """Return the entry of a network whose head was not loaded from the file."""
        return replace(self, classes=None, labels="")

    @property
    def source(self) -> str:
        """The address, or the repository with its revision."""
        return str(self.file)

    @property
    def accuracy(self) -> str:
        """The first published figure in words; ``"not stated"`` where there is none."""
        if not self.metrics:
            return "not stated"
        data, metric, value = self.metrics[0]
        return f"{value:g} {metric} ({data})"


class WeightsTable(tuple[Published, ...]):
    """Entries of the registry; printed, a table.

    Example:
        >>> from deliralike import zoo
        >>> print(zoo.weights("lenet"))
        no published weights
    """

    COLUMNS = (
        "architecture",
        "name",
        "classes",
        "accuracy",
        "licence",
        "size",
        "preprocessing",
    )

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of each entry, in the order of `COLUMNS`."""
        return [_row(entry) for entry in self]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entries."""
        return tuple(entry.name for entry in self)

    def find(self, name: str) -> Published:
        """Return the first entry of that name.

        Raises:
            UnknownName: There is none; the message names the nearest.
        """
        for entry in self:
            if entry.name == name:
                return entry
        raise UnknownName(
            f"the table has no weights {name!r}. {suggestion(name, self.names)}"
        )

    def __str__(self) -> str:
        """Return a table with a line for each entry."""
        if not self:
            return "no published weights"
        return text_table(self.COLUMNS, self.rows())

    __repr__ = __str__


def _row(entry: Published) -> tuple[str, ...]:
    classes = "no head" if entry.classes is None else str(entry.classes)
    size = "not stated"
    if entry.megabytes is not None:
        size = f"{entry.megabytes:.1f} MiB"
    name = f"{entry.name} *" if entry.default else entry.name
    return (
        entry.architecture,
        name,
        classes,
        entry.accuracy,
        entry.license or "not stated",
        size,
        str(entry.preprocessing or ""),
    )


@cache
def registry() -> WeightsTable:
    """Return every entry, in the order of the sources; each architecture has one default."""
    entries = []
    for source in SOURCES:
        content = json.loads(_text(f"{source}.json"))
        entries += [_entry(record) for record in content["weights"]]
    best: dict[str, Published] = {}
    for entry in entries:
        best[entry.architecture] = max(
            best.get(entry.architecture, entry), entry, key=_rank
        )
    return WeightsTable(
        replace(entry, default=entry is best[entry.architecture]) for entry in entries
    )


def _rank(entry: Published) -> tuple[bool, bool]:
    return entry.default, entry.classes is not None


@cache
def label_sets() -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of each data set."""
    content = json.loads(_text("labels.json"))
    return {name: tuple(labels) for name, labels in content.items()}


def _text(name: str) -> str:
    return (files("deliralike.zoo.published") / name).read_text(encoding="utf-8")


def _entry(record: Mapping[str, Any]) -> Published:
    stated = record.get("preprocessing")
    return Published(
        record["architecture"],
        record["name"],
        _file(record),
        record.get("size"),
        record.get("classes"),
        record.get("labels", ""),
        tuple(_metrics(record.get("metrics", {}))),
        record.get("license"),
        None if stated is None else Preprocessing(**_hashable(stated)),
        tuple(_hashable(record.get("settings", {})).items()),
        record.get("default", False),
    )


def _file(record: Mapping[str, Any]) -> RemoteFile:
    if "url" in record:
        return WebFile(record["url"], record.get("sha256", ""))
    file = HubFile(record["repository"], record.get("revision", "main"))
    if "filename" in record:
        return replace(file, filenames=(record["filename"],))
    return file


def _metrics(
    metrics: Mapping[str, Mapping[str, float]],
) -> Iterable[tuple[str, str, float]]:
    for data, values in metrics.items():
        for metric, value in values.items():
            yield data, metric, value


def _hashable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with tuples in place of lists."""
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in values.items()
    }
