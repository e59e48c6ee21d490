"""Flax's own layers as layers of `nn`: the equivalent layer, and its settings."""

from __future__ import annotations

from typing import Any

from flax import nnx

from deliralike.network.interface import NeutralLayer

_CHANNELS_LAST = (nnx.Conv, nnx.BatchNorm, nnx.GroupNorm)


def neutral_layer(block: Any) -> NeutralLayer | None:
    """Return the name and settings of the layer of `nn` that equals a layer of flax's own.

    None for other layers, and for a convolution whose padding depends on the size of its input.
    """
    describe = _LAYERS.get(type(block))
    return None if describe is None else describe(block)


def has_channels_last(block: Any) -> bool:
    """Return whether a layer takes its channels last, and that of `nn` takes them second."""
    return isinstance(block, _CHANNELS_LAST)


def _convolution(layer: nnx.Conv) -> NeutralLayer | None:
    rank = len(layer.kernel_size)
    stride, dilation = (
        (given,) * rank if isinstance(given, int) else tuple(given or (1,) * rank)
        for given in (layer.strides, layer.kernel_dilation)
    )
    padding = layer.padding
    if padding == "VALID":
        padding = 0
    elif padding == "SAME":
        spans = [d * (k - 1) for d, k in zip(dilation, layer.kernel_size, strict=True)]
        if set(stride) != {1} or any(span % 2 for span in spans):
            return None
        padding = tuple(span // 2 for span in spans)
    elif not isinstance(padding, int):
        return None
    settings = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": layer.feature_group_count,
        "bias": layer.use_bias,
    }
    return f"Conv{rank}d", settings


def _batch_norm(layer: nnx.BatchNorm) -> NeutralLayer:
    settings = {
        "eps": layer.epsilon,
        "momentum": 1.0 - layer.momentum,
        "affine": layer.use_bias or layer.use_scale,
        "track_running_stats": True,
        "biased": True,  # the running variance
    }
    return "BatchNorm2d", settings


def _layer_norm(layer: nnx.LayerNorm) -> NeutralLayer:
    return "LayerNorm", {
        "normalized_shape": (layer.num_features,),
        "eps": layer.epsilon,
    }


def _group_norm(layer: nnx.GroupNorm) -> NeutralLayer:
    return "GroupNorm", {"num_groups": layer.num_groups, "eps": layer.epsilon}


_LAYERS = {
    nnx.Conv: _convolution,
    nnx.BatchNorm: _batch_norm,
    nnx.LayerNorm: _layer_norm,
    nnx.GroupNorm: _group_norm,
}
