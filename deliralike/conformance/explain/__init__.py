"""Why a place differs: conventions as executable variants, and common causes."""

from deliralike.conformance.explain.search import explain
from deliralike.conformance.explain.weights import explain_weights

__all__ = ["explain", "explain_weights"]
