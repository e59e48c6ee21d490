"""Recurrent layers over a whole sequence as one node; backward through time by hand.

The products with the inputs, and the gradients of the weights, are one matrix product over all
steps. In a step only what depends on the step before is left. Composed of other functions an LSTM
takes 8 times as long, a GRU 9 times.
"""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer.arrays import array_module
from deliralike.backends.chainer.kernels.fused import Fused, logistic, saturating


class LSTM(Fused):
    """One layer in one direction; arguments and outputs are those of `Sequences.lstm`."""

    def compute(
        self, x, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr
    ):
        xp = array_module(x)
        time = len(x)
        batch, width = cell.shape
        gates = _from_input(x, weight_ih, bias_ih, bias_hh)
        self.gates = gates.reshape(time, batch, 4, width)
        self.tanh_cell = xp.empty((time, batch, width), x.dtype)
        self.hidden = _states(hidden, time)
        self.cells = _states(cell, time)
        recurrent = weight_hh.T
        with saturating():
            for t in range(time):
                gates[t] += self.hidden[t] @ recurrent
                new = xp.tanh(self.gates[t, :, 2])
                logistic(self.gates[t], out=self.gates[t])
                self.gates[t, :, 2] = new
                i, f, g, o = self.gates[t].swapaxes(0, 1)
                cell = xp.multiply(f, self.cells[t], out=self.cells[t + 1])
                cell += i * g
                tanh = xp.tanh(cell, out=self.tanh_cell[t])
                output = o * tanh
                self.hidden[t + 1] = (
                    output if weight_hr is None else output @ weight_hr.T
                )
        return self.hidden[1:], self.hidden[-1].copy(), self.cells[-1].copy()

    def derive(self, arguments, gradients):
        x, _, _, weight_ih, weight_hh, bias_ih, bias_hh, weight_hr = arguments
        xp = array_module(x)
        gy, g_hidden, g_cell = gradients
        g_hidden = xp.zeros_like(self.hidden[0]) if g_hidden is None else g_hidden
        g_cell = xp.zeros_like(self.cells[0]) if g_cell is None else g_cell.copy()
        slopes, to_cell = self._slopes()
        g_gates = xp.empty_like(slopes)
        g_outputs = xp.empty_like(self.hidden[:-1])
        forget = self.gates[:, :, 1]
        for t in reversed(range(len(x))):
            if gy is not None:
                g_hidden = g_hidden + gy[t]
            g_outputs[t] = g_hidden
            g_state = g_hidden if weight_hr is None else g_outputs[t] @ weight_hr
            g_cell += g_state * to_cell[t]
            xp.multiply(slopes[t, :, :3], g_cell[:, None], out=g_gates[t, :, :3])
            xp.multiply(slopes[t, :, 3], g_state, out=g_gates[t, :, 3])
            g_cell *= forget[t]
            g_hidden = g_gates[t].reshape(len(g_cell), -1) @ weight_hh
        rows = g_gates.reshape(*g_gates.shape[:2], -1)
        g_projection = None
        if weight_hr is not None:
            g_projection = _of_weight(g_outputs, self.gates[:, :, 3] * self.tanh_cell)
        gx, g_ih, g_bias = _of_input(rows, x, weight_ih)
        g_hh = _of_weight(rows, self.hidden[:-1])
        return gx, g_hidden, g_cell, g_ih, g_hh, g_bias, g_bias.copy(), g_projection

    def _slopes(self) -> tuple[Any, Any]:
        """Return derivatives for all steps.

        Those of the cell by the gates' sums i, f and g, with that of the output by o, and that of
        the output by the cell.
        """
        xp = array_module(self.gates)
        i, f, g, o = (self.gates[:, :, place] for place in range(4))
        slopes = xp.empty_like(self.gates)
        slopes[:, :, 0] = g * i * (1 - i)
        slopes[:, :, 1] = self.cells[:-1] * f * (1 - f)
        slopes[:, :, 2] = i * (1 - g * g)
        slopes[:, :, 3] = self.tanh_cell * o * (1 - o)
        return slopes, o * (1 - self.tanh_cell * self.tanh_cell)


