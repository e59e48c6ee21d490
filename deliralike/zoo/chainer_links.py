"""The names of Chainer's own networks (``chainer.links.ResNet50Layers``, ``VGG16Layers`` …).

They follow Caffe's. Chainer's GoogLeNet is another network than torchvision's (biases in place of
normalisations, true 5x5 convolutions), so there is no key map for it.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from deliralike.zoo.keymaps import KeyMap, State

NAME = "chainer.links"
_CAFFE = (
    "chainer.links takes pixels from 0 to 255, in the order BGR, less each channel's mean "
    "(103.939, 116.779, 123.68)"
)


def _resnet(names: Sequence[str]) -> dict[str, str]:
    """Rename a network of bottlenecks; Chainer has no ResNet of basic blocks."""
    if not any(".conv3." in name for name in names):
        return {}
    table = {}
    for name in names:
        theirs = re.sub(r"^fc\.", "fc6.", name)
        table[name] = re.sub(r"^layer(\d)\.(\d+)\.(.+)$", _in_block, theirs)
    return table


def _in_block(match: re.Match[str]) -> str:
    stage = int(match[1]) + 1
    block = "a" if match[2] == "0" else f"b{match[2]}"
    rest = match[3].replace("downsample.0", "conv4").replace("downsample.1", "bn4")
    return f"res{stage}.{block}.{rest}"


def _without_stem_bias(state: State) -> State:
    """Remove the stem's bias, which our stem lacks.

    The normalisation behind it takes the bias into its running mean, which gives the same output.
    """
    if "conv1.bias" not in state or "bn1.running_mean" not in state:
        return state
    ours = dict(state)
    bias = ours.pop("conv1.bias")
    ours["bn1.running_mean"] = ours["bn1.running_mean"] - bias
    return ours


def _with_stem_bias(state: State) -> State:
    bias = np.zeros_like(state["bn1.running_mean"])
    return {"conv1.weight": state["conv1.weight"], "conv1.bias": bias, **state}


def _vgg(names: Sequence[str]) -> Mapping[str, str]:
    """Rename a plain network, one without normalisation.

    A pooling between two convolutions leaves a gap in torchvision's numbers.
    """
    if any(name.endswith("running_mean") for name in names):
        return {}
    places = {int(name.split(".")[1]) for name in names if name.startswith("features.")}
    owners = {"classifier.0": "fc6", "classifier.3": "fc7", "classifier.6": "fc8"}
    block = number = 0
    for place in sorted(places):
        if place - 2 in places:
            number += 1
        else:
            block += 1
            number = 1
        owners[f"features.{place}"] = f"conv{block}_{number}"
    table = {}
    for name in names:
        owner, _, leaf = name.rpartition(".")
        table[name] = f"{owners[owner]}.{leaf}"
    return table


RESNET = KeyMap(
    NAME,
    _resnet,
    mend=_without_stem_bias,
    complete=_with_stem_bias,
    notes=(
        _CAFFE,
        "it has the stride of a stage in the first 1x1 convolution of a block (downsample_fb=True: "
        "in the 3x3 one, as here), pools without padding after the stem, and normalises with "
        "eps=2e-5: outputs differ",
    ),
)
VGG = KeyMap(NAME, _vgg, notes=(_CAFFE,))
