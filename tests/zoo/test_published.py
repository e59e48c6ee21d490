"""Parameters and multiply-adds that torchvision publishes with its weights, for every name of the zoo that it has."""

import pytest
import torchvision

from deliralike import zoo

WEIGHTS = {
    name: next(iter(torchvision.models.get_model_weights(name)))
    for name in torchvision.models.list_models()
    if name in zoo.list()
}


def settings(name):
    """Those with which the numbers were published, where they are not the defaults."""
    if name == "googlenet":
        return {"aux_logits": False}  # its file has the auxiliary classifiers, the published number has not
    if name.startswith(("fcn_", "deeplabv3_")):
        return {"aux_loss": True}
    return {}


@pytest.mark.parametrize("name", WEIGHTS)
def test_parameters_and_multiply_adds_are_those_published(name):
    weights, given = WEIGHTS[name], settings(name)
    keywords = weights.transforms.keywords  # segmentation: images are not cut, but resized to 520
    side = keywords.get("crop_size", keywords.get("resize_size"))
    if "image_size" in zoo.find(name).settings:
        given = given | {"image_size": side}
    outline = zoo.outline(name, (3, side, side), **given)
    assert outline.parameters == weights.meta["num_params"]
    assert outline.multiply_adds / 1e9 == pytest.approx(weights.meta["_ops"], abs=5.1e-4)
