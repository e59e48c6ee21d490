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


@pytest.mark.parametrize("size", [(9, 11), (3, 4), (5, 7)], ids=str)
def test_resize_images_takes_the_nearest_pixel_as_torch_does(size, rng, agree):
    agree(
        lambda x: F.resize_images(x, size, mode="nearest"),
        lambda x: torch.nn.functional.interpolate(x, size, mode="nearest"),
        rng.normal(size=(2, 3, 5, 7)),
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_resize_images_keeps_the_dtype(dtype, rng):
    x = chainer.Variable(rng.normal(size=(2, 3, 5, 7)).astype(dtype))
    y = F.resize_images(x, (9, 11))
    F.sum(y).backward()
    assert (y.dtype, x.grad.dtype) == (np.dtype(dtype), np.dtype(dtype))


def test_as_strided_adds_up_the_gradients_of_overlapping_windows(rng, agree):
    agree(
        lambda x: F.as_strided(x, (4, 3), (2, 1), 1),
        lambda x: torch.as_strided(x, (4, 3), (2, 1), 1),
        rng.normal(size=11),
    )


def test_as_strided_of_more_than_32767_half_floats_gets_the_right_gradient():
    x = chainer.Variable(np.zeros(40_001, "float16"))
    F.sum(F.as_strided(x, (20_000, 3), (2, 1), 0)).backward()
    expected = np.ones(40_001)
    expected[2:40_000:2] = 2
    np.testing.assert_array_equal(x.grad, expected)


@pytest.mark.parametrize("length", [None, 6])
def test_pad_sequence_fills_up_behind_each_sequence(length, rng, agree):
    def oracle(*xs):
        padded = torch.nn.utils.rnn.pad_sequence(
            xs, batch_first=True, padding_value=-1.0
        )
        return torch.nn.functional.pad(
            padded, (0, 0, 0, (length or 4) - padded.shape[1]), value=-1.0
        )

    agree(
        lambda *xs: F.pad_sequence(list(xs), length, padding=-1.0),
        oracle,
        *(rng.normal(size=(n, 3)) for n in (2, 4, 1)),
    )


@pytest.mark.parametrize(
    ("dtype", "filled"), [("int32", -1), ("uint8", 255), ("uint32", 2**32 - 1)]
)
def test_minus_one_pads_integers_by_wrapping_around(dtype, filled):
    y = F.pad_sequence([np.array([1, 2], dtype), np.array([3], dtype)], padding=-1)
    np.testing.assert_array_equal(y.array, [[1, 2], [3, filled]])


FUNCTIONS = {
    "slice": (lambda x: x[1:, ::2, -1], lambda x: x[1:, ::2, -1]),
    "ellipsis": (lambda x: x[..., None, 1:3], lambda x: x[..., None, 1:3]),
    "list_index": (lambda x: x[[0, 2, 0]], lambda x: x[[0, 2, 0]]),
    "pair_of_lists": (
        lambda x: x[[0, 2, 0], [1, 1, 1]],
        lambda x: x[[0, 2, 0], [1, 1, 1]],
    ),
    "get_item_variable_index": (
        lambda x: x[(np.array([True, False, True]),)],
        lambda x: x[[0, 2]],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_array_function_is_that_of_torch(name, rng, agree):
    agree(*FUNCTIONS[name], rng.normal(size=(3, 4, 5)))


def test_scatter_add_adds_up_what_falls_on_one_place(rng, agree):
    rows = [0, 2, 0]
    agree(
        lambda a, b: F.scatter_add(a, rows, b),
        lambda a, b: a.index_add(0, torch.tensor(rows), b),
        rng.normal(size=(4, 3)),
        rng.normal(size=(3, 3)),
    )


def test_a_spatial_transformer_samples_the_grid_as_torch_does(rng, agree):
    def oracle(x, theta):
        grid = torch.nn.functional.affine_grid(theta, (2, 3, 4, 5), align_corners=True)
        return torch.nn.functional.grid_sample(x, grid, align_corners=True)

    agree(
        lambda x, theta: F.spatial_transformer_sampler(
            x, F.spatial_transformer_grid(theta, (4, 5))
        ),
        oracle,
        rng.normal(size=(2, 3, 5, 7)),
        np.array([[[0.6, 0.1, 0.05], [-0.1, 0.5, 0.02]]] * 2),
    )
