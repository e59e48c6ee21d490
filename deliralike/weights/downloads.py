"""Files of weights on the network: fetched when asked for, into the user's cache, and checked.

Requests are those of `huggingface_hub`, also to other hosts: they wait where a server asks for it,
take proxies from the environment and work offline. Files of the Hub lie in its cache. Each file is
held against its hash before each use.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deliralike.errors import (
    BackendUnavailable,
    DownloadError,
    SettingError,
    WeightFileError,
    reason,
)

_NEEDED = (
    "downloading weights needs the package 'huggingface_hub': "
    "pip install 'deliralike[weights]'"
)
_OFFLINE = "HF_HUB_OFFLINE=1 forbids the network"
_REFUSED = (401, 403)
_COMMIT = "[0-9a-f]{40}"
_REPOSITORY = (
    r"(?!.*(--|\.\.|\.git$))(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b"  # as the Hub names them
)
_DELETE = "Delete it to download it again"
_MISMATCH = "It was not kept: the address, or a proxy, gives another file"


@dataclass(frozen=True)
class WebFile:
    """A file at an address.

    Attributes:
        url: The address; its last part is the name of the file in the cache.
        sha256: The hash, or its beginning; empty where it is not known.

    Example:
        >>> WebFile("https://download.pytorch.org/models/alexnet-owt-7be5be79.pth").place.name
        'alexnet-owt-7be5be79.pth'
    """

    url: str
    sha256: str = ""

    def __str__(self) -> str:
        return self.url

    @property
    def place(self) -> Path:
        """The file in the cache, whether it is there or not; see `web_cache`."""
        return web_cache() / Path(urlsplit(self.url).path).name

    def stored(self) -> Path | None:
        """Return the file in the cache, if it is there."""
        return self.place if self.place.is_file() else None

    def fetch(self) -> Path:
        """Return the file in the cache; it is downloaded if it is not there, and checked.

        Of several processes one downloads, the others wait.

        Raises:
            DownloadError: The file cannot be had.
            WeightFileError: Its hash is another one.
            BackendUnavailable: huggingface_hub is not installed.
        """
        path = self.place
        if not path.is_file():
            hub = _library()
            advice = f"fetch it elsewhere and put it at {path}"
            with _explaining(self.url, advice):
                path.parent.mkdir(parents=True, exist_ok=True)
                with hub.utils.WeakFileLock(path.with_name(f"{path.name}.lock")):
                    if not path.is_file():  # another process may have been quicker
                        self._download(hub)
        _check(path, self.sha256, str(self), _DELETE)
        return path

    def _download(self, hub: Any) -> None:
        part = self.place.with_name(f"{self.place.name}.part")
        with part.open("wb") as file:
            hub.file_download.http_get(
                self.url, file, displayed_filename=self.place.name
            )
        try:
            _check(part, self.sha256, str(self), _MISMATCH)
        except WeightFileError:
            part.unlink()
            raise
        part.replace(self.place)


@dataclass(frozen=True)
class HubFile:
    """A file in a repository of the Hugging Face Hub, in the cache of `huggingface_hub`.

    Attributes:
        repository: ``"owner/name"``.
        revision: A commit, tag or branch.
        filenames: The names that the file may have, the preferred one first. The last of the usual
            ones is that of MONAI's bundles.
    """

    repository: str
    revision: str = "main"
    filenames: tuple[str, ...] = (
        "model.safetensors",
        "pytorch_model.bin",
        "models/model.pt",
    )

    def __post_init__(self) -> None:
        """Check what becomes the name of a file in the cache.

        Raises:
            SettingError: The repository has no proper name, or the revision or a filename is a path
                to somewhere else.
        """
        if not re.fullmatch(_REPOSITORY, self.repository):
            raise SettingError(
                f"{self.repository!r} is no repository of the Hub, wanted 'owner/name'"
            )
        for value in (self.revision, *self.filenames):
            if not value.isprintable() or {"", ".", ".."}.intersection(
                value.split("/")
            ):
                raise SettingError(
                    f"{value!r} is no revision or file of {self.repository!r}, wanted a commit, "
                    "tag or branch, and names without a way upwards"
                )

    def __str__(self) -> str:
        place = f"{self.repository}@{self.revision} on the Hugging Face Hub"
        if len(self.filenames) == 1:
            return f"{self.filenames[0]} of {place}"
        return place

    def stored(self) -> Path | None:
        """Return the file in the cache, if it is there."""
        find = _library().try_to_load_from_cache
        for filename in self.filenames:
            path = find(self.repository, filename, revision=self.revision)
            if isinstance(path, str):
                return Path(path)
        return None

    def fetch(self) -> Path:
        """Return the file in the cache; it is downloaded if it is not there, and checked.

        The hash is the one that the Hub stated when the file was downloaded. It and the commit are
        looked at before anything is written, as they become names in the cache.

        Raises:
            DownloadError: The file cannot be had, or the repository has none of the names.
            WeightFileError: Its hash is another one.
            BackendUnavailable: huggingface_hub is not installed.
        """
        path = self.stored()
        if path is None or not re.fullmatch(_COMMIT, self.revision):
            try:
                path = self._download(_library(), retry=path is None)
            except DownloadError:
                if path is None:
                    raise
        # it is named after its hash
        _check(path, path.resolve().name, str(self), _DELETE)
        return path

    def _found(self, hub: Any, retry: bool) -> tuple[str, Any]:
        """Return the first of the names that the repository has, and what the Hub states of it."""
        missing: Any = None
        for filename in self.filenames:
            url = hub.hf_hub_url(self.repository, filename, revision=self.revision)
            try:
                return filename, hub.get_hf_file_metadata(url, retry_on_errors=retry)
            except hub.errors.EntryNotFoundError as error:
                missing = error
        raise missing

    def _download(self, hub: Any, retry: bool) -> Path:
        """Download a file; what the Hub states becomes names in the cache, and is checked."""
        advice = (
            f"'hf download {self.repository} --revision {self.revision}' elsewhere, and copy the "
            f"folder of it to {hub.constants.HF_HUB_CACHE}"
        )
        with _explaining(str(self), advice):
            filename, stated = self._found(hub, retry)
            for what, value, pattern in (
                ("an ETag", stated.etag, f"{_COMMIT}|[0-9a-f]{{64}}"),
                ("a commit", stated.commit_hash, _COMMIT),
            ):
                if not re.fullmatch(pattern, value or ""):
                    raise DownloadError(
                        f"{self} was not downloaded: the server gave {what} that is no hash: "
                        f"{value!r:.100}"
                    )
            found = hub.hf_hub_download(
                self.repository, filename, revision=self.revision
            )
        return Path(found)


RemoteFile = WebFile | HubFile


def web_cache() -> Path:
    """Return the folder of files that do not come from the Hub.

    It is that of ``torch.hub``, so that files which are there already are used:
    ``$TORCH_HOME/hub/checkpoints``, where ``TORCH_HOME`` is ``~/.cache/torch`` if it is not set.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    torch_home = os.environ.get("TORCH_HOME") or f"{caches}/torch"
    return Path(torch_home).expanduser() / "hub" / "checkpoints"


