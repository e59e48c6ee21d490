"""Functions at minus infinity, NaN, masks of everything, and bounds: values and gradients are
PyTorch's."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, backends, build
from tests.nn.agreement import normal

F = torch.nn.functional
INFINITE = np.inf
TOKENS = [normal(seed, 2, 1, 3, 4) for seed in range(3)]
ALLOWED = np.ones((2, 1, 3, 3), bool)
ALLOWED[0, 0, 1] = False  # a query that may attend to no key
FORBIDDEN = np.where(ALLOWED, 0.0, -INFINITE)
LABELS = np.array([0, -100, -100, 2])
LOGITS = normal(3, 4, 3)
LOGITS[1] = [-INFINITE, 0.0, 1.0]
LOG_P = np.log(F.softmax(torch.tensor(normal(4, 4, 3)), 1).numpy())
LOG_P[1], LOG_P[2] = -INFINITE, np.nan
WEIGHT = np.array([0.5, 2.0, 1.5])
WINDOWS = normal(5, 1, 1, 4, 4)
WINDOWS[..., :2, :2] = -INFINITE
CORNERS = normal(7, 1, 2, 5, 7)
CORNERS[:, 0], CORNERS[:, 1, :3, :4] = -INFINITE, -INFINITE
PADDED = {  # kernel, stride, padding, dilation, ceil_mode
    "": (3, 2, 1),
    ", even kernel": (2, 1, 1),
    ", unequal": ((3, 5), (1, 2), (1, 2)),
    ", dilated": (3, 2, 1, 2),
    ", ceil_mode": (3, 2, 1, 1, True),
}
COLUMNS = normal(10, 1, 6, 12)
COLUMNS[0, 2, 5] = INFINITE
BEYOND = np.array([[[[-3.0, -3.0], [0.5, -3.0], [0.4, 0.3], [-3.0, 0.9]]]])
ROWS = normal(8, 3, 4)
ROWS[1] = -np.abs(ROWS[1])  # of which relu makes zeros, whose norm has no derivative
SPIKES = np.array([np.nan, 1.0, np.inf, 1.0])  # of the gradients that come back
STEPS = [normal(seed, *shape) for seed, shape in enumerate([(3, 2, 4), (2, 4), (4, 4)])]
OFF = np.array([-90.0, 0.0, -90.0, 0.0])  # units that relu leaves at 0
PROBABILITIES = np.array([0.0, 1.0, 0.3, 1.0, 0.0, 1e-14])
WANTED = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])


def labelled(function, *settings):
    """A loss of scores and the labels above."""
    return lambda nn, x: getattr(nn, function)(
        x, nn.constant(LABELS, like=x), *settings
    )


def weights_without_nan(query, key):
    """The weights; 0 for what may attend to nothing, where PyTorch's softmax is NaN."""
    scores = query @ key.transpose(-1, -2) / 2.0
    return F.softmax(scores, -1) * torch.tensor(ALLOWED)


def spiked(nn, y):
    """An array of four columns, through which gradients come back NaN and infinite."""
    return y * nn.constant(SPIKES, like=y)


def recurrence(x, hidden, weight):
    parameters = [weight, weight, torch.tensor(OFF), torch.zeros(4).double()]
    states = hidden[None]
    rnn = torch.rnn_relu(x, states, parameters, True, 1, 0.0, False, False, False)
    return rnn[0] * torch.tensor(SPIKES)


def focal(x):
    """The focal loss of the labels that count, by its formula."""
    log_p = F.log_softmax(x, 1)[[0, 3], [0, 2]]
    return -((1 - log_p.exp()) ** 2 * log_p).mean()


