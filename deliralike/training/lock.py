"""A lock on a folder that processes write to: one of them holds it, and errors name the holder.

The kernel holds the lock, on a file beside the written one, in which the holder's name stands. So
the lock of a killed process is free at once; its file is taken over. On a disk that has no locks
(some network file systems) there is none.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deliralike.errors import CheckpointError

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_held: set[int] = set()  # descriptors of this process


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock in a block.

    Args:
        path: The lock's file; it exists while the lock is held, and after a kill.
        what: The name of the guarded folder or file, for the error.

    Raises:
        CheckpointError: Another process or thread holds it; the message names its host, its number
            and the time.
        OSError: The disk refuses.
    """
    descriptor = _locked(path)
    if descriptor is None:
        raise CheckpointError(
            f"{what} is being written by {_holder(path)}: wait for it, stop it, or give another "
            "folder"
        )
    _held.add(descriptor)
    holder = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    with suppress(OSError):  # a full disk: it is held without a name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    try:
        yield
    finally:
        if descriptor in _held:  # and not that of a process that has been forked from
            with suppress(OSError):  # its folder may be gone, which was said already
                path.unlink()
            _held.remove(descriptor)
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Return a descriptor of the file that holds its lock; None if another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # the one before removed its file meanwhile


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _forget() -> None:
    """Close what a forked child has inherited, which would keep the lock of a dead parent."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
