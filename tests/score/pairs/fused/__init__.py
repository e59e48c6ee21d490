"""Layers that one side has apart and the other as one: norms, convolutions, projections."""
