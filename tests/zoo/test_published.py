"""Parameters and multiply-adds that torchvision publishes with its weights, for every name of the
zoo that it has."""

import pytest

from deliralike import zoo

#: Those whose first published weights are for images larger than the architecture's own; the second
#: are for the latter.
LARGER = ("regnet_y_128gf", "vit_h_14")


def published(name):
    """The weights of which the numbers are to be ours."""
    import torchvision

    weights = list(torchvision.models.get_model_weights(name))
    return weights[:2] if name in LARGER else weights[:1]


def settings(name, side):
    """Those with which the numbers were published, where they are not the defaults."""
    if name == "googlenet":
        return {
            "aux_logits": False
        }  # its file has the auxiliary classifiers, the published number has not
    if name.startswith(("fcn_", "deeplabv3_")):
        return {"aux_loss": True}
    return {"image_size": side} if "image_size" in zoo.find(name).settings else {}


def test_parameters_and_multiply_adds_are_those_published(subtests):
    import torchvision

    names = set(torchvision.models.list_models()) & set(zoo.list())
    assert len(names) == 86
    for name in sorted(names):
        shapes = []
        for weights in published(name):
            keywords = (
                weights.transforms.keywords
            )  # segmentation: images are not cut, but resized to 520
            side = keywords.get("crop_size", keywords.get("resize_size"))
            is_video = not isinstance(side, int)
            shapes.append((3, 16, *side) if is_video else (3, side, side))
            outline = zoo.outline(name, shapes[-1], **settings(name, side))
            with subtests.test(name, weights=weights.name):
                assert outline.parameters == weights.meta["num_params"]
                assert outline.multiply_adds / 1e9 == pytest.approx(
                    weights.meta["_ops"], abs=5.1e-4
                )
                if zoo.find(name).task == "segmentation":
                    assert {shape[1:] for shape in outline.output.values()} == {
                        (21, side, side)
                    }
        with subtests.test(name):
            assert shapes[-1] == zoo.find(name).input_shape
