"""Proof that two networks are the same network: comparison in float64, tensor by tensor."""

from deliralike.conformance.agreement import (
    Agreement,
    Comparison,
    Probe,
    agreement,
    compare,
    probe,
    relative_difference,
)

__all__ = ["Agreement", "Comparison", "Probe", "agreement", "compare", "probe", "relative_difference"]
