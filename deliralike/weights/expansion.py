"""A file that unfolds into far more than it holds is damaged or hostile."""

from pathlib import Path

from deliralike.errors import WeightFileError

_ALWAYS_ALLOWED, _MOST_EXPANSION = 64 * 2**20, 100  # bytes; weights hardly compress: a file does not grow a hundredfold


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
