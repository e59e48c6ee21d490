"""The neutral update rules on PyTorch: its own optimizers where their formulas are the same, every number passed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from deliralike import rules
from deliralike.errors import ArgumentError


def native_optimizer(rule: rules.Rule, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's optimizer for a neutral rule."""
    parameters = list({id(parameter): parameter for parameter in parameters}.values())
    match rule:
        case rules.SGD():
            options: dict[str, Any] = {"momentum": rule.momentum, "dampening": 0.0, "nesterov": rule.nesterov}
            native: Any = torch.optim.SGD
        case rules.Adam():
            options = {"betas": rule.betas, "eps": rule.eps, "amsgrad": False}
            native = torch.optim.AdamW if isinstance(rule, rules.AdamW) else torch.optim.Adam
        case rules.RMSprop():
            options = {"alpha": rule.alpha, "eps": rule.eps, "momentum": rule.momentum, "centered": False}
            native = torch.optim.RMSprop
        case _:
            raise ArgumentError(f"backend 'torch' has no optimizer for {type(rule).__name__}")
    return native(parameters, lr=rule.lr, weight_decay=rule.weight_decay, **options)