CASES = {
    "attention of a query that may attend to nothing": (
        lambda nn, q, k, v: nn.scaled_dot_product_attention(
            q, k, v, nn.constant(ALLOWED, like=q)
        ),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor(ALLOWED)),
        TOKENS,
    ),
    "weights of a query that may attend to nothing": (
        lambda nn, q, k: nn.attention(q, k, k, nn.constant(FORBIDDEN, like=q))[1],
        weights_without_nan,
        TOKENS[:2],
    ),
    "cross-entropy with minus infinity at an ignored place": (
        labelled("cross_entropy"),
        lambda x: F.cross_entropy(x, torch.tensor(LABELS)),
        [LOGITS],
    ),
    "cross-entropy with weights and minus infinity at an ignored place": (
        lambda nn, x: nn.cross_entropy(
            x,
            nn.constant(LABELS, like=x),
            nn.constant(WEIGHT, like=x),
            label_smoothing=0.1,
        ),
        lambda x: F.cross_entropy(
            x, torch.tensor(LABELS), torch.tensor(WEIGHT), label_smoothing=0.1
        ),
        [LOGITS],
    ),
    "nll_loss with NaN at an ignored place": (
        labelled("nll_loss"),
        lambda x: F.nll_loss(x, torch.tensor(LABELS)),
        [LOG_P],
    ),
    "focal loss with minus infinity at an ignored place": (
        labelled("focal_loss"),
        focal,
        [LOGITS],
    ),
    "maxima of windows of minus infinity": (
        lambda nn, x: nn.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 2),
        [WINDOWS],
    ),
    **{
        f"maxima of windows of minus infinity and padding{case}": (
            lambda nn, x, settings=settings: nn.max_pool2d(x, *settings),
            lambda x, settings=settings: F.max_pool2d(x, *settings),
            [CORNERS],
        )
        for case, settings in PADDED.items()
    },
    **{
        f"{mode} samples beyond an edge of minus infinity": (
            lambda nn, x, mode=mode: nn.grid_sample(
                x, nn.constant(BEYOND, like=x), mode, align_corners=False
            ),
            lambda x, mode=mode: F.grid_sample(
                x, torch.tensor(BEYOND), mode, align_corners=False
            ),
            [WINDOWS],
        )
        for mode in ("bilinear", "nearest")
    },
    "windows of minus infinity as columns": (
        lambda nn, x: nn.unfold(x, (2, 3), (2, 1), 1, (1, 2)),
        lambda x: F.unfold(x, (2, 3), (2, 1), 1, (1, 2)),
        [WINDOWS],
    ),
    "overlapping columns with infinity, under gradients of NaN": (
        lambda nn, x: spiked(nn, nn.fold(x, (6, 4), (3, 2), (1, 2), 1, (2, 1))),
        lambda x: F.fold(x, (6, 4), (3, 2), (1, 2), 1, (2, 1)) * torch.tensor(SPIKES),
        [COLUMNS],
    ),
    "maxima of windows under gradients of NaN": (
        lambda nn, x: spiked(nn, nn.max_pool2d(x, (2, 1))),
        lambda x: F.max_pool2d(x, (2, 1)) * torch.tensor(SPIKES),
        [normal(5, 1, 1, 4, 4)],
    ),
    "relu over the norm of a row of zeros": (
        lambda nn, x: nn.relu(x) / (nn.sqrt(nn.sum(nn.relu(x) ** 2.0, 1, True)) + 1e-9),
        lambda x: F.relu(x) / (F.relu(x).pow(2).sum(1, True).sqrt() + 1e-9),
        [ROWS],
    ),
    **{
        f"{name} under gradients of NaN": (
            lambda nn, x, name=name: spiked(nn, getattr(nn, name)(x)),
            lambda x, name=name: getattr(F, name)(x) * torch.tensor(SPIKES),
            [ROWS * 8.0],
        )
        for name in ("relu", "relu6", "leaky_relu", "elu", "hardtanh", "hardsigmoid")
    },
    "rnn with relu under gradients of NaN": (
        lambda nn, x, hidden, weight: spiked(
            nn,
            nn.rnn(
                x,
                hidden,
                weight,
                weight,
                nn.constant(OFF, like=x),
                nn.zeros((4,), like=x),
                nonlinearity="relu",
            )[0],
        ),
        recurrence,
        STEPS,
    ),
    "circular padding that crops": (
        lambda nn, x: nn.pad(x, (-1, 2, 1, -2), "circular"),
        lambda x: F.pad(x, (-1, 2, 1, -2), "circular"),
        [normal(6, 1, 2, 5, 6)],
    ),
    "binary cross-entropy at 0 and 1": (
        lambda nn, x: nn.binary_cross_entropy(
            x, nn.constant(WANTED, like=x), None, "none"
        ),
        lambda x: F.binary_cross_entropy(x, torch.tensor(WANTED), reduction="none"),
        [PROBABILITIES],
    ),
    "logaddexp of a number and nothing": (
        lambda nn, x, y: nn.logaddexp(x, y),
        torch.logaddexp,
        [np.array([0.5, -INFINITE, 2.0]), np.array([-INFINITE, 0.5, 2.0])],
    ),
    "median of equal elements": (
        lambda nn, x: nn.median(x),
        torch.median,
        [np.array([[2.0, 1.0, 2.0], [2.0, 5.0, 0.0]])],
    ),
}


