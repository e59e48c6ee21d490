"""Mixed precision: what is short and what is not, losses near those of float32, and the scale of
float16 losses."""

from functools import cache

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import DataParallel, Network, backends, data, in_replicas, start
from deliralike.errors import ArgumentError, CapabilityError, SettingError
from deliralike.optim.precision import LossScale
from deliralike.optim.rules import rule
from deliralike.training import Trainer
from tests.conftest import BACKENDS
from tests.core.networks import Classifier
from tests.losses import cross_entropy
from tests.parallel.networks import Small, batch_of, devices

RNG = np.random.default_rng(11)
IMAGES, LABELS = RNG.normal(size=(7, 3, 9, 7)).astype(np.float32), RNG.integers(0, 4, 7)
UNIT = {
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
}  # half the distance from 1 to the next number


@pytest.fixture(params=[name for name in BACKENDS if name != "chainer"])
def backend(request):
    """Each backend that has mixed precision."""
    return backends.get(request.param)


@pytest.fixture(params=UNIT)
def precision(request):
    """Each shorter type."""
    return request.param


class Kinds(Network):
    """One function of each kind; gives the name of the type of each result."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.same = nn.Conv2d(3, 3, 2, padding="same")
        self.bn = nn.BatchNorm2d(3)
        self.up = nn.ConvTranspose2d(3, 2, 2, stride=2)
        self.fc = nn.Linear(2, 4)

    def forward(self, x, labels):
        nn, found = self.nn, {}
        found["conv"] = x = self.conv(x)
        found["same"] = x = self.same(x)
        found["bn"] = x = self.bn(x)
        found["relu"] = x = nn.relu(x)
        found["up"] = x = self.up(x)
        found["linear"] = y = self.fc(nn.permute(x, (0, 2, 3, 1)))
        found["matmul"] = nn.matmul(y, nn.permute(y, (0, 1, 3, 2)))
        found["einsum"] = nn.einsum("bhwc,bhwc->bhw", y, y)
        found["sum"], found["mean"], found["exp"] = (
            nn.sum(x),
            nn.mean(y, (1, 2)),
            nn.exp(y),
        )
        found["softmax"], found["log_softmax"] = (
            nn.softmax(y, -1),
            nn.log_softmax(y, -1),
        )
        found["mse_loss"] = nn.mse_loss(y, y)
        found["cross_entropy"] = nn.cross_entropy(y[:, 0, 0], labels)
        return found["cross_entropy"], {
            name: str(value.dtype).removeprefix("torch.")
            for name, value in found.items()
        }


def test_products_are_short_and_sums_exponentials_and_losses_are_not(
    backend, precision
):
    net = Kinds.on(backend)()
    optimizer = backend.optimizer(rule("sgd", lr=0.1), net)
    optimizer.compute_in(precision)
    _, types = optimizer.update(lambda net, x, y: net(x, y), IMAGES[:, :2], LABELS)
    short = ("conv", "same", "bn", "relu", "up", "linear", "matmul", "einsum")
    assert {types[name] for name in short} == {precision}
    exact = (
        "sum",
        "mean",
        "exp",
        "softmax",
        "log_softmax",
        "mse_loss",
        "cross_entropy",
    )
    assert {types[name] for name in exact} == {"float32"}


def test_a_product_rounds_as_the_shorter_type_does(backend, precision):
    """1 + u/2 is 1 in the shorter type: the product of inputs rounded to it, and to nothing
    shorter."""
    x = backend.array(
        np.array([[1.0 + UNIT[precision] / 2, 1.0 + 2 * UNIT[precision]]], np.float32)
    )
    ones = backend.array(np.eye(2, dtype=np.float32))
    with backend.computing_in(precision):
        y = backend.nn.cast(backend.nn.matmul(x, ones), "float32")
    assert_array_equal(backend.numpy(y), [[1.0, 1.0 + 2 * UNIT[precision]]])


def test_parameters_gradients_and_state_stay_in_float32(backend, precision):
    net = Classifier.on(backend)()
    optimizer = backend.optimizer(rule("adam", lr=0.01), net)
    optimizer.compute_in(precision)
    optimizer.keep_gradients = True
    optimizer.update(cross_entropy, IMAGES, LABELS)
    arrays = [*net.neutral_state().values(), *optimizer.neutral_state().values()]
    arrays += [
        backend.numpy(gradient) for gradient in optimizer.latest_gradients.values()
    ]
    assert {
        array.dtype.name for array in arrays if array.dtype.kind == "f" and array.ndim
    } == {"float32"}


@cache
def trained(
    backend, precision, count=1, loss=cross_entropy, accumulate=1, images=False
):
    net = Classifier.on(backend)() if images else Small.on(backend)(p=0.0)
    batch = (IMAGES, LABELS) if images else batch_of(7)
    net = (
        DataParallel(net, devices(backend, count), buffers="sync") if count > 1 else net
    )
    optimizer = backend.optimizer(rule("sgd", lr=0.05), net)
    optimizer.compute_in(precision)
    optimizer.accumulate = accumulate
    losses = [float(backend.numpy(optimizer.update(loss, *batch))) for _ in range(20)]
    assert optimizer.steps == 20 // accumulate
    return np.array(losses)


# Each of at most three layers rounds its input, its weights and its result, forward and backward:
# eighteen roundings.
def bound(precision, losses):
    return 18 * UNIT[precision] * losses[0]


def test_twenty_losses_are_near_those_of_float32_and_not_the_same(backend, precision):
    exact, mixed = (
        trained(backend, None, images=True),
        trained(backend, precision, images=True),
    )
    assert mixed[-1] < mixed[0]
    assert 0 < abs(mixed - exact).max() < bound(precision, exact)


def test_two_replicas_compute_in_the_shorter_type_as_one_does(backend, precision):
    loss = in_replicas(cross_entropy) if precision == "float16" else cross_entropy
    exact, mixed = trained(backend, None), trained(backend, precision, 2, loss)
    assert 0 < abs(mixed - exact).max() < bound(precision, exact)
    assert abs(mixed - trained(backend, precision)).max() < bound(precision, exact)


def test_micro_batches_compute_in_the_shorter_type(backend, precision):
    plain, accumulated = (
        trained(backend, precision)[:10],
        trained(backend, precision, accumulate=2)[::2],
    )
    assert abs(plain - accumulated).max() < bound(precision, plain)
    assert abs(accumulated - trained(backend, None, accumulate=2)[::2]).max() > 0


# The scale of float16 losses
# -----------------------------------------------------------------------------


class Linear(Network):
    """The sum of a linear layer's outputs, times a factor."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(3, 2, bias=False)

    def forward(self, x, factor):
        return self.nn.sum(self.fc(x)) * factor


