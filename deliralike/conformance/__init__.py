"""Proof that two networks are the same network, or the first place where they differ, and why."""

from deliralike.conformance.agreement import (
    Agreement,
    Comparison,
    Probe,
    agreement,
    probe,
    relative_difference,
)
from deliralike.conformance.comparing import LEVELS, compare
from deliralike.conformance.findings import Explanation, Finding, Level
from deliralike.conformance.matching import Match, propose
from deliralike.conformance.operations import OperationCheck, check_operation
from deliralike.conformance.probing import distance_loss
from deliralike.conformance.proof import Proof, Proofs
from deliralike.conformance.subject import Subject

__all__ = [
    "LEVELS",
    "Agreement",
    "Comparison",
    "Explanation",
    "Finding",
    "Level",
    "Match",
    "OperationCheck",
    "Probe",
    "Proof",
    "Proofs",
    "Subject",
    "agreement",
    "check_operation",
    "compare",
    "distance_loss",
    "probe",
    "propose",
    "relative_difference",
]
