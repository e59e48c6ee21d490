"""Messages of any length over an engine that gathers arrays of equal length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_SMALL = 512  # bytes of a message that goes in one round; the first eight say how long it is


def gathered(message: bytes, all_gather: Callable[[np.ndarray], list[np.ndarray]]) -> list[bytes]:
    """Every process's message: in one round where all messages are small, in two where one is not.

    Args:
        all_gather: Gives every process's bytes ``(n,)`` for this one's.

    Example:
        >>> gathered(b"alone", lambda array: [array])
        [b'alone']
    """
    head = np.zeros(_SMALL, np.uint8)
    head[:8] = np.frombuffer(len(message).to_bytes(8, "little"), np.uint8)
    begin = np.frombuffer(message, np.uint8)[: _SMALL - 8]
    head[8 : 8 + len(begin)] = begin
    heads = [each.tobytes() for each in all_gather(head)]
    lengths = [int.from_bytes(each[:8], "little") for each in heads]
    if max(lengths) <= _SMALL - 8:
        return [each[8 : 8 + length] for each, length in zip(heads, lengths, strict=True)]
    whole = np.zeros(max(lengths), np.uint8)
    whole[: len(message)] = np.frombuffer(message, np.uint8)
    return [each[:length].tobytes() for each, length in zip(all_gather(whole), lengths, strict=True)]