def _check(path: Path, wanted: str, source: str, remedy: str) -> None:
    """Raise an error unless a file has a hash: SHA-256, or that of git for a small file."""
    if not wanted:
        return
    kind = "SHA-256"
    with path.open("rb") as file:
        if len(wanted) == 40:
            kind = "hash of git"
            content = file.read()
            digest = hashlib.sha1(usedforsecurity=False)
            digest.update(b"blob %d\0" % len(content) + content)
        else:
            digest = hashlib.file_digest(file, "sha256")
    came = digest.hexdigest()
    if not came.startswith(wanted):
        raise WeightFileError(
            f"{path} is not what was published as {source}: its {kind} begins with "
            f"{came[: len(wanted)]}, wanted {wanted}. {remedy}"
        )


def _library() -> Any:
    """Return huggingface_hub with the modules that are used here, which it would load late."""
    try:
        for module in ("constants", "errors", "file_download", "utils"):
            importlib.import_module(f"huggingface_hub.{module}")
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise BackendUnavailable(_NEEDED) from error


@contextmanager
def _explaining(source: str, advice: str) -> Iterator[None]:
    """Turn any failure of the transfer into an error that says what to do."""
    httpx = _library().utils.httpx
    errors = (OSError, httpx.HTTPError, httpx.InvalidURL)
    try:
        yield
    except (DownloadError, WeightFileError):
        raise
    except errors as error:
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        message = f"{source} cannot be downloaded: {_reason(error, response)}"
        is_of_disk = getattr(error, "errno", None) is not None
        if status is None and not is_of_disk:
            message = f"{message}. Without a network: {advice}"
        raise DownloadError(message, status) from error


def _reason(error: BaseException, response: Any) -> str:
    if response is not None:
        wait = response.headers.get("Retry-After")
        later = f", to be asked again after {wait} seconds" if wait else ""
        words = f"the server answered {response.status_code} {response.reason_phrase}{later}"
        if response.status_code in _REFUSED:
            words = f"{words} (it does not exist, or HF_TOKEN must name someone who may read it)"
        return words
    if _library().constants.HF_HUB_OFFLINE:
        return _OFFLINE
    return reason(error)
