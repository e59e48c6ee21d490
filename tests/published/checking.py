"""The registry against the network: whether address, size, hash, keys and accuracy hold.

``python -m tests.published.checking 'resnet*'`` checks the entries of some architectures; the exit
code is 1 if something differs or does not answer.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError
from huggingface_hub.utils import hf_raise_for_status, http_backoff, httpx

from deliralike import weights as weight_files
from deliralike import zoo
from deliralike.errors import (
    DeliralikeError,
    DownloadError,
    SettingError,
    WeightFileError,
)
from deliralike.tables import text_table
from deliralike.weights.downloads import HubFile, RemoteFile, WebFile
from deliralike.zoo import building, images, loading, registry
from deliralike.zoo.published.entries import Published

COLUMNS = ("architecture", "name", "address", "size", "hash", "keys", "accuracy")
NOT_CHECKED = "not checked"
NO_ANSWER = "no answer: "

_AGREES = "agrees"
_DIFFERS = "differs: "
_PICTURES_AT_ONCE = 32


@dataclass(frozen=True)
class Check:
    """What was found of one entry; `NOT_CHECKED` stands where nothing was looked at.

    Attributes:
        entry: The entry.
        address: Whether the address answers.
        size, hash, keys, accuracy: Whether they are those of the registry.
    """

    entry: Published
    address: str = NOT_CHECKED
    size: str = NOT_CHECKED
    hash: str = NOT_CHECKED
    keys: str = NOT_CHECKED
    accuracy: str = NOT_CHECKED

    @property
    def findings(self) -> tuple[str, ...]:
        """The five findings, in the order of `COLUMNS`."""
        return (self.address, self.size, self.hash, self.keys, self.accuracy)

    @property
    def agrees(self) -> bool:
        """Whether the address answers, and nothing differs from the registry."""
        wrong = (_DIFFERS, NO_ANSWER)
        return not any(finding.startswith(wrong) for finding in self.findings)

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table."""
        return (self.entry.architecture, self.entry.name, *self.findings)


def check(
    entry: Published,
    download: bool = False,
    data: Path | None = None,
    backend: str | None = None,
) -> Check:
    """Check one entry, as far as it can be without a download, or with one.

    Args:
        download: Download the file, to check hash and keys; a file in the cache is always checked.
        data: A folder of pictures with a folder for each class; the accuracy on it is measured.
        backend: The backend to compute the accuracy on; the first available one when not given.
    """
    address, size = _asked(entry)
    if not (download or data is not None or entry.file.stored() is not None):
        return Check(entry, address, size)
    try:
        path = entry.fetch()
    except DownloadError:
        return Check(entry, address, size)
    except WeightFileError as error:
        return Check(entry, address, size, f"{_DIFFERS}{error}")
    keys = _keys(entry, path)
    accuracy = NOT_CHECKED
    if data is not None and keys == _AGREES:
        accuracy = _accuracy(entry, data, backend)
    return Check(entry, address, size, _hash(entry), keys, accuracy)


def summary(checks: Sequence[Check]) -> str:
    """Return sentences that say of how many entries what was checked, and with what result."""
    agreeing = []
    differing = []
    for index, column in enumerate(COLUMNS[2:]):
        findings = [one.findings[index] for one in checks]
        agreeing.append(f"{column} {findings.count(_AGREES)}")
        wrong = sum(finding.startswith(_DIFFERS) for finding in findings)
        if wrong:
            differing.append(f"{column} {wrong}")
    silent = sum(one.address.startswith(NO_ANSWER) for one in checks)
    words = [f"Of {len(checks)} entries agree: {', '.join(agreeing)}."]
    if differing:
        words.append(f"Differ: {', '.join(differing)}.")
    if silent:
        words.append(f"No answer: {silent}.")
    return " ".join([*words, "Everything else was not checked."])


def _asked(entry: Published) -> tuple[str, str]:
    try:
        size = _stated_size(entry.file)
    except (OSError, httpx.HTTPError) as error:
        response = getattr(error, "response", None)
        if response is None:
            return f"{NO_ANSWER}{error}", NOT_CHECKED
        answer = f"the server answered {response.status_code}"
        return f"{_DIFFERS}{answer}", NOT_CHECKED
    if size is None or entry.megabytes is None:
        return _AGREES, "not stated"
    megabytes = size / 2**20
    if abs(megabytes - entry.megabytes) < 0.01:
        return _AGREES, _AGREES
    return _AGREES, f"{_DIFFERS}{megabytes:.3f} MiB, the registry has {entry.megabytes}"


