"""Clipping: the norms and values of NumPy and PyTorch, after accumulation, on every backend and
over replicas."""

import numpy as np
import pytest

from deliralike import DataParallel, Network, in_replicas
from deliralike.errors import SettingError
from deliralike.optim.clipping import ClipNorm, ClipValue
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.parallel.networks import devices

X = np.random.default_rng(4).normal(size=(7, 3))


class TwoVectors(Network):
    """A linear function of two vectors, so that the test chooses the gradients; a third one takes
    no part."""

    def __init__(self):
        super().__init__()
        for name, size in (("a", 3), ("b", 2), ("unused", 2)):
            setattr(self, name, self.nn.Parameter((size,), np.ones(size)))

    def forward(self, of_a, of_b):
        return self.nn.mean(
            self.nn.sum(self.a * of_a, 1) + self.nn.sum(self.b * of_b, 1)
        )


def linear(network, of_a, of_b):
    return network(of_a, of_b)


OF_A, OF_B = X, 3.0 * X[:, :2]
GRADIENTS = {"a": OF_A.mean(0), "b": OF_B.mean(0)}
NORM = float(np.sqrt(sum((gradient**2).sum() for gradient in GRADIENTS.values())))


def build(backend, hook, count=1):
    net = TwoVectors.on(backend, dtype="float64")()
    net = DataParallel(net, devices(backend, count)) if count > 1 else net
    optimizer = backend.optimizer(rule("sgd", lr=1.0), net)
    optimizer.pre_update_hooks.append(hook)
    return net, optimizer


def moved(net):
    return {name: 1.0 - value for name, value in net.neutral_state().items()}


def assert_moved(net, wanted):
    found = moved(net)
    np.testing.assert_array_equal(found.pop("unused"), 0.0)
    same_named(found, wanted)


def by_norm(bound):
    return {
        name: gradient * min(1.0, bound / NORM) for name, gradient in GRADIENTS.items()
    }


@pytest.mark.parametrize("share", [0.1, 7.0, 1 - 1e-9, 1 + 1e-9])
def test_the_joint_norm_is_bounded_and_shorter_gradients_stay_as_they_are(
    backend, share
):
    net, optimizer = build(backend, ClipNorm(share * NORM))
    optimizer.update(linear, OF_A, OF_B)
    assert_moved(net, by_norm(share * NORM))


@pytest.mark.parametrize(
    "hook",
    [ClipNorm(0.1), ClipNorm(1e6), ClipValue(0.1)],
    ids=repr,
)
def test_gradients_keep_their_type(backend, hook):
    net = TwoVectors.on(backend)()
    optimizer = backend.optimizer(rule("sgd", lr=1.0, momentum=0.9), net)
    optimizer.pre_update_hooks.append(hook)
    optimizer.keep_gradients = True
    optimizer.update(linear, OF_A, OF_B)
    kept = {
        name: backend.numpy(gradient).dtype
        for name, gradient in optimizer.latest_gradients.items()
        if gradient is not None
    }
    assert kept == {"a": np.float32, "b": np.float32}
    assert {value.dtype.name for value in net.neutral_state().values()} == {"float32"}


def test_every_element_is_bounded_by_value(backend):
    bound = 0.5 * abs(GRADIENTS["b"]).max()
    net, optimizer = build(backend, ClipValue(bound))
    optimizer.update(linear, OF_A, OF_B)
    wanted = {
        name: np.clip(gradient, -bound, bound) for name, gradient in GRADIENTS.items()
    }
    assert any((wanted[name] != GRADIENTS[name]).any() for name in wanted)
    assert_moved(net, wanted)


@pytest.mark.parametrize("count", [1, 2])
def test_the_gradient_of_the_whole_window_is_clipped_not_that_of_micro_batches(
    backend, count
):
    net, optimizer = build(backend, ClipNorm(0.3 * NORM), count)
    optimizer.accumulate = 2
    for cut in (slice(0, 5), slice(5, 7)):
        optimizer.update(in_replicas(linear), OF_A[cut], OF_B[cut])
    assert_moved(net, by_norm(0.3 * NORM))


@pytest.mark.parametrize("hook", [ClipNorm(1.0), ClipValue(1.0)])
def test_zero_gradients_stay_zero(backend, hook):
    net, optimizer = build(backend, hook)
    optimizer.update(linear, 0.0 * OF_A, 0.0 * OF_B)
    assert_moved(net, {"a": np.zeros(3), "b": np.zeros(2)})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "hook", [*(ClipNorm(1.0, order) for order in (1, 2, np.inf)), ClipValue(1.0)]
)
def test_what_is_not_finite_is_not_hidden(backend, hook, bad):
    net, optimizer = build(backend, hook)
    with np.errstate(invalid="ignore"):
        optimizer.update(linear, np.where(np.arange(3) == 1, bad, OF_A), OF_B)
    found = moved(net)
    if isinstance(hook, ClipValue):
        np.testing.assert_array_equal(found["a"][1], np.clip(bad, -1.0, 1.0))
    else:
        assert not np.isfinite(found["a"][1])
        assert np.isnan(found["b"]).all() or np.isinf(bad)


def test_a_network_of_which_nothing_took_part_has_nothing_to_clip(backend):
    net, optimizer = build(backend, ClipNorm(1.0))
    assert ClipNorm(1.0)(optimizer, {"a": None}) == {"a": None}
    assert ClipValue(1.0)(optimizer, {"a": None}) == {"a": None}


@pytest.mark.parametrize("bad", [0, -1.0, float("inf"), float("nan")])
def test_a_bound_is_above_zero_and_finite(bad):
    with pytest.raises(SettingError, match="max_norm=.* must be above 0 and finite"):
        ClipNorm(bad)
    with pytest.raises(SettingError, match="max_value=.* must be above 0 and finite"):
        ClipValue(bad)


def numpys_norm(order):
    """The norm of all elements as one vector."""
    return float(
        np.linalg.norm(
            np.concatenate([gradient.ravel() for gradient in GRADIENTS.values()]), order
        )
    )


@pytest.mark.parametrize("order", [1, 3, np.inf])
def test_the_norm_may_be_of_another_order(backend, order):
    norm = numpys_norm(order)
    net, optimizer = build(backend, ClipNorm(norm / 4, order))
    optimizer.update(linear, OF_A, OF_B)
    assert_moved(net, {name: gradient / 4 for name, gradient in GRADIENTS.items()})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "1",
            r"clip_norm='1' must be a number above 0, or both settings: \{'max_norm': 1.0",
        ),
        (True, "clip_norm=True must be a number above 0"),
        (-2, "clip_norm=-2 must be a number above 0"),
        (float("nan"), "clip_norm=nan must be"),
        ([1.0], r"clip_norm=\[1.0\] must be"),
        ({"norm_type": 2}, "clip_norm={'norm_type': 2} must be"),
        ({"max_norm": "x"}, "max_norm='x' must be above 0 and finite"),
        (
            {"max_norm": 1, "norm_type": 0},
            "norm_type=0 must be a number above 0, such as 2",
        ),
    ],
)
def test_bounds_that_are_refused(given, message):
    with pytest.raises(SettingError, match=message):
        ClipNorm.of(given)


def test_a_mapping_with_other_settings_is_refused():
    with pytest.raises(
        TypeError, match="clip_norm has no setting 'max_nrom'. Did you mean 'max_norm'"
    ):
        ClipNorm.of({"max_nrom": 1})
