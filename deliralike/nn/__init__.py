"""The vocabulary of a network written once: layers and functions, framework-free.

A backend provides `primitives`; everything else here is written once on top of them, and a backend
may put a faster native version in its place.
"""