def _stated_size(file: RemoteFile) -> int | None:
    """Return the number of bytes that the server states; nothing is downloaded."""
    if isinstance(file, HubFile):
        *others, last = file.filenames
        for name in others:
            with suppress(EntryNotFoundError):
                return _size_on_the_hub(file, name)
        return _size_on_the_hub(file, last)
    # a compressed answer would have another length
    answer = http_backoff(
        "HEAD",
        file.url,
        headers={"Accept-Encoding": "identity"},
        follow_redirects=True,
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
    )
    hf_raise_for_status(answer)
    length = answer.headers.get("Content-Length")
    return None if length is None else int(length)


def _size_on_the_hub(file: HubFile, name: str) -> int | None:
    url = hf_hub_url(file.repository, name, revision=file.revision)
    return get_hf_file_metadata(url).size


def _hash(entry: Published) -> str:
    """Return the finding for a file that was fetched, which held it against its hash."""
    if not isinstance(entry.file, WebFile):
        return "as the Hub states"
    return _AGREES if entry.file.sha256 else "not stated"


def _keys(entry: Published, path: Path) -> str:
    outline = importlib.import_module("deliralike.backends.outline").BACKEND
    network = registry.find(entry.architecture).on(outline)(**dict(entry.settings))
    try:
        plan = loading.Plan.of(network, weight_files.contents(path).states)
    except DeliralikeError as error:
        return f"{_DIFFERS}{error}"
    return _AGREES if plan.fits else f"{_DIFFERS}{plan.problem()}"


def _accuracy(entry: Published, data: Path, backend: str | None) -> str:
    """Compare the share of right answers with the published one, within chance.

    The bound is two standard deviations of the share of as many pictures.
    """
    if entry.preprocessing is None or entry.classes is None:
        return NOT_CHECKED
    pictures = _pictures(data, entry)
    backends = importlib.import_module("deliralike.backends")
    network = building.build(
        entry.architecture,
        backend=backend or backends.available()[0],
        weights=entry.name,
    )
    right = 0
    for start in range(0, len(pictures), _PICTURES_AT_ONCE):
        some = pictures[start : start + _PICTURES_AT_ONCE]
        answers = images.classify(network, [path for path, _ in some], top=1)
        for (best,), (_, wanted) in zip(answers, some, strict=True):
            right += best.index == wanted
    share = right / len(pictures)
    found = f"{share:.2%} of {len(pictures)} pictures"
    published = [value for _, metric, value in entry.metrics if metric == "acc@1"]
    if not published:
        return f"{found}, none is published"
    expected = published[0] / 100
    bound = 2 * math.sqrt(expected * (1 - expected) / len(pictures))
    if abs(share - expected) <= bound:
        return _AGREES
    return f"{_DIFFERS}{found}, published {expected:.2%}"


def _pictures(data: Path, entry: Published) -> list[tuple[Path, int]]:
    """Return the files below a folder with the numbers of their classes.

    The folders have the labels' names, or are as many as there are classes, in their order.
    """
    folders = sorted(path for path in data.iterdir() if path.is_dir())
    labels: dict[Any, int] = {}
    for index, label in enumerate(entry.label_names()):
        labels.setdefault(label, index)
    names = [folder.name for folder in folders]
    if names and all(name in labels for name in names):
        numbers = [labels[name] for name in names]
    elif len(names) == entry.classes:
        numbers = list(range(len(names)))
    else:
        raise SettingError(
            f"{data} has {len(names)} folders: wanted one for each of the {entry.classes} classes "
            f"of {entry.name}, or folders with the names of classes"
        )
    pictures = []
    for folder, number in zip(folders, numbers, strict=True):
        for path in sorted(folder.iterdir()):
            pictures.append((path, number))
    return pictures


def main(arguments: Sequence[str]) -> int:
    """Check the entries that the command line names, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.published.checking")
    parser.add_argument("pattern", nargs="?", default="*", help="architectures")
    parser.add_argument("--name", default="*", help="only weights of these names")
    parser.add_argument(
        "--download", action="store_true", help="fetch every file; check hash and keys"
    )
    parser.add_argument(
        "--data", type=Path, help="pictures in a folder for each class: the accuracy"
    )
    parser.add_argument("--backend", help="the backend for --data")
    options = parser.parse_args(arguments)
    entries = [
        entry
        for entry in zoo.weights(options.pattern)
        if fnmatch.fnmatchcase(entry.name, options.name)
    ]
    if not entries:
        parser.error(f"no weights match {options.pattern!r} and {options.name!r}")
    checks = [
        check(entry, options.download, options.data, options.backend)
        for entry in entries
    ]
    print(text_table(list(COLUMNS), [one.row() for one in checks]))
    print(summary(checks))
    return 0 if all(one.agrees for one in checks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
