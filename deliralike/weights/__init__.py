"""Weight files: the one place that reads, writes and converts them.

Our own format is safetensors, which holds arrays and nothing that runs. The kind of a file is read
off its content; files of a framework's own are read by its backend, loaded on demand. No reader
runs code from a file.
"""

from typing import TYPE_CHECKING

from deliralike import lazy

if TYPE_CHECKING:
    from deliralike.weights.conversion import ConversionReport, Renaming, convert
    from deliralike.weights.file_match import FileMatch
    from deliralike.weights.foreign import MatchReport, match
    from deliralike.weights.inflate import refuse_expansion, refuse_hostile_archive
    from deliralike.weights.loading import load
    from deliralike.weights.reading import (
        Contents,
        contents,
        read,
        without_prefix,
    )
    from deliralike.weights.writing import State, flush, write
else:
    __getattr__, __dir__ = lazy.attributes(
        __name__,
        {
            "deliralike.weights.conversion": "ConversionReport Renaming convert",
            "deliralike.weights.file_match": "FileMatch",
            "deliralike.weights.foreign": "MatchReport match",
            "deliralike.weights.inflate": "refuse_expansion refuse_hostile_archive",
            "deliralike.weights.loading": "load",
            "deliralike.weights.reading": "Contents contents read without_prefix",
            "deliralike.weights.writing": "State flush write",
        },
    )

__all__ = [
    "Contents",
    "ConversionReport",
    "FileMatch",
    "MatchReport",
    "Renaming",
    "State",
    "contents",
    "convert",
    "flush",
    "load",
    "match",
    "read",
    "refuse_expansion",
    "refuse_hostile_archive",
    "without_prefix",
    "write",
]
