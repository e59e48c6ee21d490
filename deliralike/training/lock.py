"""A lock on a folder that processes write to: one of them holds it.

The kernel holds the lock, so that of a killed process is free at once. On a disk that has no locks
(some network file systems) there is none.
"""

from __future__ import annotations

import errno
import fcntl
import os
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
        path: The lock's file, beside what is written; it exists while the lock is held, and after a
            kill.
        what: The name of the guarded folder or file, for the error.

    Raises:
        CheckpointError: Another process or thread holds it.
        OSError: The disk refuses.
    """
    descriptor = _locked(path)
    if descriptor is None:
        raise CheckpointError(
            f"{what} is being written by another process: wait for it, stop it, or give another "
            "folder"
        )
    _held.add(descriptor)
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
            if not take_lock(descriptor):
                os.close(descriptor)
                return None
        except OSError:
            os.close(descriptor)
            raise
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # the one before removed its file meanwhile


def take_lock(descriptor: int) -> bool:
    """Lock an open file or folder, and return whether no other process holds it.

    Raises:
        OSError: The disk refuses.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _forget() -> None:
    """Close what a forked child has inherited, which would keep the lock of a dead parent."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
