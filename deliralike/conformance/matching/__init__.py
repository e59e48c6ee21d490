"""Which tensor and block of one network is which of another.

A match is proposed from names, shapes, values and order.
"""

from deliralike.weights.matching.match import Match, propose

__all__ = ["Match", "propose"]
