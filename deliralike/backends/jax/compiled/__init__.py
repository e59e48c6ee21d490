"""Compiled programs of JAX over a network."""
