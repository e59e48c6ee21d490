"""Messages of any length over an engine that gathers arrays of equal length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_SMALL = 512  # bytes of a message that goes in one round; the first eight say how long it is


Finish = Callable[[], list[np.ndarray]]


def begin_all_gather_bytes(
    message: bytes, begin_all_gather: Callable[[np.ndarray], Finish]
) -> Callable[[], list[bytes]]:
    """Begin to gather every process's message, and give what waits for them.

    One round where all messages are small, two where one is not.

    Args:
        begin_all_gather: Begins to gather every process's bytes ``(n,)``, and gives what waits for
            them.

    Example:
        >>> begin_all_gather_bytes(b"alone", lambda array: lambda: [array])()
        [b'alone']
    """
    head = np.zeros(_SMALL, np.uint8)
    head[:8] = np.frombuffer(len(message).to_bytes(8, "little"), np.uint8)
    begin = np.frombuffer(message, np.uint8)[: _SMALL - 8]
    head[8 : 8 + len(begin)] = begin
    of_heads = begin_all_gather(head)

    def finish() -> list[bytes]:
        heads = [each.tobytes() for each in of_heads()]
        lengths = [int.from_bytes(each[:8], "little") for each in heads]
        if max(lengths) <= _SMALL - 8:
            return [each[8 : 8 + length] for each, length in zip(heads, lengths, strict=True)]
        whole = np.zeros(max(lengths), np.uint8)
        whole[: len(message)] = np.frombuffer(message, np.uint8)
        return [
            each[:length].tobytes()
            for each, length in zip(begin_all_gather(whole)(), lengths, strict=True)
        ]

    return finish
