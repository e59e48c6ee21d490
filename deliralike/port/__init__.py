"""Classes of one framework become networks written once."""

from deliralike.port.porting import Port, port

__all__ = ["Port", "port"]
