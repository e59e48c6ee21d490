"""Functions that move, join, gather and multiply."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    agree_function,
    get,
    hold,
    normal,
    numbers,
    property_test,
)

F = torch.nn.functional
X = normal(0, 3, 4, 5)

# What ours and PyTorch's do with one array (3, 4, 5).
ONE_ARRAY = {
    "reshape": (lambda nn, x: nn.reshape(x, (5, -1, 2)), lambda x: x.reshape(5, -1, 2)),
    "permute": (lambda nn, x: nn.permute(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1)),
    "permute from the end": (
        lambda nn, x: nn.permute(x, (-1, 0, -2)),
        lambda x: x.permute(2, 0, 1),
    ),
    "transpose": (lambda nn, x: nn.transpose(x, 0, -1), lambda x: x.transpose(0, -1)),
    "flatten": (lambda nn, x: nn.flatten(x), lambda x: x.flatten(1)),
    "flatten some": (lambda nn, x: nn.flatten(x, 0, 1), lambda x: x.flatten(0, 1)),
    "flatten from the end": (lambda nn, x: nn.flatten(x, -2, -1), lambda x: x.flatten(-2, -1)),
    "expand_dims": (
        lambda nn, x: [nn.expand_dims(x, d) for d in (0, 2, -1)],
        lambda x: [x[None], x[:, :, None], x[..., None]],
    ),
    "squeeze": (lambda nn, x: nn.squeeze(x[:, 1:2], 1), lambda x: x[:, 1]),
    "broadcast_to": (
        lambda nn, x: nn.broadcast_to(x[:, :1], (2, 3, 4, 5)),
        lambda x: x[:, :1].expand(2, 3, 4, 5),
    ),
    "split evenly": (lambda nn, x: nn.split(x, 2, dim=-1), lambda x: x.split(2, dim=-1)),
    "split by sizes": (lambda nn, x: nn.split(x, [1, 3], dim=1), lambda x: x.split([1, 3], dim=1)),
    "chunk": (lambda nn, x: nn.chunk(x, 3, dim=2), lambda x: x.chunk(3, dim=2)),
    "chunk into fewer": (lambda nn, x: nn.chunk(x, 4, dim=2), lambda x: x.chunk(4, dim=2)),
    "flip": (
        lambda nn, x: [nn.flip(x, d) for d in (0, 1, -1)],
        lambda x: [x.flip(d) for d in (0, 1, -1)],
    ),
    "roll": (lambda nn, x: nn.roll(x, 2, 1), lambda x: x.roll(2, 1)),
    "roll back and around": (
        lambda nn, x: nn.roll(x, (-1, 7), (0, 2)),
        lambda x: x.roll((-1, 7), (0, 2)),
    ),
    "slice with a step": (lambda nn, x: x[:, ::2, 1:], lambda x: x[:, ::2, 1:]),
    "sum": (
        lambda nn, x: [nn.sum(x), nn.sum(x, 1), nn.sum(x, (0, -1), keepdim=True)],
        lambda x: [x.sum(), x.sum(1), x.sum((0, -1), keepdim=True)],
    ),
    "mean": (
        lambda nn, x: [nn.mean(x), nn.mean(x, -1, keepdim=True), nn.mean(x, (1, 2))],
        lambda x: [x.mean(), x.mean(-1, keepdim=True), x.mean((1, 2))],
    ),
    "max": (
        lambda nn, x: [nn.amax(x, 1), nn.max(x, -1, keepdim=True).values],
        lambda x: [x.max(1).values, x.max(-1, keepdim=True).values],
    ),
    "stack": (
        lambda nn, x: [nn.stack([x, x * 2.0], d) for d in (0, 1, -1)],
        lambda x: [torch.stack([x, x * 2.0], d) for d in (0, 1, -1)],
    ),
    "concatenate": (
        lambda nn, x: [
            nn.concatenate([x, x[:, :2]], dim=1),
            nn.concatenate([x[..., :1], x], dim=-1),
        ],
        lambda x: [torch.cat([x, x[:, :2]], 1), torch.cat([x[..., :1], x], -1)],
    ),
    "where": (
        lambda nn, x: [
            nn.where(x > 0.3, x, -1.0),
            nn.where(x > 0.0, 2.0, x),
            nn.where(x < 0.1, x * x, x),
        ],
        lambda x: [
            torch.where(x > 0.3, x, -1.0),
            torch.where(x > 0.0, 2.0, x),
            torch.where(x < 0.1, x * x, x),
        ],
    ),
    "stop_gradient": (lambda nn, x: x * nn.stop_gradient(x), lambda x: x * x.detach()),
    "zeros": (lambda nn, x: nn.zeros((2, 3), like=x) + x[:2, 0, :3], lambda x: x[:2, 0, :3]),
}


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_one_array_agree(name):
    agree_all(
        name, {label: FunctionCase(*functions, [X]) for label, functions in ONE_ARRAY.items()}
    )


PRODUCTS = {
    "vectors of matrices": ("bij,bj->bi", [(2, 3, 4), (2, 4)]),
    "outer": ("i,j->ij", [(3,), (4,)]),
    "attention": ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    "trace over a batch": ("bij,bij->b", [(2, 3, 4), (2, 3, 4)]),
    "three": ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    "transpose": ("ijk->kji", [(2, 3, 4)]),
    "sum": ("ijk->j", [(2, 3, 4)]),
}


def arrays(shapes):
    return [normal(seed, *shape) for seed, shape in enumerate(shapes)]


def einstein_sum(equation, shapes):
    return FunctionCase(
        lambda nn, *xs: nn.einsum(equation, *xs),
        lambda *xs: torch.einsum(equation, *xs),
        arrays(shapes),
    )


@pytest.mark.parametrize("name", NAMES)
def test_einstein_sums_agree(name):
    agree_all(name, {label: einstein_sum(*case) for label, case in PRODUCTS.items()})


MATRICES = [
    ((3, 4), (4, 2)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((5, 1, 3, 4), (2, 4, 2)),
    ((1, 3, 4), (6, 4, 1)),
]


@pytest.mark.parametrize("name", NAMES)
def test_matrix_products_agree_and_broadcast(name):
    agree_all(
        name,
        {
            str(shapes): FunctionCase(
                lambda nn, x, y: nn.matmul(x, y), torch.matmul, arrays(shapes)
            )
            for shapes in MATRICES
        },
    )


@st.composite
def paddings(draw):
    count = draw(st.integers(1, 3))
    mode = draw(st.sampled_from(["constant", "reflect", "replicate"]))
    return mode, [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(count)]


@property_test(10, case=paddings(), value=st.sampled_from([0.0, -2.5]), seed=numbers)
def test_asymmetric_and_negative_padding_agrees_with_numpys(case, value, seed):
    mode, pads = case
    x = normal(seed, 3, 4, 5)
    before = [(0, 0)] * (3 - len(pads)) + pads
    index = np.arange(60).reshape(
        x.shape
    )  # which element each element of the result comes from, -1 for the constant
    more = [(max(0, b), max(0, a)) for b, a in before]
    if mode == "constant":
        source = np.pad(index, more, constant_values=-1)
    else:
        source = np.pad(index, more, mode={"reflect": "reflect", "replicate": "edge"}[mode])
    inner = tuple(
        slice(max(0, -b), m - max(0, -a)) for (b, a), m in zip(before, source.shape, strict=True)
    )
    source = torch.tensor(source[inner])

    def theirs(x):
        return torch.where(
            source < 0, value if mode == "constant" else 0.0, x.flatten()[source.clamp(min=0)]
        )

    return FunctionCase(lambda nn, x: nn.pad(x, pads, mode, value), theirs, [x])


def padding(mode):
    return FunctionCase(
        lambda nn, x: nn.pad(x, [(2, 1), (0, 3)], mode),
        lambda x: F.pad(x, (0, 3, 2, 1), mode),
        [normal(0, 2, 3, 4, 5)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_padding_of_images_agrees_with_pytorchs(name):
    agree_all(name, {mode: padding(mode) for mode in ("reflect", "replicate")})


def taking(dim, index):
    axis = dim % 3

    def theirs(x):
        flat = x.index_select(axis, torch.tensor(index.reshape(-1)))
        return flat.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])

    return FunctionCase(lambda nn, x, i: nn.take(x, i, dim), lambda x, i: theirs(x), [X, index])


INDICES = {"1-d": np.array([2, 0, 2]), "2-d": np.array([[1, 0], [2, 2]]), "0-d": np.array(1)}


@pytest.mark.parametrize("name", NAMES)
def test_taking_elements_along_an_axis_agrees_with_numpys(name):
    agree_all(
        name,
        {
            f"{label} along {dim}": taking(dim, INDICES[label])
            for label in INDICES
            for dim in (0, 1, -1)
        },
    )


def taking_one_each(dim):
    shape = list(X.shape)
    shape[dim] = 6
    index = np.random.default_rng(2).integers(0, X.shape[dim], shape)
    return FunctionCase(
        lambda nn, x, i: nn.take_along(x, i, dim), lambda x, i: torch.gather(x, dim, i), [X, index]
    )


@pytest.mark.parametrize("name", NAMES)
def test_taking_one_element_for_each_entry_agrees(name):
    agree_all(name, {str(dim): taking_one_each(dim) for dim in (0, 1, -1)})


@pytest.mark.parametrize("name", NAMES)
def test_pixel_shuffle_and_the_flatten_layer_agree(name):
    shuffles = {
        f"by {n}": LayerCase("PixelShuffle", {"upscale_factor": n}, [normal(1, 2, 2 * n**2, 3, 4)])
        for n in (1, 2, 3)
    }
    flattened = [{}, {"start_dim": 0}, {"start_dim": 1, "end_dim": 2}]
    agree_all(
        name,
        shuffles
        | {
            str(settings): LayerCase("Flatten", settings, [normal(1, 2, 3, 4, 5)])
            for settings in flattened
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_argmax_gives_the_first_of_equal_maxima(name):
    x = np.random.default_rng(3).integers(0, 3, (5, 6)).astype(float)
    backend, network = get(name), hold(name)
    (given,) = backend.prepare((x,), network)
    for dim in (0, -1):
        found = backend.numpy(network.nn.argmax(given, dim))
        np.testing.assert_array_equal(found, np.argmax(x, dim), err_msg=str(dim))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_of_equal_maxima_takes_the_gradient(name):
    x = np.array([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    chosen = np.array([[1], [0]])
    agree_function(
        name,
        lambda nn, x: nn.max(x, 1).values,
        lambda x: x.gather(1, torch.tensor(chosen))[:, 0],
        [x],
    )


@pytest.mark.parametrize("name", NAMES)
def test_casts_have_the_type_asked_for(name):
    backend, network, numbers = get(name), hold(name), np.array([0.0, 1.0, -2.0])
    (x,) = backend.prepare((numbers,), network)
    for dtype in ("float32", "float64", "int64", "bool"):
        found = backend.numpy(network.nn.cast(x, dtype))
        np.testing.assert_array_equal(found, numbers.astype(dtype), err_msg=dtype, strict=True)
