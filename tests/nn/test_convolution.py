"""Convolution and transposed convolution in 1 to 3 dimensions."""

import pytest
import torch

from tests.nn.agreement import (
    NAMES,
    LayerCase,
    agree_all,
    normal,
)

F = torch.nn.functional


# Settings that the zoo's models have (ZOO.md, section 3), at odd sizes.
IN_THE_ZOO = {
    "resnet stem": ("Conv2d", dict(args=(3, 4, 7), stride=2, padding=3, bias=False), (2, 3, 11, 9)),
    "depthwise": ("Conv2d", dict(args=(4, 8, 5), stride=2, padding=2, groups=4), (2, 4, 9, 7)),
    "atrous": ("Conv2d", dict(args=(2, 3, 3), padding=4, dilation=4), (1, 2, 7, 5)),
    "asymmetric kernel": ("Conv2d", dict(args=(2, 3, (1, 7)), padding=(0, 3)), (1, 2, 5, 8)),
    "even same": ("Conv2d", dict(args=(2, 3, (4, 2)), padding="same"), (1, 2, 5, 6)),
    "video": (
        "Conv3d",
        dict(args=(2, 3, (3, 7, 7)), stride=(1, 2, 2), padding=(1, 3, 3)),
        (1, 2, 3, 7, 9),
    ),
    "unet": ("ConvTranspose2d", dict(args=(4, 2, 2), stride=2), (2, 4, 3, 5)),
    "dcgan": ("ConvTranspose2d", dict(args=(4, 3, 4, 2, 1), bias=False), (2, 4, 3, 5)),
    "monai": (
        "ConvTranspose3d",
        dict(args=(2, 3, 3), stride=2, padding=1, output_padding=1),
        (1, 2, 3, 2, 4),
    ),
    "depthwise up": ("ConvTranspose2d", dict(args=(3, 6, 3), stride=2, groups=3), (2, 3, 4, 3)),
}


@pytest.mark.parametrize("name", NAMES)
def test_convolutions_of_the_zoo_agree(name):
    agree_all(
        name,
        {
            label: LayerCase(layer, settings, [normal(1, *shape)])
            for label, (layer, settings, shape) in IN_THE_ZOO.items()
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_transposed_convolution_reaches_the_size_asked_for(name):
    settings = {"args": (2, 3, 3), "stride": 2, "padding": 1}

    def to(size):
        x = normal(2, 2, 2, 5, 4)
        return LayerCase(
            "ConvTranspose2d", settings, [x], call=lambda layer, x: layer(x, output_size=size)
        )

    agree_all(name, {str(size): to(size) for size in [(9, 7), (10, 8), (10, 7)]})
