"""Attention and recurrence, written on the primitives."""

import math

from deliralike.nn.activations import Activations
from deliralike.nn.norms import Norms
from deliralike.nn.primitives import Array
from deliralike.nn.shaping import Shaping


class Sequences(Norms, Shaping, Activations):
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
            weights_mask: Factors of the weights (dropout).
            scale: The factor of the scores; ``1/sqrt(width)`` when not given.
            need_weights: Whether to return the weights as well; without them a backend may use a
                fused kernel, which need not have second derivatives.

        Returns:
            The outputs ``(..., queries, width)`` and the weights ``(..., queries, keys)`` or None.
        """
        if scale is None:
            scale = 1.0 / math.sqrt(query.shape[-1])
        leading = range(len(key.shape) - 2)
        transposed = self.permute(key, [*leading, -1, -2])
        scores = self.matmul(query * scale, transposed)
        if bias is not None:
            scores = scores + bias
        weights = self.softmax(scores, dim=-1)
        masked = weights
        if weights_mask is not None:
            masked = weights * weights_mask
        outputs = self.matmul(masked, value)
        if not need_weights:
            return outputs, None
        return outputs, weights

    def lstm(
        self,
        x: Array,
        hidden: Array,
        cell: Array,
        weight_ih: Array,
        weight_hh: Array,
        bias_ih: Array | None,
        bias_hh: Array | None,
    ) -> tuple[Array, Array, Array]:
        """One layer of an LSTM in one direction; gate blocks in the order i, f, g, o.

        Shapes:
            ``(time, batch, in)``, states ``(batch, hidden)``, weights ``(4 * hidden, ...)`` give
            ``(time, batch, hidden)`` and the last states.
        """

        def step(state: tuple[Array, Array], gates: Array) -> tuple[tuple[Array, Array], Array]:
            hidden, cell = state
            gates = gates + self.linear(hidden, weight_hh, bias_hh)
            i, f, g, o = self.split(gates, cell.shape[-1], dim=-1)
            cell = self.sigmoid(f) * cell + self.sigmoid(i) * self.tanh(g)
            hidden = self.sigmoid(o) * self.tanh(cell)
            return (hidden, cell), hidden

        from_input = self.linear(x, weight_ih, bias_ih)
        (hidden, cell), outputs = self.scan(step, (hidden, cell), from_input)
        return outputs, hidden, cell

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
