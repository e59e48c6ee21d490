"""Messages of any length over an engine that gathers arrays of equal length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

_HEAD = 512  # bytes that each process sends in the first round
_LENGTH = 8  # bytes of the head that hold the length of the message

Finish = Callable[[], list[np.ndarray]]


def begin_all_gather_bytes(
    message: bytes, begin_all_gather: Callable[[np.ndarray], Finish]
) -> Callable[[], list[bytes]]:
    """Begin to gather every process's message, and return a function that waits for all of them.

    One round is enough where all messages are small; otherwise there are two.

    Args:
        begin_all_gather: Begins to gather every process's bytes ``(n,)``, and returns a function
            that waits for them.

    Example:
        >>> begin_all_gather_bytes(b"alone", lambda array: lambda: [array])()
        [b'alone']
    """
    wait_for_heads = begin_all_gather(_head(message))

    def finish() -> list[bytes]:
        heads = wait_for_heads()
        lengths = [_length(head) for head in heads]
        longest = max(lengths)
        if longest <= _HEAD - _LENGTH:
            bodies = [head[_LENGTH:] for head in heads]
        else:
            own = np.zeros(longest, np.uint8)
            own[: len(message)] = np.frombuffer(message, np.uint8)
            bodies = begin_all_gather(own)()
        pairs = zip(bodies, lengths, strict=True)
        return [body[:length].tobytes() for body, length in pairs]

    return finish


def cut(flat: np.ndarray, shapes: Iterable[tuple[int, ...]]) -> list[np.ndarray]:
    """Return the arrays of these shapes that lie one after another in a flat one, as views.

    Example:
        >>> [part.tolist() for part in cut(np.arange(5), [(2, 1), (3,)])]
        [[[0], [1]], [2, 3, 4]]
    """
    parts = []
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        parts.append(flat[start:stop].reshape(shape))
        start = stop
    return parts


def _length(head: np.ndarray) -> int:
    """Return the length of the message that begins with a head."""
    return int.from_bytes(head[:_LENGTH].tobytes(), "little")


def _head(message: bytes) -> np.ndarray:
    """Return the length of a message and as much of it as fits into the first round."""
    filled = len(message).to_bytes(_LENGTH, "little") + message[: _HEAD - _LENGTH]
    head = np.zeros(_HEAD, np.uint8)
    head[: len(filled)] = np.frombuffer(filled, np.uint8)
    return head