def weights_of(y):
    return np.abs(
        normal(9, *y.shape)
    )  # of one sign: the sum of infinities is none but infinite


@cache
def found(name):
    """The outputs of all cases on a backend and the gradients of their inputs, by one program."""
    backend = backends.get(name)

    def loss(network, inputs):
        nn, total, outputs = network.nn, 0.0, {}
        for case, (ours, _, _) in CASES.items():
            y = outputs[case] = ours(nn, *inputs[case])
            total = nn.sum(y * nn.constant(weights_of(y), like=y)) + total
        return total, outputs

    network = build(Network.on(backend), dtype="float64")
    with np.errstate(divide="ignore", invalid="ignore"):
        result = backend.gradients(
            loss, network, {case: row[2] for case, row in CASES.items()}
        )
    return result.beside[0], result.inputs[0]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_pytorch(backend, case):
    _, theirs, inputs = CASES[case]
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = theirs(*tensors)
    (y * torch.tensor(weights_of(y))).sum().backward()
    outputs, gradients = found(backend.name)
    assert_allclose(outputs[case], y.detach().numpy(), rtol=1e-12)
    for gradient, tensor in zip(gradients[case], tensors, strict=True):
        # PyTorch has the bound of 1e-12 in float32
        assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("settings", PADDED.values(), ids=PADDED)
def test_positions_of_maxima_are_never_in_the_padding(backend, settings):
    x = backend.array(CORNERS, "float64")
    found = backend.nn.max_pool2d(x, *settings, return_indices=True)[1]
    wanted = F.max_pool2d(torch.tensor(CORNERS), *settings, return_indices=True)[1]
    assert_array_equal(backend.numpy(found), wanted.numpy())


NAN_AND_INFINITE = np.array([-INFINITE, -INFINITE, 1.0, INFINITE, 7.0, np.nan, 2.0])
SHORT = NAN_AND_INFINITE[[2, 4, 5, 6]]
VALUES = {
    **{
        name: lambda nn, x, name=name: getattr(nn, name)(x)
        for name in ("relu6", "hardsigmoid", "hardswish")
    },
    "logaddexp": lambda nn, x: nn.logaddexp(x[:, None], x[None]),
    "logcumsumexp": lambda nn, x: nn.logcumsumexp(x, 0),
    **{
        f"{name}, part {part}": (
            lambda nn, x, name=name, part=part: getattr(nn, name)(x, 0)[part]
        )
        for name in ("cummax", "cummin", "median")
        for part in (0, 1)
    },
    "threshold": lambda nn, x: nn.threshold(x, 0.5, 7.0),
    **{
        f"norm of {p}": lambda nn, x, p=p: nn.norm(x[::2], p)
        for p in (0.5, 3.0, -1.0, -math.inf)
    },
    "lp_pool1d": lambda nn, x: nn.lp_pool1d(x[None, None], 2.0, 2, 1),
    "lp_pool1d in ceil_mode": lambda nn, x: nn.lp_pool1d(
        x[None, None], 2.0, 3, 2, True
    ),
    "quantile": lambda nn, x: nn.quantile(x, 0.3, 0),
    "sort from the largest on": lambda nn, x: nn.sort(x, descending=True)[0],
    "argsort from the largest on": lambda nn, x: nn.argsort(
        x, descending=True, stable=True
    ),
    "topk": lambda nn, x: nn.topk(x, 2)[0],
    "searchsorted": lambda nn, x: nn.searchsorted(x[:2], x),
    "searchsorted, right": lambda nn, x: nn.searchsorted(x[:2], x, right=True),
    "logsumexp of nothing": lambda nn, x: nn.logsumexp(x[:0], 0),
    "logsumexp of nothing along an axis": (
        lambda nn, x: nn.logsumexp(x[:0, None], 0, True)
    ),
    **{
        f"leaky_relu by {slope}": lambda nn, x, slope=slope: nn.leaky_relu(x, slope)
        for slope in (0.2, 0.0, 1.0, 1.5, -0.3)
    },
}


