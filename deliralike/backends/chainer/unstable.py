"""The names of Chainer and ChainerMN that are not public: no other file of the package uses one.

Chainer 7.8 is the last version, so none will change. The tables of a link (``_params``,
``_children``, ``_persistent``) are used where links are walked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import chainer, chainermn

# Settings of each thread
# --------------------------------------------------------------------------------------------------


def config_of_thread() -> dict[str, Any]:
    """Return this thread's own settings, as they are kept."""
    return vars(chainer.config._local)


def hooks_of_thread() -> dict[str, Any]:
    """Return this thread's own hooks of functions and links, as they are kept."""
    return vars(chainer._thread_local)


def link_hooks() -> Any:
    """Return the hooks of links of this thread."""
    return chainer._get_link_hooks()


def reporters() -> list[Any]:
    """Return the reporters of this thread, the current one last."""
    return chainer.reporter._get_reporters()


def reporters_of_thread() -> dict[str, Any]:
    """Return the table in which this thread's reporters are kept."""
    return vars(chainer.reporter._thread_local)


# Parameters and links
# --------------------------------------------------------------------------------------------------


def set_requires_grad(parameter: chainer.Parameter, value: bool) -> None:
    """Let backward compute the gradient of a parameter, or skip it."""
    parameter._requires_grad = parameter._node._requires_grad = value


def create_statistics(link: Any, shape: tuple[int, ...]) -> None:
    """Create the parameters of a batch normalisation whose size was left out."""
    link._initialize_params(shape)


def set_statistics_type(link: chainer.Link, dtype: str) -> None:
    """Let a batch normalisation keep its statistics in a type."""
    if hasattr(link, "_highprec_dtype"):
        link._highprec_dtype = np.dtype(dtype)


# Optimizers and iterators
# --------------------------------------------------------------------------------------------------


def begin_state(rule: Any, parameter: chainer.Parameter) -> None:
    """Create the state of an update rule, as its first update does."""
    rule._init_states(parameter)


def new_state(rule: Any, parameter: chainer.Parameter) -> dict[str, Any]:
    """Return the state with which an update rule would begin."""
    rule._state = None
    rule._init_states(parameter)
    return rule.state or {}


def has_dynamic_loss_scale(optimizer: Any) -> bool:
    """Return whether an optimizer looks for the scale of its loss."""
    return optimizer._loss_scaling_is_dynamic


def loss_scale(optimizer: Any) -> Any:
    """Return the scale of an optimizer's loss; None for none."""
    return optimizer._loss_scale


def post_update_hooks(optimizer: Any) -> OrderedDict:
    """Return the hooks after an update by name, in their order."""
    return optimizer._hookable._post_update_hooks


def is_double_buffering(optimizer: Any) -> bool:
    """Return whether an optimizer of ChainerMN updates with the gradients of the step before."""
    return isinstance(optimizer, chainermn.optimizers._DoubleBufferingOptimizer)


def is_multi_node(optimizer: Any) -> bool:
    """Return whether an optimizer is one of ChainerMN's."""
    return isinstance(optimizer, chainermn.optimizers._MultiNodeOptimizer)


def is_multi_node_iterator(iterator: Any, *, reads: bool) -> bool:
    """Return whether it is an iterator of ChainerMN's that reads data, or gets what is read."""
    module = chainermn.iterators.multi_node_iterator
    kind = module._MultiNodeIteratorMaster if reads else module._MultiNodeIteratorSlave
    return isinstance(iterator, kind)


# Layers
# --------------------------------------------------------------------------------------------------


def recurrent_dropout() -> tuple[Any, str]:
    """Return where recurrent links look up the dropout between their layers, and its name."""
    return chainer.functions.rnn.n_step_rnn, "_dropout_sequence"
