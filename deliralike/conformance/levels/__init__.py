"""The levels of a proof, one module for each: ``level(reference, candidate, ...)`` gives a `Level`."""