@pytest.mark.parametrize("case", VALUES)
def test_nan_is_not_lost_and_infinities_of_one_sign_give_none(network, case):
    backend = network.backend
    theirs = F if hasattr(F, case.partition(" ")[0]) else torch
    for array in (NAN_AND_INFINITE, SHORT):
        with np.errstate(invalid="ignore"):
            found = VALUES[case](backend.nn, backend.array(array, "float64"))
        wanted = VALUES[case](theirs, torch.tensor(array))
        assert_allclose(backend.numpy(found), wanted.numpy(), rtol=1e-12)


def test_infinite_maxima_come_back_to_their_places(backend):
    nn, x, places = backend.nn, np.array([INFINITE, 2.0]), np.array([1, 2])
    arrays = [backend.array(each[None, None]) for each in (x, places)]
    found = backend.numpy(nn.max_unpool1d(*arrays, 2))
    assert_array_equal(found, [[[0.0, INFINITE, 2.0, 0.0]]])


@pytest.mark.parametrize("function", ["addmm", "baddbmm"])
def test_a_term_of_factor_0_may_be_nan(backend, function):
    shape = (2, 2) if function == "addmm" else (1, 2, 2)
    ones = backend.array(np.ones(shape), "float64")
    call = getattr(backend.nn, function)
    found = backend.numpy(call(ones * np.nan, ones, ones, beta=0))
    assert_array_equal(found, np.full(shape, 2.0))


PAIRS = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 1.0]])
LOSSES = {
    "hinge_embedding_loss": lambda nn, x, y, ones: nn.hinge_embedding_loss(x, -ones),
    "margin_ranking_loss": lambda nn, x, y, ones: nn.margin_ranking_loss(x, y, ones),
    "cosine_embedding_loss": lambda nn, x, y, ones: nn.cosine_embedding_loss(
        x, y, -ones[:, 0]
    ),
    "triplet_margin_loss": lambda nn, x, y, ones: nn.triplet_margin_loss(x, y, ones),
    "normalize": lambda nn, x, y, ones: nn.normalize(x),
    "grid_sample": lambda nn, x, y, ones: nn.grid_sample(
        ones[None, None], x[None, :, None], padding_mode="border"
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_nan_is_not_a_loss_of_0(backend, loss):
    arrays = (PAIRS, np.ones((3, 2)) * 0.5, np.ones((3, 2)))
    x, y, ones = [backend.array(each, "float64") for each in arrays]
    found = backend.numpy(LOSSES[loss](backend.nn, x, y, ones))
    if loss in ("normalize", "grid_sample"):
        rows = found.reshape(3, -1)
        assert np.isnan(rows[1]).all()
        assert np.isfinite(rows[[0, 2]]).all()
    else:
        assert np.isnan(found)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_a_sequence_with_nan_has_no_loss(backend, zero_infinity):
    log_p = np.log(np.full((4, 2, 3), 1 / 3))
    log_p[1, 1] = np.nan
    x, labels = backend.array(log_p, "float64"), backend.array(np.ones((2, 2), int))
    loss = backend.nn.ctc_loss(
        x, labels, [4, 4], [2, 2], 0, "none", zero_infinity=zero_infinity
    )
    assert_array_equal(np.isnan(backend.numpy(loss)), [False, True])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("offsets", [None, [0, 1]])
def test_a_row_of_infinity_is_in_its_own_bags_alone(backend, mode, offsets):
    table = np.array([[INFINITE, np.nan], [2.0, 3.0], [4.0, 5.0]])
    index = np.array([[0, 1, 2], [2, 2, 1]])
    if offsets is not None:
        index, offsets = np.array([0, 1, 1, 2]), backend.array(np.array(offsets))
    found = backend.nn.embedding_bag(
        backend.array(index),
        backend.array(table, "float64"),
        offsets,
        mode=mode,
        padding_idx=1,
    )
    second = {"sum": 8.0, "mean": 4.0, "max": 4.0}[mode]
    second = 4.0 if offsets is not None else second
    assert backend.numpy(found)[0, 0] == INFINITE
    assert_array_equal(backend.numpy(found)[1], [second, second / 4 * 5])
