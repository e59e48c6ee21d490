"""Benchmarks: each is a ratio against the raw framework or a plain copy, measured in the same
run.
"""
