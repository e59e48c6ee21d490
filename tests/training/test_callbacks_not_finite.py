"""A run ends at the first number that is not finite: NaN is planted in each place, and named."""

import warnings

import numpy as np
import pytest

from deliralike import Network, data
from deliralike.errors import SettingError
from deliralike.training import StopOnNaN
from tests.training.small_runs import Do, samples, trainer

# NumPy, which computes for Chainer, has warnings of its own.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{what}:RuntimeWarning")
    for what in ("invalid value", "divide by zero")
]


class Root(Network):
    """A square root between two layers: its slope at zero is infinite, its value is not."""

    def __init__(self):
        super().__init__()
        self.first = self.nn.Linear(3, 5)
        self.second = self.nn.Linear(5, 5)
        self.last = self.nn.Linear(5, 2)

    def forward(self, x):
        below = self.second(self.nn.relu(self.first(x)))
        return self.last(self.nn.sqrt(below * 0.0))


def stopped(each, message, train=None, **options):
    with pytest.warns(RuntimeWarning, match=message) as caught:
        history = each.fit(
            samples() if train is None else train,
            **({"epochs": 3, "batch_size": 4} | options),
        )
    assert history.stopped in [str(warning.message) for warning in caught]
    return history


def spoil(name, value=np.nan):
    """Puts a bad number into a tensor of the network, after step 1."""

    def write(run, step):
        if step.step == 1:
            array = run.network.neutral_state()[name]
            array.flat[1] = value
            run.network.load_neutral_state({name: array}, strict=False)

    return Do("on_step", write)


def test_a_bad_sample_is_named_by_its_place_in_the_batch(backend):
    inputs = samples().inputs.copy()
    inputs[:, 2] = [0, 0, 0, 0, 0, np.inf, 0]
    loader = data.Loader((inputs, samples().labels), 7, shuffle=False)
    history = stopped(
        trainer(backend.name, [StopOnNaN()]),
        r"in step 0 of epoch 0: batch\[0\]\[5, 2\] is inf; then the loss",
        loader,
    )
    assert len(history.steps) == 1


@pytest.mark.filterwarnings("ignore:accumulate=2 with batch normalisation")
def test_a_bad_sample_of_a_dict_in_an_earlier_micro_batch_is_named():
    inputs = samples(8).inputs.copy()
    inputs[1, 0] = np.nan
    batches = {"data": inputs, "label": samples(8).labels}
    loader = data.Loader(batches, 4, shuffle=False)
    each = trainer("torch", [StopOnNaN()], accumulate=2)
    stopped(each, r"of epoch 0: batches\[0\]\['data'\]\[1, 0\] is nan; then", loader)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("first.weight", "parameter"),
        ("last.bias", "parameter"),
        ("norm.running_var", "buffer"),
    ],
)
def test_what_another_callback_spoils_is_found_before_the_next_step(
    backend, name, kind
):
    each = trainer(backend.name, [StopOnNaN(), spoil(name)])
    history = stopped(each, f"^not finite in step 1 of epoch 0: the {kind} '{name}'$")
    assert np.isfinite(history.losses).all()


def test_infinity_counts_as_well():
    stopped(
        trainer("torch", [StopOnNaN(), spoil("last.bias", -np.inf)]),
        "the parameter 'last.bias'",
    )


def test_weights_that_are_bad_before_the_run_are_named_and_no_step_is_made():
    each = trainer("torch", [StopOnNaN()])
    state = each.network.neutral_state()
    state["last.weight"][0, 0] = np.nan
    each.network.load_neutral_state(state)
    assert not stopped(
        each, "^not finite before the first step: the parameter 'last.weight'$"
    ).steps


def test_a_bad_slope_is_found_between_the_layers_where_it_comes_in(backend):
    each = trainer(backend.name, [StopOnNaN()], kind=Root)
    history = stopped(
        each,
        "step 0 of epoch 0: the gradient of 'first.weight' "
        r"\(4 of 6 are bad, the last is 'second.bias'\)",
    )
    assert np.isfinite(history.losses).all()


def test_a_loss_that_overflows_is_named_with_the_first_buffer_and_gradient():
    def huge(network, inputs, target):
        return network.nn.mean(network(inputs)) * 1e308 * 1e10

    each = trainer("torch", [StopOnNaN()], losses=huge)
    stopped(
        each,
        r"in step 0 of epoch 0: the loss 'loss' is -?inf; then the gradient of 'first.weight'",
    )


def test_replicas_are_looked_at_too(backend):
    devices = (
        backend.devices()[:2] if backend.name == "jax" else backend.devices()[:1] * 2
    )
    stopped(
        trainer(backend.name, [StopOnNaN()], kind=Root, devices=devices),
        "the gradient of 'first.weight'",
    )


def test_between_two_looks_only_losses_count():
    each = trainer("torch", [StopOnNaN(every=3), spoil("first.bias")])
    assert (
        len(
            stopped(
                each, "in step 2 of epoch 0: the loss 'loss' is nan", samples(16)
            ).steps
        )
        == 3
    )


def test_a_healthy_run_goes_on_with_the_same_numbers_and_the_optimizer_is_as_before(
    backend,
):
    each = trainer(backend.name, [StopOnNaN()])
    history = each.fit(samples(), samples(3), epochs=2, batch_size=4)
    unwatched = trainer(backend.name).fit(samples(), epochs=2, batch_size=4)
    assert history.losses.tolist() == pytest.approx(
        unwatched.losses.tolist(), rel=1e-12
    )
    assert (len(history.steps), history.stopped) == (4, "")
    assert not each.optimizers["default"].keep_gradients


def test_every_must_make_sense():
    with pytest.raises(
        SettingError, match="every=0 must be a whole number of at least 1"
    ):
        StopOnNaN(every=0)


def with_nan():
    inputs = samples().inputs.copy()
    inputs[5, 1] = np.nan
    return data.Loader((inputs, samples().labels), 4, shuffle=False)


def warnings_of(function):
    """The warnings of a run that are ours."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    texts = [str(warning.message) for warning in caught]
    return [text for text in texts if "loss" in text or "not finite" in text]


def test_a_run_warns_once_of_a_loss_that_is_not_finite(backend):
    fit = trainer(backend.name).fit
    (text,) = warnings_of(lambda: fit(with_nan(), epochs=2))
    assert text.startswith(
        "the loss is nan in step 1 of epoch 0, and training goes on: look for"
    )
    assert "StopOnNaN" in text


def test_a_run_does_not_warn_where_a_callback_looks_for_such_losses(backend):
    (text,) = warnings_of(lambda: trainer(backend.name, [StopOnNaN()]).fit(with_nan()))
    assert text.startswith("not finite in step 1 of epoch 0: batch[0][1, 1] is nan")
