"""How far the numbers of two runs are apart."""

import math

import numpy as np


def largest_difference(one, other, least=1e-300):
    """Of nests of numbers with the same names and shapes: of each array relative to its largest
    number, or to `least`. What is not a number is infinitely far from everything."""
    if isinstance(one, list) and one and isinstance(one[0], dict):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        pairs = [(value, other[name]) for name, value in one.items()]
        return max((largest_difference(*pair, least) for pair in pairs), default=0.0)
    first, second = np.array(one, float), np.array(other, float)
    assert first.shape == second.shape
    size = np.abs(first).max(initial=least)
    far = float(np.abs(first - second).max(initial=0.0) / size)
    return math.inf if math.isnan(far) else far
