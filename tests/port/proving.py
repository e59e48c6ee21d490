"""What tests of ports ask again and again."""

from pathlib import Path


def proved(found, backend):
    """The proof of a port, which is one."""
    proof = found.prove(backend)
    assert proof.headline.startswith("PROVED"), proof.headline
    return proof


def diverges(found, backend):
    """Whether the proof says that a port differs."""
    return found.prove(backend).headline.startswith("DIVERGES")


def line_of(file, words):
    """The number of the first line of a file that has these words."""
    lines = Path(file).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if words in line)
