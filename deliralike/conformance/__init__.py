"""Proof that two networks are the same network, or the first place where they differ, and why."""

from deliralike.conformance.agreement import Comparison, relative_difference
from deliralike.conformance.comparing import LEVELS, compare
from deliralike.conformance.findings import Explanation, Finding, Level
from deliralike.conformance.matching import Match, propose
from deliralike.conformance.operations import check_operation
from deliralike.conformance.probing import distance_loss
from deliralike.conformance.proof import Proof, Proofs
from deliralike.conformance.subject import Subject

__all__ = [
    "LEVELS",
    "Comparison",
    "Explanation",
    "Finding",
    "Level",
    "Match",
    "Proof",
    "Proofs",
    "Subject",
    "check_operation",
    "compare",
    "distance_loss",
    "propose",
    "relative_difference",
]
