"""Why a place differs: conventions as executable variants, and common causes."""

from deliralike.conformance.explain.search import explain

__all__ = ["explain"]