def times(network, x, factor):
    return network(x, factor)


X = np.array(
    [[1.0, 2.0, -0.5], [0.25, 0.5, 1.0]], np.float32
)  # exact in float16; their sums too


def linear(backend, lr=1.0):
    net = Linear.on(backend)()
    optimizer = backend.optimizer(rule("sgd", lr=lr), net)
    optimizer.compute_in("float16")
    optimizer.keep_gradients = True
    return net, optimizer


def test_gradients_of_one_billionth_vanish_in_float16_without_a_scale(backend):
    net, optimizer = linear(backend)
    optimizer.loss_scale = None
    optimizer.update(times, X, 1e-9)
    assert not backend.numpy(optimizer.latest_gradients["fc.weight"]).any()


def test_gradients_of_one_billionth_survive_in_float16_with_a_scale(backend):
    net, optimizer = linear(backend)
    optimizer.loss_scale.value = 2.0**24
    loss = optimizer.update(times, X, 1e-9)
    found = backend.numpy(optimizer.latest_gradients["fc.weight"])
    assert_allclose(found, [1e-9 * X.sum(0)] * 2, rtol=2 * UNIT["float16"])
    assert abs(float(backend.numpy(loss))) < 1e-8


def test_a_step_that_overflows_is_left_out_and_halves_the_scale(backend):
    """The largest gradient, 10 * 2.5, times 2**12 is above the largest float16, 65504; times 2**11
    it is not."""
    net, optimizer = linear(backend, lr=0.5)
    before, called = net.neutral_state()["fc.weight"], []
    optimizer.post_update_hooks.append(lambda optimizer: called.append(optimizer.steps))
    for scale in (2.0**14, 2.0**13, 2.0**12, 2.0**11):
        optimizer.update(times, X, 10.0)
        assert (optimizer.steps, optimizer.updated, optimizer.loss_scale.value) == (
            0,
            (),
            scale,
        )
        assert_array_equal(net.neutral_state()["fc.weight"], before)
    optimizer.update(times, X, 10.0)
    assert (optimizer.steps, optimizer.updated, optimizer.loss_scale.value) == (
        1,
        ("fc.weight",),
        2.0**11,
    )
    assert_allclose(
        net.neutral_state()["fc.weight"], before - 5.0 * X.sum(0), rtol=1e-5
    )
    assert called == [1]


