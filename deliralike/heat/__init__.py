"""Data parallelism by heat's names: ``import deliralike.heat as ht`` is all that its users change."""

from deliralike.heat import nn, optim

__all__ = ["nn", "optim"]
