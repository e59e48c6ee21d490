"""Replicas of a PyTorch network in one process."""
