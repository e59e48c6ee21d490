"""The reference networks that Chainer ships, evaluated with weights of ours."""

from collections.abc import Mapping

import numpy as np

from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.network import WrappedChainerNetwork


def outputs(state: Mapping[str, np.ndarray], x: np.ndarray) -> tuple[str, np.ndarray] | None:
    """Return the name of Chainer's network with these parameter names, and its logits.

    None if Chainer has no such network.
    """
    kind, last = _kind(state)
    if kind is None:
        return None
    with chainer.using_config("dtype", x.dtype):
        link = kind(pretrained_model=None)
    WrappedChainerNetwork(link).load_neutral_state(state)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return f"chainer.links.{kind.__name__}", link(x, layers=[last])[last].array


def _kind(state: Mapping[str, np.ndarray]) -> tuple[type[chainer.Link] | None, str]:
    links = chainer.links
    if "conv5_1.weight" in state:
        return (links.VGG19Layers if "conv5_4.weight" in state else links.VGG16Layers), "fc8"
    blocks = tuple(
        len({name.split(".")[1] for name in state if name.startswith(f"res{i}.")})
        for i in (2, 3, 4, 5)
    )
    resnets = {
        (3, 4, 6, 3): links.ResNet50Layers,
        (3, 4, 23, 3): links.ResNet101Layers,
        (3, 8, 36, 3): links.ResNet152Layers,
    }
    return resnets.get(blocks), "fc6"
