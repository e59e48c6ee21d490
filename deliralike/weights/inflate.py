"""Checks before a file is unpacked: its size when inflated, its members, its name."""

import os
import zipfile
from itertools import pairwise
from pathlib import Path

from deliralike.errors import WeightFileError

AnyPath = str | os.PathLike[str]

_ALWAYS_ALLOWED = 64 * 2**20  # bytes
_MOST_EXPANSION = (
    100  # weights hardly compress, so their files never grow a hundredfold
)
_LEAST_HEADER = 30  # bytes before each member of a zip


def refuse_expansion(
    path: Path, size: int, packed: int | None = None, *, allowed: int = _ALWAYS_ALLOWED
) -> None:
    """Raise an error if a packed file inflates into far more bytes than weights or data ever do.

    Args:
        size: The number of bytes that the file claims to hold.
        packed: The number of bytes that it has; the file's size when not given.
        allowed: A number of bytes that is taken from any file.

    Raises:
        WeightFileError: The file claims to hold too much.
    """
    if packed is None:
        packed = path.stat().st_size
    if size > max(allowed, _MOST_EXPANSION * packed):
        raise WeightFileError(
            f"{path} of {packed:,} bytes claims to hold {size:,} bytes of arrays, more than "
            f"{_MOST_EXPANSION} times its size: it is damaged or hostile, and was not unpacked"
        )


def refuse_hostile_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise an error for an archive that no writer of weights makes; nothing is unpacked.

    Raises:
        WeightFileError: The archive inflates into too much, is packed by something else than
            deflate (whose memory is bounded), has two members of one name, which readers choose
            between as they like, or members that overlap.
    """
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    refuse_expansion(path, sum(member.file_size for member in members))
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise WeightFileError(
                f"{path} has the member {member.filename!r}, packed in a way that weights never are"
            )
    if len(archive.NameToInfo) != len(members):
        raise WeightFileError(
            f"{path} has two members of one name: it is damaged or hostile"
        )
    for member, following in pairwise(members):
        end = member.header_offset + _LEAST_HEADER + member.compress_size
        if end > following.header_offset:
            raise WeightFileError(
                f"{path} has the members {member.filename!r} and {following.filename!r}, which "
                "overlap: it is damaged or hostile"
            )


def refuse_nul(path: AnyPath) -> Path:
    """Return the path, or raise an error if it holds a NUL, which no file's name may have."""
    if "\0" in os.fspath(path):
        raise WeightFileError(
            f"{os.fspath(path)!r} has a NUL character in it, which no file's name may have"
        )
    return Path(path)
