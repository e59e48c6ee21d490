"""Optimization: update rules, parameter groups, and the optimizer step.

One step goes from the loss to the new parameters.
"""
