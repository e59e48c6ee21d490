"""Array functions against NumPy and torch."""

import chainer
import chainer.functions as F
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [(9, 11), (3, 4), (5, 7), (1, 13)], ids=str)
def test_resize_images_is_the_bilinear_interpolation_of_torch(
    size, align_corners, rng, agree
):
    agree(
        lambda x: F.resize_images(x, size, align_corners=align_corners),
        lambda x: torch.nn.functional.interpolate(
            x, size, mode="bilinear", align_corners=align_corners
        ),
        rng.normal(size=(2, 3, 5, 7)),
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_resize_images_keeps_the_dtype(dtype, rng):
    x = chainer.Variable(rng.normal(size=(2, 3, 5, 7)).astype(dtype))
    y = F.resize_images(x, (9, 11))
    F.sum(y).backward()
    assert (y.dtype, x.grad.dtype) == (np.dtype(dtype), np.dtype(dtype))


def test_as_strided_of_more_than_32767_half_floats_gets_the_right_gradient():
    x = chainer.Variable(np.zeros(40_001, "float16"))
    F.sum(F.as_strided(x, (20_000, 3), (2, 1), 0)).backward()
    expected = np.ones(40_001)
    expected[2:40_000:2] = 2
    np.testing.assert_array_equal(x.grad, expected)


@pytest.mark.parametrize(
    ("dtype", "filled"), [("int32", -1), ("uint8", 255), ("uint32", 2**32 - 1)]
)
def test_minus_one_pads_integers_by_wrapping_around(dtype, filled):
    y = F.pad_sequence([np.array([1, 2], dtype), np.array([3], dtype)], padding=-1)
    np.testing.assert_array_equal(y.array, [[1, 2], [3, filled]])


INDICES = {
    "slice": (lambda x: x[1:, ::2, -1], lambda x: x[1:, ::2, -1]),
    "ellipsis": (lambda x: x[..., None, 1:3], lambda x: x[..., None, 1:3]),
    "list_index": (lambda x: x[[0, 2, 0]], lambda x: x[[0, 2, 0]]),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_takes_what_it_takes_in_torch(name, rng, agree):
    agree(*INDICES[name], rng.normal(size=(3, 4, 5)))
