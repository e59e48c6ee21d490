"""Optimizers under heat's names."""
