"""Splitting of batches over devices, and joining of the outputs for the shares."""
