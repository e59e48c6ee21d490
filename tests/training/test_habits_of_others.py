"""What users of other libraries bring: texts in batches, closures, global generators, Ctrl-C."""

import random

import numpy as np
import pytest
import torch

from deliralike import data, freeze, in_replicas
from deliralike.data.keyed_rng import KeyedGlobals
from deliralike.errors import CapabilityError, SettingError
from deliralike.optim import rules
from deliralike.training import (
    Callback,
    Checkpoint,
    Checkpoints,
    EarlyStopping,
    ReduceLROnPlateau,
    Trainer,
)
from tests.training.small_runs import network, samples, scripted, trainer


class Named(torch.utils.data.Dataset):
    """Samples with the names of their files."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return samples().inputs[index], samples().labels[index], f"{index}.png"


@pytest.mark.parametrize("source", ["loader of PyTorch", "dataset"])
def test_texts_after_the_target_are_left_out_of_a_step(backend, source):
    named, plain = Named(), (samples().inputs, samples().labels)
    if source == "dataset":
        named = data.Loader(named, 4, shuffle=False)
    else:
        named = torch.utils.data.DataLoader(named, 4)
    losses = trainer(backend.name).fit(named).losses
    expected = trainer(backend.name).fit(data.Loader(plain, 4, shuffle=False)).losses
    assert losses.tolist() == expected.tolist()


def test_an_optimizer_that_wants_a_closure_is_refused():
    net = network("torch")
    with pytest.raises(
        CapabilityError, match="LBFGS of PyTorch computes the loss several times"
    ):
        Trainer(net, torch.optim.LBFGS(net.parameters()))


def test_an_optimizer_of_optax_that_wants_the_loss_is_refused():
    optax = pytest.importorskip("optax")
    each = Trainer(network("jax"), optax.lbfgs())
    with pytest.raises(CapabilityError, match="optax computes the loss several times"):
        each.fit(samples())


class Adds(Callback):
    """Adds a figure that gets worse."""

    def on_epoch(self, run, epoch):
        epoch.held_out["m"] = 0.5 + epoch.epoch


def test_a_plateau_observes_a_figure_that_a_callback_adds(backend, tmp_path):
    def make(*callbacks):
        plateau = ReduceLROnPlateau("m", factor=0.5, patience=1)
        return trainer(backend.name, [*callbacks, Adds(), plateau])

    rates = [s.lr for s in make().fit(samples(), samples(3), epochs=4).steps]
    assert rates == [0.1, 0.1, 0.05, 0.025]
    make(Checkpoint(tmp_path)).fit(samples(), samples(3), epochs=2)
    latest = Checkpoints.latest(tmp_path)
    resumed = make().fit(samples(), samples(3), epochs=4, resume=latest)
    assert [s.lr for s in resumed.steps] == [0.05, 0.025]


def count_of_labels(network, inputs, labels):
    """A sum and its denominator, which is a whole number."""
    loss = network.nn.cross_entropy(network(inputs), labels, reduction="sum")
    return loss, network.nn.sum(labels >= 0)


def test_a_denominator_may_be_a_whole_number(backend):
    loss = in_replicas(count_of_labels, "denominator")
    each = Trainer(network(backend.name), rules.rule("sgd", lr=0.1), loss)
    expected = (
        Trainer(network(backend.name), rules.rule("sgd", lr=0.1)).fit(samples()).losses
    )
    assert each.fit(samples()).losses == pytest.approx(expected, rel=1e-12)


class Interrupted(Callback):
    """The second Ctrl-C, while the second epoch is told."""

    def on_epoch(self, run, epoch):
        if epoch.epoch == 1:
            raise KeyboardInterrupt


def test_an_epoch_that_not_all_callbacks_have_seen_is_in_no_checkpoint(tmp_path):
    figures = (0.5, 0.4, 0.6, 0.3)
    stopping = EarlyStopping("m")
    options = {"metrics": {"m": scripted(*figures)}}
    each = trainer("torch", [Interrupted(), stopping, Checkpoint(tmp_path)], **options)
    with pytest.raises(KeyboardInterrupt):
        each.fit(samples(), samples(3), epochs=3)
    resumed = EarlyStopping("m")
    each = trainer("torch", [resumed], metrics={"m": scripted(*figures[1:])})
    each.fit(samples(), samples(3), epochs=4, resume=Checkpoints.latest(tmp_path))
    assert (resumed.best, resumed.best_epoch) == (0.3, 3)


# Global generators --------------------------------------------------------------------------------


class Noisy:
    """Samples with noise of a global generator."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.array([index, self.draw()])


DRAWS = {
    "NumPy": lambda: np.random.normal(),
    "Python": random.random,
    "PyTorch": lambda: torch.randn(()).item(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_data_that_draw_from_a_global_generator_are_named_where_threads_read_ahead(
    name,
):
    loader = data.Loader(Noisy(DRAWS[name]), 2, prefetch=1)
    with pytest.warns(RuntimeWarning, match=f"global random numbers of {name} while"):
        list(loader.batches())


def test_data_with_generators_of_their_own_are_read_ahead_without_a_warning(recwarn):
    loader = data.Loader(
        np.zeros((4, 1)), 2, prefetch=1, transform=lambda x, rng: x + rng.normal()
    )
    assert len(list(loader.batches())) == 2
    assert not recwarn.list


def test_in_a_process_the_global_generators_follow_from_the_batch_alone():
    loader = data.Loader(Noisy(lambda: np.random.normal() + random.random()), 2, seed=3)
    jobs = list(loader._jobs(1, range(len(loader))))
    make = KeyedGlobals(loader._pipeline, loader.seed)
    state = np.random.get_state(), random.getstate()
    first = [make(job)[:, 1] for job in jobs]
    assert np.array_equal(make(jobs[1])[:, 1], first[1])
    assert len(set(np.concatenate(first))) == 4
    np.random.set_state(state[0])
    random.setstate(state[1])


# Replicas, and nothing to train -------------------------------------------------------------------


def test_buffers_of_replicas_may_stay_those_of_the_root():
    net = network("torch")
    each = Trainer(
        net, rules.rule("sgd", lr=0.5), devices=["cpu", "cpu"], buffers="root"
    )
    assert each.network.settings.buffers == "root"


def test_an_optimizer_without_a_trainable_parameter_is_refused(backend):
    each = trainer(backend.name)
    freeze(each.network, "*")
    with pytest.raises(
        SettingError, match="'default' has nothing to train: all of its 6 param"
    ):
        each.fit(samples())
