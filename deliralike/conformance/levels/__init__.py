"""The levels of a proof, a module each: ``level(reference, candidate, ...)`` gives a `Level` with
its findings.
"""
