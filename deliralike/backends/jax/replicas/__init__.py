"""Replicas of a JAX network in one process."""