def test_an_overflow_in_one_micro_batch_leaves_the_whole_update_out(backend):
    net, optimizer = linear(backend)
    optimizer.accumulate = 2
    before = net.neutral_state()["fc.weight"]
    for factor in (1.0, 10.0):
        optimizer.update(times, X, factor)
    assert (optimizer.steps, optimizer.window_is_open, optimizer.loss_scale.value) == (
        0,
        False,
        2.0**14,
    )
    assert_array_equal(net.neutral_state()["fc.weight"], before)


def test_an_overflow_in_one_replica_leaves_the_update_of_all_out(backend):
    net = DataParallel(Linear.on(backend)(), devices(backend, 2))
    optimizer = backend.optimizer(rule("sgd", lr=1.0), net)
    optimizer.compute_in("float16")
    before = net.neutral_state()["fc.weight"]
    optimizer.update(
        in_replicas(times, "sum"),
        np.array([[1.0, 2.0, 1.0], [1.0, 7e4, 1.0]], np.float32),
        0.001,
    )
    assert optimizer.steps == 0
    assert optimizer.loss_scale.value == 2.0**14
    assert_array_equal(net.neutral_state()["fc.weight"], before)


def test_the_scale_stays_between_one_and_two_to_the_24th():
    low, high = LossScale(value=1.0), LossScale(value=2.0**24, growth_interval=1)
    low.observe(False)
    high.observe(True)
    assert (low.value, high.value) == (1.0, 2.0**24)
    higher = LossScale(value=2.0**26, growth_interval=1)
    higher.observe(True)
    assert higher.value == 2.0**26


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_in_any_array(backend, bad):
    values = [
        np.ones((2, 3), np.float32),
        np.array([1.0, bad, 2.0], np.float32),
        np.float32(3.0),
    ]
    native = [backend.array(value) for value in values]
    assert not backend.all_finite(native)
    assert backend.all_finite([native[0], native[2]])
    assert backend.all_finite([])


def test_what_is_not_finite_is_found_in_a_sparse_gradient():
    import torch

    backend = backends.get("torch")
    sparse = torch.sparse_coo_tensor(
        [[1]], [[np.nan, 1.0]], (3, 2), check_invariants=True
    )
    assert not backend.all_finite([sparse])
    assert backend.all_finite(
        [torch.sparse_coo_tensor([[1]], [[2.0, 1.0]], (3, 2), check_invariants=True)]
    )


# Where it ends
# -----------------------------------------------------------------------------


def product_type(backend, dtype="float32"):
    ones = backend.array(np.ones((2, 2)), dtype)
    return str(backend.nn.matmul(ones, ones).dtype).removeprefix("torch.")


def test_the_context_ends_when_its_block_raises(backend):
    with pytest.raises(ZeroDivisionError), backend.computing_in("float16"):
        raise ZeroDivisionError
    assert product_type(backend) == "float32"


def test_double_precision_stays_as_it_is(backend, precision):
    backend.check_dtype("float64")
    with backend.computing_in(precision):
        assert product_type(backend, "float64") == "float64"


def test_a_network_of_float64_is_refused(backend, precision):
    net = Classifier.on(backend, dtype="float64")()
    optimizer = backend.optimizer(rule("sgd", lr=0.1), net)
    with pytest.raises(
        SettingError,
        match="mixed precision is for networks of float32, and Classifier is .* float64",
    ):
        optimizer.compute_in(precision)
    assert (optimizer.precision, optimizer.loss_scale) == (None, None)


def test_an_unknown_precision_suggests_the_nearest(backend):
    optimizer = backend.optimizer(rule("sgd", lr=0.1), Linear.on(backend)())
    with pytest.raises(
        SettingError, match="no mixed precision 'bfloat15'. Did you mean 'bfloat16'"
    ):
        optimizer.compute_in("bfloat15")


