"""Attention and recurrence, written on the primitives."""

import math
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.nn.activations import Activations
from deliralike.nn.norms import Norms
from deliralike.nn.primitives import Array, other_name
from deliralike.nn.shaping import Shaping


class Sequences(Norms, Activations, Shaping):
    """Functions over tokens and time."""

    def attention(
        self,
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        weights_mask: Array | None = None,
        scale: float | None = None,
        need_weights: bool = True,
    ) -> tuple[Array, Array | None]:
        """Scaled dot-product attention. Source: Vaswani et al. 2017, arXiv 1706.03762.

        Args:
            query, key, value: ``(..., tokens, width)``.
            bias: Numbers that are added to the scores; minus infinity where attention is forbidden.
                A query that may attend to no key has weights and outputs of 0.
            weights_mask: Factors of the weights (dropout).
            scale: The factor of the scores; ``1/sqrt(width)`` when not given.
            need_weights: Whether to return the weights as well; without them a backend may use a
                fused kernel, which need not have second derivatives.

        Returns:
            The outputs ``(..., queries, width)`` and the weights ``(..., queries, keys)`` or None.
        """
        if scale is None:
            scale = 1.0 / math.sqrt(query.shape[-1])
        leading = range(key.ndim - 2)
        transposed = self.permute(key, [*leading, -1, -2])
        scores = self.matmul(query * scale, transposed)
        attends = None
        if bias is not None:
            attends = self.any(bias != -math.inf, -1, keepdim=True)
            scores = scores + self.where(attends, bias, 0.0)
        weights = self.softmax(scores, dim=-1)
        masked = weights
        if weights_mask is not None:
            masked = weights * weights_mask
        outputs = self.matmul(masked, value)
        if attends is not None:
            outputs = self.where(attends, outputs, 0.0)
        if not need_weights:
            return outputs, None
        return outputs, weights if attends is None else self.where(
            attends, weights, 0.0
        )

    @other_name
    def scaled_dot_product_attention(
        self,
        query: Array,
        key: Array,
        value: Array,
        attn_mask: Array | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        dropout: Any = None,
    ) -> Array:
        """`attention` by PyTorch's name and arguments; the outputs alone.

        Args:
            query, key, value: ``(..., tokens, width)``.
            attn_mask: True where a query may attend to a key, or numbers that are added to the
                scores.
            dropout_p: Must be 0: a layer draws masks, which `dropout` takes.
            is_causal: Whether a query attends to no later key.
            scale: The factor of the scores; ``1/sqrt(width)`` when not given.
            enable_gqa: Whether groups of queries share a head of keys and values, third axis from
                the end.
            dropout: A `Dropout` layer that drops weights of attention in training.
        """
        if dropout_p:
            raise SettingError(
                f"scaled_dot_product_attention: dropout_p={dropout_p!r}; layers draw masks: "
                f"create self.dropout = nn.Dropout({dropout_p!r}) and give dropout=self.dropout"
            )
        if enable_gqa:
            repeats = query.shape[-3] // key.shape[-3]
            key = self.repeat_interleave(key, repeats, -3)
            value = self.repeat_interleave(value, repeats, -3)
        if is_causal:
            if attn_mask is not None:
                raise SettingError(
                    "scaled_dot_product_attention: give either attn_mask or is_causal=True"
                )
            allowed = np.tri(query.shape[-2], key.shape[-2], dtype=bool)
            bias = self.constant(np.where(allowed, 0.0, -np.inf), like=query)
        elif attn_mask is not None and "bool" in str(attn_mask.dtype):
            bias = self.where(attn_mask, self.zeros((), like=query), -math.inf)
        else:
            bias = attn_mask
        factors = None
        if dropout is not None:
            shape = (*query.shape[:-1], key.shape[-2])
            factors = self.dropout_factors(dropout, shape, query)
        outputs, _ = self.attention(
            query, key, value, bias, factors, scale, need_weights=False
        )
        return outputs

    def lstm(
        self,
        x: Array,
        hidden: Array,
        cell: Array,
        weight_ih: Array,
        weight_hh: Array,
        bias_ih: Array | None,
        bias_hh: Array | None,
        weight_hr: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """One layer of an LSTM in one direction; gate blocks in the order i, f, g, o.

        With `weight_hr`, the output and the hidden state are projected by it.

        Shapes:
            ``(time, batch, in)``, states ``(batch, hidden)``, weights ``(4 * hidden, ...)`` give
            ``(time, batch, hidden)`` and the last states.
        """

        def step(
            state: tuple[Array, Array], gates: Array
        ) -> tuple[tuple[Array, Array], Array]:
            hidden, cell = state
            gates = gates + self.linear(hidden, weight_hh)
            i, f, g, o = self.split(gates, cell.shape[-1], dim=-1)
            cell = self.sigmoid(f) * cell + self.sigmoid(i) * self.tanh(g)
            hidden = self.sigmoid(o) * self.tanh(cell)
            if weight_hr is not None:
                hidden = self.linear(hidden, weight_hr)
            return (hidden, cell), hidden

        from_input = self.linear(x, weight_ih, bias_ih)
        if bias_hh is not None:
            from_input = from_input + bias_hh  # once, instead of at each step
        (hidden, cell), outputs = self.scan(step, (hidden, cell), from_input)
        return outputs, hidden, cell

    def rnn(
        self,
        x: Array,
        hidden: Array,
        weight_ih: Array,
        weight_hh: Array,
        bias_ih: Array | None,
        bias_hh: Array | None,
        nonlinearity: str = "tanh",
    ) -> tuple[Array, Array]:
        """One layer of a plain recurrent network in one direction, with tanh or ReLU.

        Shapes:
            ``(time, batch, in)``, state ``(batch, hidden)``, weights ``(hidden, ...)`` give
            ``(time, batch, hidden)`` and the last state.
        """
        function = {"tanh": self.tanh, "relu": self.relu}[nonlinearity]

        def step(hidden: Array, from_input: Array) -> tuple[Array, Array]:
            hidden = function(from_input + self.linear(hidden, weight_hh, bias_hh))
            return hidden, hidden

        hidden, outputs = self.scan(step, hidden, self.linear(x, weight_ih, bias_ih))
        return outputs, hidden

    def gru(
        self,
        x: Array,
        hidden: Array,
        weight_ih: Array,
        weight_hh: Array,
        bias_ih: Array | None,
        bias_hh: Array | None,
    ) -> tuple[Array, Array]:
        """One layer of a GRU in one direction, with the reset gate applied after the product.

        The gate blocks have the order r, z, n.

        Shapes:
            ``(time, batch, in)``, state ``(batch, hidden)``, weights ``(3 * hidden, ...)`` give
            ``(time, batch, hidden)`` and the last state.
        """

        def step(hidden: Array, from_input: Array) -> tuple[Array, Array]:
            width = hidden.shape[-1]
            input_r, input_z, input_n = self.split(from_input, width, dim=-1)
            from_hidden = self.linear(hidden, weight_hh, bias_hh)
            hidden_r, hidden_z, hidden_n = self.split(from_hidden, width, dim=-1)
            z = self.sigmoid(input_z + hidden_z)
            n = self.tanh(input_n + self.sigmoid(input_r + hidden_r) * hidden_n)
            hidden = (1.0 - z) * n + z * hidden
            return hidden, hidden

        hidden, outputs = self.scan(step, hidden, self.linear(x, weight_ih, bias_ih))
        return outputs, hidden
