"""Convolution and transposed convolution in 1 to 3 dimensions."""

from tests.nn.agreement import (
    LayerCase,
    agree_all,
    normal,
)

# Settings that the zoo's models have (ZOO.md, section 3), at odd sizes.


def test_a_transposed_convolution_reaches_the_size_asked_for(name):
    settings = {"args": (2, 3, 3), "stride": 2, "padding": 1}

    def to(size):
        x = normal(2, 2, 2, 5, 4)
        return LayerCase(
            "ConvTranspose2d",
            settings,
            [x],
            call=lambda layer, x: layer(x, output_size=size),
        )

    agree_all(name, {str(size): to(size) for size in [(9, 7), (10, 8), (10, 7)]})


def test_one_number_in_a_list_is_for_all_axes(name):
    settings = {"args": (2, 3, 3), "stride": [2], "padding": [1]}
    agree_all(name, {"": LayerCase("Conv2d", settings, [normal(2, 2, 2, 7, 5)])})
