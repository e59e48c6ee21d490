"""The progress of a worker: written by the worker, read by whoever waits for its batches."""

import threading
from collections.abc import MutableSequence

NOWHERE = (-1, -1, -1)  # epoch, batch, sample
_here = threading.local()


def watch(board: MutableSequence[int]) -> None:
    """Record the progress of this thread on `board` from now on."""
    _here.board = board


def at_batch(number: int, epoch: int) -> None:
    """Record that a batch as a whole is being made."""
    _write(epoch, number, -1)


def at_sample(index: int) -> None:
    """Record that a sample of the batch is being read or transformed."""
    board = getattr(_here, "board", None)
    if board is not None:
        board[2] = index


def described(board: MutableSequence[int]) -> str:
    """Return the place on a board in words.

    Example:
        >>> described([0, 3, 17]), described([0, 3, -1])
        ('sample 17', 'batch 3 of epoch 0')
    """
    epoch, batch, sample = board
    if sample >= 0:
        return f"sample {sample}"
    if batch >= 0:
        return f"batch {batch} of epoch {epoch}"
    return "its beginning"


def _write(*place: int) -> None:
    board = getattr(_here, "board", None)
    if board is not None:
        board[:] = place
