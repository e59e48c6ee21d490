"""Replicas of a Chainer network in one process."""
