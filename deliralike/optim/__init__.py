"""Optimization: update rules, parameter groups, and one optimizer step from the loss to the new
parameters.
"""
