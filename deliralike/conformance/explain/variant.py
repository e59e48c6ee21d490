"""The name that files of losses still read here."""

from deliralike.conformance.causes import number

__all__ = ["number"]