def test_chainer_has_no_mixed_precision():
    backend = backends.get("chainer")
    optimizer = backend.optimizer(rule("sgd", lr=0.1), Linear.on(backend)())
    with pytest.raises(
        CapabilityError, match="'chainer' does not have 'mixed float16'"
    ):
        optimizer.compute_in("float16")
    with pytest.raises(CapabilityError, match="does not have 'mixed bfloat16'"):
        backend.computing_in("bfloat16")


def native(backend):
    if backend.name == "torch":
        import torch

        return torch.nn.Sequential(torch.nn.Linear(3, 2))
    from flax import nnx

    return nnx.Sequential(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))


def test_layers_of_the_frameworks_own_are_short_too_or_an_error(backend):
    net = backend.wrap(native(backend))
    optimizer = backend.optimizer(rule("sgd", lr=0.1), net)
    if backend.native_layers_mix:
        optimizer.compute_in("float16")
        _, kind = optimizer.update(
            lambda net, x: (net.nn.sum(net(x)), str(net(x).dtype)), X
        )
        assert kind == "torch.float16"
        return
    with pytest.raises(
        CapabilityError,
        match=f"is a Linear of the framework's own, and on backend '{backend.name}'",
    ):
        optimizer.compute_in("float16")


def test_a_function_of_the_users_own_is_compiled_for_each_precision_on_jax():
    import jax

    backend = backends.get("jax")
    product = jax.jit(lambda x: backend.nn.matmul(x, x))
    ones = backend.array(np.ones((2, 2), np.float32))
    found = [str(product(ones).dtype)]
    with backend.computing_in("bfloat16"):
        found.append(str(product(ones).dtype))
    assert [*found, str(product(ones).dtype)] == ["float32", "bfloat16", "float32"]


# The trainer
# -----------------------------------------------------------------------------


class Typed(Network):
    """A linear layer that notes the type of its output."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(3, 2)
        self.scale = self.nn.Parameter((2,), start.ONES)

    def forward(self, x):
        y = self.fc(x)
        TYPES.add((self.training, str(y.dtype).removeprefix("torch.")))
        return y


TYPES: set[tuple[bool, str]] = set()


def test_a_trainer_trains_evaluates_and_predicts_in_its_precision(backend):
    TYPES.clear()
    trainer = Trainer(Typed.on(backend)(), rule("sgd", lr=0.1), precision="float16")
    samples = data.Samples(np.tile(X, (2, 1)), np.array([0, 1, 1, 0]))
    trainer.fit(samples, samples, batch_size=4)
    outputs = next(iter(trainer.predict(X)))
    assert {(True, "float16"), (False, "float16")} == TYPES
    trainer.network.eval()
    trainer.network(backend.array(X))
    assert (False, "float32") in TYPES
    assert outputs.dtype in (np.float16, np.float32)


def test_a_scale_with_settings_follows_pytorchs_own():
    settings = {
        "init_scale": 4096.0,
        "growth_factor": 4.0,
        "backoff_factor": 0.125,
        "growth_interval": 2,
    }
    own, pytorchs = LossScale.of(settings), torch.amp.GradScaler("cpu", **settings)
    for finite in (True, False, True, True, True, True, False, False):
        parameter = torch.nn.Parameter(torch.ones(2))
        pytorchs.scale((parameter * (1.0 if finite else float("inf"))).sum()).backward()
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        pytorchs.step(optimizer)
        pytorchs.update()
        own.observe(finite)
        assert own.value == pytorchs.get_scale()


def test_a_number_is_a_scale_that_stays():
    scale = LossScale.of(128)
    for finite in (True, False, True):
        scale.observe(finite)
    assert scale.value == 128.0
    assert LossScale.of("dynamic") == LossScale.of() == LossScale()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"init_scale": "big"},
            SettingError,
            "init_scale='big' must be a number of at least 1",
        ),
        (
            {"growth_interval": 2.5},
            SettingError,
            "growth_interval=2.5 must be a whole number of at least 1",
        ),
        (
            {"backoff_factor": 2.0},
            SettingError,
            "backoff_factor=2.0 must be a number of at least 0 and at most 1",
        ),
        (
            {"backoff": 0.5},
            ArgumentError,
            "loss_scale has no setting 'backoff'. Did you mean 'backoff_factor'",
        ),
        (float("inf"), SettingError, "loss_scale=inf must be a number"),
        (True, SettingError, "loss_scale=True must be a number"),
    ],
)
def test_scales_that_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        LossScale.of(given)
