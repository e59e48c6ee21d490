"""Chainer's own links as layers of `nn`: the equivalent layer, and its settings."""

from __future__ import annotations

from typing import Any

from deliralike.backends.chainer.arrays import chainer

L = chainer.links


def neutral_layer(link: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the name and settings of the layer of `nn` that equals a link of Chainer's own.

    None for other links.
    """
    for kind, describe in _LAYERS.items():
        if isinstance(link, kind):
            return describe(link)
    return None


def _convolution(link: Any) -> tuple[str, dict[str, Any]]:
    settings = {
        "stride": link.stride,
        "padding": link.pad,
        "dilation": link.dilate,
        "groups": link.groups,
    }
    return f"Conv{link.W.ndim - 2}d", settings | {"bias": link.b is not None}


def _batch_norm(link: Any) -> tuple[str, dict[str, Any]]:
    affine = hasattr(link, "gamma") or hasattr(link, "beta")
    return "BatchNorm2d", {
        "eps": link.eps,
        "momentum": 1.0 - link.decay,
        "affine": affine,
        "track_running_stats": True,
    }


_LAYERS = {
    L.Convolution2D: _convolution,
    L.BatchNormalization: _batch_norm,
    L.LayerNormalization: lambda link: (
        "LayerNorm",
        {"normalized_shape": link.gamma.shape, "eps": link.eps},
    ),
    L.GroupNormalization: lambda link: ("GroupNorm", {"num_groups": link.groups, "eps": link.eps}),
    L.EmbedID: lambda link: ("Embedding", {"padding_idx": link.ignore_label}),
    L.Linear: lambda link: ("Linear", {"bias": link.b is not None}),
}
