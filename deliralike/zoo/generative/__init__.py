"""Generative networks, one family a file; each module registers its own when it is imported."""

from deliralike import lazy

__getattr__, __dir__ = lazy.modules(__name__, __path__)