class GRU(Fused):
    """One layer in one direction; arguments and outputs are those of `Sequences.gru`."""

    def compute(self, x, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
        xp = array_module(x)
        time = len(x)
        batch, width = hidden.shape
        self.gates = _from_input(x, weight_ih, bias_ih).reshape(time, batch, 3, width)
        self.from_hidden = xp.empty((time, batch, 3, width), x.dtype)
        self.hidden = _states(hidden, time)
        recurrent = weight_hh.T
        with saturating():
            for t in range(time):
                product = self.hidden[t] @ recurrent
                if bias_hh is not None:
                    product += bias_hh
                self.from_hidden[t] = product.reshape(batch, 3, width)
                gates = self.gates[t, :, :2]
                gates += self.from_hidden[t, :, :2]
                logistic(gates, out=gates)
                r, z, n = self.gates[t].swapaxes(0, 1)
                n += r * self.from_hidden[t, :, 2]
                xp.tanh(n, out=n)
                xp.multiply(1 - z, n, out=self.hidden[t + 1])
                self.hidden[t + 1] += z * self.hidden[t]
        return self.hidden[1:], self.hidden[-1].copy()

    def derive(self, arguments, gradients):
        x, _, weight_ih, weight_hh, bias_ih, bias_hh = arguments
        xp = array_module(x)
        gy, g_hidden = gradients
        g_hidden = xp.zeros_like(self.hidden[0]) if g_hidden is None else g_hidden
        r, z, n = (self.gates[:, :, place] for place in range(3))
        to_n = (1 - z) * (1 - n * n)
        slopes = xp.empty_like(
            self.gates
        )  # of the sums r and z, and of n's share of the state
        slopes[:, :, 0] = to_n * self.from_hidden[:, :, 2] * r * (1 - r)
        slopes[:, :, 1] = (self.hidden[:-1] - n) * z * (1 - z)
        slopes[:, :, 2] = to_n * r
        g_gates = xp.empty_like(slopes)
        g_outputs = xp.empty_like(self.hidden[:-1])
        for t in reversed(range(len(x))):
            if gy is not None:
                g_hidden = g_hidden + gy[t]
            g_outputs[t] = g_hidden
            xp.multiply(slopes[t], g_outputs[t][:, None], out=g_gates[t])
            g_hidden = g_gates[t].reshape(len(z[t]), -1) @ weight_hh
            g_hidden += g_outputs[t] * z[t]
        rows = g_gates.reshape(*g_gates.shape[:2], -1)
        g_hh = _of_weight(rows, self.hidden[:-1])
        g_bias_hh = rows.sum((0, 1))
        g_gates[:, :, 2] = g_outputs * to_n
        gx, g_ih, g_bias_ih = _of_input(rows, x, weight_ih)
        return gx, g_hidden, g_ih, g_hh, g_bias_ih, g_bias_hh


def _states(first: Any, time: int) -> Any:
    """Return room for the states before and after each step, with the first one."""
    states = array_module(first).empty((time + 1, *first.shape), first.dtype)
    states[0] = first
    return states


def _from_input(x: Any, weight: Any, *biases: Any) -> Any:
    """Return the inputs' part of all gates, with biases: (time, batch, gates * width)."""
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    for bias in biases:
        if bias is not None:
            y += bias
    return y.reshape(*x.shape[:2], -1)


def _of_input(rows: Any, x: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Return the gradients of the inputs, their weight and bias from that of the gates."""
    flat = rows.reshape(-1, rows.shape[-1])
    gx = (flat @ weight).reshape(x.shape)
    return gx, _of_weight(rows, x), flat.sum(0)


def _of_weight(rows: Any, x: Any) -> Any:
    """Return the gradient of a weight, summed over steps and batch."""
    return rows.reshape(-1, rows.shape[-1]).T @ x.reshape(-1, x.shape[-1])
