"""Deprecated alias of `deliralike.weights.name_matching`."""

from deliralike.weights.name_matching import fit, natural

__all__ = ["fit", "natural"]
