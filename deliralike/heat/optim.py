"""Optimizers under heat's names."""

from deliralike.heat.daso import DASO

__all__ = ["DASO"]
