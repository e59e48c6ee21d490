"""Benchmarks: each is a ratio against the raw framework or a plain copy, taken in the same run."""
