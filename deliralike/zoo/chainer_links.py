"""The names of Chainer's own VGG networks (``chainer.links.VGG16Layers`` …), which are Caffe's."""

from collections.abc import Mapping, Sequence

from deliralike.zoo.keymaps import KeyMap

NAME = "chainer.links"
_CAFFE = (
    "chainer.links takes pixels from 0 to 255, in the order BGR, less each channel's mean "
    "(103.939, 116.779, 123.68)"
)


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


VGG = KeyMap(NAME, _vgg, notes=(_CAFFE,))
