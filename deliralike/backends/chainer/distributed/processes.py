"""Deprecated alias of `deliralike.backends.chainer.distributed.process_group`."""

from deliralike.backends.chainer.distributed.process_group import *  # noqa: F403
