"""Deprecated alias of `deliralike.optim.rules`."""

import sys

from deliralike.optim import rules
from deliralike.optim.rules import *  # noqa: F403

sys.modules[__name__] = (
    rules  # so that `deliralike.rules` is one module, whatever is imported first
)
