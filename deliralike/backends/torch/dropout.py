"""PyTorch's own dropout by given factors in the place of masks, for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch

from deliralike.backends.replaced_functions import wrapped_by_name
from deliralike.backends.torch import unstable
from deliralike.nn.layers.dropout import AlphaDropout

_Factors = Callable[..., np.ndarray]


def override_dropout_masks(factors: _Factors) -> AbstractContextManager[None]:
    """Let PyTorch's own functions of dropout multiply by given factors; see `Backend`.

    Masks that a network draws by `torch.Tensor.bernoulli_` or `torch.rand`, as stochastic depth is
    written, keep what these factors keep.
    """
    return wrapped_by_name(_wrappers(_Dropping(factors)))


def _wrappers(dropping: _Dropping) -> dict[tuple[Any, str], Callable[..., Any]]:
    """The functions to call in the place of PyTorch's, by the module or class and the name."""
    functional: Any = torch.nn.functional
    wrappers: dict[tuple[Any, str], Callable[..., Any]] = {
        (torch.Tensor, "bernoulli_"): dropping.bernoulli_,
        (torch, "rand"): dropping.rand,
        (torch, "rand_like"): dropping.rand,
        (torch, "randn"): dropping.noise,
        (torch, "randn_like"): dropping.noise,
        (torch, "normal"): dropping.normal,
        (torch.Tensor, "normal_"): dropping.normal_,
        (torch.Tensor, "uniform_"): dropping.uniform_,
        (functional, "alpha_dropout"): partial(dropping.alpha_dropout, False),
        (functional, "feature_alpha_dropout"): partial(dropping.alpha_dropout, True),
        (functional, "scaled_dot_product_attention"): dropping.attention,
    }
    for name, by_channel in _DROPOUTS.items():
        wrappers[functional, name] = partial(dropping.dropout, by_channel)
    owner, names = unstable.recurrent_functions()
    for name in names:
        wrappers[owner, name] = dropping.recurrence
    return wrappers


# Whether whole channels are dropped, by the function's name.
_DROPOUTS = {"dropout": False, "dropout1d": True, "dropout2d": True, "dropout3d": True}


class _Dropping:
    """Functions in the place of PyTorch's, which multiply where those draw.

    Each takes PyTorch's function before the arguments of a call.

    Args:
        factors: Of a shape and a rate; all factors of a call are equal, where weights of attention
            or states of a recurrence are dropped, which PyTorch hands to no one.
    """

    def __init__(self, factors: _Factors) -> None:
        self.factors = factors

    def mask(
        self, shape: Sequence[int], rate: float | None, like: torch.Tensor
    ) -> torch.Tensor:
        return torch.as_tensor(
            self.factors(tuple(shape), rate), dtype=like.dtype, device=like.device
        )

    def one_factor(
        self, shape: Sequence[int], rate: float, like: torch.Tensor
    ) -> torch.Tensor:
        return self.mask(shape, rate, like).reshape(-1)[0]

    def dropout(
        self,
        by_channel: bool,
        _: Any,
        input: torch.Tensor,  # PyTorch's name
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        if not training or p == 0.0:
            return input
        factor = self.mask(_mask_shape(input, by_channel), p, input)
        return input.mul_(factor) if inplace else input * factor

    def alpha_dropout(
        self,
        by_channel: bool,
        _: Any,
        input: torch.Tensor,  # PyTorch's name
        p: float = 0.5,
        training: bool = False,
        inplace: bool = False,
    ) -> torch.Tensor:
        if not training or p == 0.0:
            return input
        if p == 1.0:
            return input * 0.0
        keep_mask = self.mask(_mask_shape(input, by_channel), p, input) * (1.0 - p)
        return AlphaDropout.dropped(input, keep_mask, p)

    def attention(
        self,
        original: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        *others: Any,
        **keywords: Any,
    ) -> torch.Tensor:
        output = original(query, key, value, attn_mask, 0.0, *others, **keywords)
        if dropout_p == 0.0:
            return output
        shape = (*query.shape[:-1], key.shape[-2])
        return output * self.one_factor(shape, dropout_p, query)

    def recurrence(self, original: Any, input: torch.Tensor, *rest: Any) -> Any:
        """Scale what a layer gives by scaling the weights that the next one multiplies it by."""
        at = next(i for i, each in enumerate(rest) if isinstance(each, list))
        weights, biases, layers, rate, training, *others = rest[at:]
        if not training or rate == 0.0 or layers == 1:
            return original(input, *rest)
        scaled, per_layer = list(weights), len(weights) // layers
        per_direction = per_layer // (1 + bool(others[0]))
        for first in range(per_layer, len(weights), per_layer):
            shape = (*input.shape[:-1], weights[first].shape[1])
            factor = self.one_factor(shape, rate, input)
            for place in range(first, first + per_layer, per_direction):
                scaled[place] = weights[place] * factor
        settings = (scaled, biases, layers, 0.0, training, *others)
        return original(input, *rest[:at], *settings)

    def bernoulli_(
        self, original: Any, mask: torch.Tensor, p: Any = 0.5, **keywords: Any
    ) -> torch.Tensor:
        if isinstance(p, torch.Tensor) or keywords:
            return original(mask, p, **keywords)
        return mask.copy_(self.mask(mask.shape, round(1.0 - p, 12), mask) > 0)

    def rand(self, original: Any, *size: Any, **keywords: Any) -> torch.Tensor:
        numbers = original(*size, **keywords)
        return numbers.copy_(self.mask(numbers.shape, None, numbers))

    def noise(self, original: Any, *args: Any, **keywords: Any) -> torch.Tensor:
        return self.fill(original(*args, **keywords))

    def fill(self, numbers: torch.Tensor, kind: str = "normal") -> torch.Tensor:
        given = self.factors(tuple(numbers.shape), None, kind)
        with torch.no_grad():
            return numbers.copy_(torch.as_tensor(given))

    def normal(
        self, original: Any, mean: Any, std: Any = 1.0, *size: Any, **keywords: Any
    ) -> torch.Tensor:
        numbers = original(mean, std, *size, **keywords)
        return mean + std * self.fill(torch.empty_like(numbers))

    def normal_(
        self,
        _: Any,
        numbers: torch.Tensor,
        mean: float = 0.0,
        std: float = 1.0,
        **__: Any,
    ) -> torch.Tensor:
        return self.fill(numbers).mul_(std).add_(mean)

    def uniform_(
        self,
        _: Any,
        numbers: torch.Tensor,
        low: float = 0.0,
        high: float = 1.0,
        **__: Any,
    ) -> torch.Tensor:
        return self.fill(numbers, "uniform").mul_(high - low).add_(low)


def _mask_shape(x: torch.Tensor, by_channel: bool) -> tuple[int, ...]:
    if by_channel:
        return (*x.shape[:2], *[1] * (x.ndim - 2))
    return tuple(x.shape)
