"""Chainer is mended before it is imported."""

from deliralike import backends

backends.get("chainer")
