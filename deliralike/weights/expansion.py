"""What is refused before it is read: a file that unfolds into far more than it holds, a name that no file has."""

import os
import zipfile
from itertools import pairwise
from pathlib import Path

from deliralike.errors import WeightFileError

_ALWAYS_ALLOWED, _MOST_EXPANSION = 64 * 2**20, 100  # bytes; weights hardly compress: a file does not grow a hundredfold
_LEAST_HEADER = 30  # bytes before each member of a zip


def refuse_expansion(path: Path, size: int, packed: int | None = None) -> None:
    """An error when a file unfolds into far more bytes than weights ever do; for readers of packed formats.

    Args:
        size: The bytes that it claims to hold.
        packed: The bytes that it has; the file's size when not given.
    """
    packed = path.stat().st_size if packed is None else packed
    if size > max(_ALWAYS_ALLOWED, _MOST_EXPANSION * packed):
        raise WeightFileError(
            f"{path} of {packed:,} bytes claims to hold {size:,} bytes of arrays, more than {_MOST_EXPANSION} times "
            f"its size: it is damaged or hostile, and was not unpacked"
        )


def refuse_hostile_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """An error when no writer of weights has made this archive: what it claims is checked before it is unpacked.

    Raises:
        WeightFileError: It unfolds into too much, is packed by something else than deflate (whose memory is bounded),
            has two members of one name, which readers choose between as they like, or members that overlap.
    """
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    refuse_expansion(path, sum(member.file_size for member in members))
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise WeightFileError(f"{path} has the member {member.filename!r}, packed in a way that weights never are")
    if len(archive.NameToInfo) != len(members):
        raise WeightFileError(f"{path} has two members of one name: it is damaged or hostile")
    for member, following in pairwise(members):
        if member.header_offset + _LEAST_HEADER + member.compress_size > following.header_offset:
            raise WeightFileError(
                f"{path} has the members {member.filename!r} and {following.filename!r}, which overlap: it is damaged "
                f"or hostile"
            )


def refuse_nul(path: str | os.PathLike[str]) -> Path:
    """The path, which holds no NUL: no file may be called so."""
    if "\0" in os.fspath(path):
        raise WeightFileError(f"{os.fspath(path)!r} has a NUL character in it, which no file's name may have")
    return Path(path)
