"""Where a candidate differs: each block and function is judged alone, at the reference's inputs."""

from deliralike.conformance.locate.place import Place
from deliralike.conformance.locate.search import localise

__all__ = ["Place", "localise"]
