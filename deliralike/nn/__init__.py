"""The vocabulary of a network written once: layers and functions, framework-free.

A backend provides `primitives`; everything else here is written once on top of them, and a backend
may put a faster native version in its place.
"""

from deliralike.nn.operations import Operation, register
from deliralike.nn.primitives import Array

__all__ = ["Array", "Operation", "register"]
