"""Normalisation in one node.

With ``xhat`` the standardised rows, the gradient of a row is ``(g - mean(g) - xhat * mean(g *
xhat)) / std``, where ``g`` is the gradient of ``xhat``. Composed of other functions it takes a
step of MobileNetV2 1.5 times as long, one of ShuffleNet 1.6 times, one of a U-Net and of an
autoencoder with group norms 1.4 times.
"""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer.arrays import array_module
from deliralike.backends.chainer.kernels.fused import Fused


class BatchNorm(Fused):
    """Normalise each channel by the batch: the output, the mean and the biased variance."""

    def __init__(self, composed, eps):
        super().__init__(composed)
        self.eps = eps

    def compute(self, x, weight, bias):
        rows = _rows_of_channels(x)
        self.standard, mean, var = _centre(rows)
        self.scale = 1 / array_module(x).sqrt(var + self.eps)
        self.standard *= self.scale
        y = self.standard if weight is None else self.standard * weight[:, None]
        if bias is not None:
            y = y + bias[:, None] if weight is None else _add(y, bias[:, None])
        return _from_rows(y, x.shape), mean[:, 0], var[:, 0]

    def derive(self, arguments, gradients):
        x, weight, bias = arguments
        gy, g_mean, g_var = gradients
        xp = array_module(x)
        standard, scale = self.standard, self.scale
        count = standard.shape[1]
        if gy is None:
            gy = xp.zeros_like(x)
        rows = _rows_of_channels(gy)
        g_bias = rows.sum(1)
        g_weight = _dots(rows, standard)
        factor = scale if weight is None else scale * weight[:, None]
        # gx = factor * (rows - mean(rows) - standard * mean(rows * standard))
        shift = -factor[:, 0] * g_bias / count
        slope = -factor[:, 0] * g_weight / count
        if g_mean is not None:
            shift += g_mean / count
        if g_var is not None:  # x - mean is standard / scale
            slope += g_var * (2.0 / count) / scale[:, 0]
        gx = rows * factor
        gx += standard * slope[:, None]
        gx += shift[:, None]
        return _from_rows(gx, x.shape), g_weight, g_bias


class GroupNorm(Fused):
    """Normalise groups of channels of each sample."""

    def __init__(self, composed, groups, eps):
        super().__init__(composed)
        self.groups, self.eps = groups, eps

    def compute(self, x, weight, bias):
        batch, channels = x.shape[:2]
        self.standard, _, var = _centre(x.reshape(batch * self.groups, -1))
        self.scale = 1 / array_module(x).sqrt(var + self.eps)
        self.standard *= self.scale
        standard = self.standard.reshape(batch, channels, -1)
        y = standard if weight is None else standard * weight[:, None]
        if bias is not None:
            y = y + bias[:, None] if weight is None else _add(y, bias[:, None])
        return (y.reshape(x.shape),)

    def derive(self, arguments, gradients):
        x, weight, bias = arguments
        batch, channels = x.shape[:2]
        rows = gradients[0].reshape(batch, channels, -1)
        standard = self.standard.reshape(rows.shape)
        totals = rows.sum(2)  # (batch, channels)
        dots = _dots(rows, standard)
        g_weight, g_bias = dots.sum(0), totals.sum(0)
        factor = scale = self.scale.reshape(batch, self.groups).repeat(
            channels // self.groups, 1
        )
        if weight is not None:
            factor = scale * weight
            totals, dots = totals * weight, dots * weight
        # with g = weight * rows: gx = scale * (g - mean(g) - standard * mean(g * standard))
        width = rows.shape[2]
        shift = -scale * self._means_of_groups(totals, width)
        slope = -scale * self._means_of_groups(dots, width)
        gx = rows * factor[..., None]
        gx += standard * slope[..., None]
        gx += shift[..., None]
        return gx.reshape(x.shape), g_weight, g_bias

    def _means_of_groups(self, sums: Any, width: int) -> Any:
        """Return each channel's mean over its group, (batch, channels), from sums over `width`."""
        batch, channels = sums.shape
        size = channels // self.groups
        means = sums.reshape(batch, self.groups, size).sum(2) / (size * width)
        return means.repeat(size, 1)


def _centre(rows: Any) -> tuple[Any, Any, Any]:
    """Return rows without their means, the means and the biased variances, each (rows, 1)."""
    mean = rows.mean(1, keepdims=True)
    centred = rows - mean
    var = _dots(centred, centred)[:, None]
    var /= rows.shape[1]
    return centred, mean, var


def _dots(x: Any, y: Any) -> Any:
    """Return the products of rows, summed over the last axis."""
    return array_module(x).einsum("...i,...i->...", x, y)


def _add(y: Any, values: Any) -> Any:
    """Add in place."""
    y += values
    return y


def _rows_of_channels(x: Any) -> Any:
    """Reshape (batch, channels, ...) to (channels, batch * ...): a view of what a product gave."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def _from_rows(rows: Any, shape: tuple[int, ...]) -> Any:
    """Reshape to (batch, channels, ...), always as a view."""
    return rows.reshape(shape[1], shape[0], *shape[2:]).swapaxes(0, 1)
