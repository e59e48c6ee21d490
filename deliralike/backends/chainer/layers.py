"""Chainer's own links as layers of `nn`: the equivalent layer, and its settings."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer.arrays import chainer
from deliralike.network.interface import NeutralLayer

L = chainer.links


def neutral_layer(block: Any) -> NeutralLayer | None:
    """Return the name and settings of the layer of `nn` that equals a link of Chainer's own.

    None for other links.
    """
    for kind, describe in _LAYERS.items():
        if isinstance(block, kind):
            return describe(block)
    return None


def _convolution(link: Any) -> NeutralLayer:
    settings = {
        "stride": link.stride,
        "padding": link.pad,
        "dilation": link.dilate,
        "groups": link.groups,
        "bias": link.b is not None,
    }
    return f"Conv{link.W.ndim - 2}d", settings


def _batch_norm(link: Any) -> NeutralLayer:
    settings = {
        "eps": link.eps,
        "momentum": 1.0 - link.decay,
        "affine": hasattr(link, "gamma") or hasattr(link, "beta"),
        "track_running_stats": True,
    }
    return "BatchNorm2d", settings


def _layer_norm(link: Any) -> NeutralLayer:
    return "LayerNorm", {"normalized_shape": link.gamma.shape, "eps": link.eps}


def _group_norm(link: Any) -> NeutralLayer:
    return "GroupNorm", {"num_groups": link.groups, "eps": link.eps}


def _embedding(link: Any) -> NeutralLayer:
    return "Embedding", {"padding_idx": link.ignore_label}


def _linear(link: Any) -> NeutralLayer:
    return "Linear", {"bias": link.b is not None}


_LAYERS = {
    L.Convolution2D: _convolution,
    L.BatchNormalization: _batch_norm,
    L.LayerNormalization: _layer_norm,
    L.GroupNormalization: _group_norm,
    L.EmbedID: _embedding,
    L.Linear: _linear,
}
