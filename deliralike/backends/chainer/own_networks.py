"""The reference networks that Chainer ships, evaluated with weights of ours."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.network import WrappedChainerNetwork


def outputs(state: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[str, np.ndarray] | None:
    """Return the name of Chainer's network with these parameter names, and its logits.

    None if Chainer has no such network.
    """
    link_class, last = _class_and_last_layer(state)
    if link_class is None:
        return None
    with chainer.using_config("dtype", x.dtype):
        link = link_class(pretrained_model=None)
    WrappedChainerNetwork(link).load_neutral_state(state)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        layers = link(x, layers=[last])
    return f"chainer.links.{link_class.__name__}", layers[last].array


def _class_and_last_layer(state: Mapping[str, np.ndarray]) -> tuple[Any, str]:
    """Return the class of links with these parameter names, or None, and its last layer."""
    links = chainer.links
    if "conv5_4.weight" in state:
        return links.VGG19Layers, "fc8"
    if "conv5_1.weight" in state:
        return links.VGG16Layers, "fc8"
    resnets: dict[tuple[int, ...], Any] = {
        (3, 4, 6, 3): links.ResNet50Layers,
        (3, 4, 23, 3): links.ResNet101Layers,
        (3, 8, 36, 3): links.ResNet152Layers,
    }
    blocks = tuple(_block_count(state, f"res{stage}.") for stage in (2, 3, 4, 5))
    return resnets.get(blocks), "fc6"


def _block_count(state: Mapping[str, np.ndarray], prefix: str) -> int:
    return len({name.split(".")[1] for name in state if name.startswith(prefix)})
