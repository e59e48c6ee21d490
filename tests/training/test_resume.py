"""A run that is resumed gives what the uninterrupted one gives: bit for bit on the same backend."""

import random

import numpy as np
import pytest

from deliralike import Network, backends, data
from deliralike.errors import CheckpointError, CheckpointMissing
from deliralike.optim import rules
from deliralike.training import Callback, Run, Trainer, checkpoint
from deliralike.training.state import gather, restore
from tests.training import runs

EPOCHS = 2  # of five batches, two to a step and the last one alone: three steps


class Keep(Callback):
    """Write a checkpoint after a number of steps, or of epochs."""

    runs_last = True

    def __init__(self, folder, steps=None, epochs=None):
        self.folder, self.steps, self.epochs = folder, steps, epochs

    def on_step(self, run, step):
        if run.step == self.steps:
            checkpoint.write(self.folder, gather(run))

    def on_epoch(self, run, epoch):
        if run.epoch == self.epochs:
            checkpoint.write(self.folder, gather(run))


class Count(Callback):
    """Something with a state of its own."""

    def __init__(self):
        self.seen = []

    def on_step(self, run, step):
        self.seen.append(step.step)

    def state(self):
        return {"seen": list(self.seen), "array": np.array(self.seen)}

    def load_state(self, state):
        assert state["array"].tolist() == state["seen"]
        self.seen = list(state["seen"])


CASES = [
    ("native", 2, {"steps": 2}),  # inside an epoch
    ("native", None, {"steps": 3}),  # its last step is made, the evaluation is not
    ("portable", 2, {"epochs": 1}),  # between two epochs
]


@pytest.mark.parametrize(("rng", "replicas", "moment"), CASES)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(
    backend, tmp_path, rng, replicas, moment
):
    devices = None if replicas is None else [backend.devices()[0]] * replicas
    runs.start_all_chance(11)
    whole = runs.trainer(
        backend.name, Keep(tmp_path / "c", **moment), rng=rng, devices=devices
    )
    history = whole.fit(runs.loader(), runs.samples(9), epochs=EPOCHS)
    runs.start_all_chance(99)
    resumed = runs.trainer(backend.name, seed=2, rng=rng, devices=devices)
    more = resumed.fit(
        runs.loader(), runs.samples(9), epochs=EPOCHS, resume=tmp_path / "c"
    )
    assert runs.differing(runs.outcome(whole), runs.outcome(resumed)) == []
    done = len(history.steps) - len(more.steps)
    assert done == 3 - (moment == {"steps": 2})
    assert [step.loss for step in more.steps] == [
        step.loss for step in history.steps[done:]
    ]
    assert [step.lr for step in more.steps] == [
        step.lr for step in history.steps[done:]
    ]
    assert [epoch.held_out for epoch in more.epochs] == [
        epoch.held_out for epoch in history.epochs
    ]


def test_several_optimizers_in_single_precision_are_resumed_bit_for_bit(
    backend, tmp_path
):
    runs.start_all_chance(11)
    whole = runs.pair_trainer(backend.name, Keep(tmp_path / "c", steps=3))
    history = whole.fit(runs.pair_loader(), epochs=EPOCHS)
    runs.start_all_chance(99)
    resumed = runs.pair_trainer(backend.name, seed=2)
    more = resumed.fit(runs.pair_loader(), epochs=EPOCHS, resume=tmp_path / "c")
    assert runs.differing(runs.outcome(whole), runs.outcome(resumed)) == []
    assert [step.losses for step in more.steps] == [
        step.losses for step in history.steps[3:]
    ]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """One of each backend inside the first epoch, and what comes of PyTorch's when it goes on."""
    folder = tmp_path_factory.mktemp("checkpoints")
    whole = {}
    for name in ("torch", "chainer", "jax"):
        runs.start_all_chance(11)
        whole[name] = runs.trainer(name, Keep(folder / name, steps=2))
        whole[name].fit(runs.loader(), epochs=EPOCHS if name == "torch" else 1)
    return folder, runs.outcome(whole["torch"])


MOVES = [
    ("torch", "chainer"),
    ("chainer", "jax"),
    ("jax", "torch"),
]  # each one writes, and each one reads


@pytest.mark.parametrize(("origin", "backend"), MOVES)
def test_a_checkpoint_goes_on_on_every_other_backend(checkpoints, origin, backend):
    folder, wanted = checkpoints
    runs.start_all_chance(99)
    resumed = runs.trainer(backend, seed=2)
    resumed.fit(runs.loader(), epochs=EPOCHS, resume=folder / origin)
    found = runs.outcome(resumed)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.allclose(found[name], value, rtol=1e-10, atol=1e-12), name


def test_native_draws_on_another_backend_follow_the_runs_seed_and_step(tmp_path):
    runs.start_all_chance(11)
    runs.trainer("chainer", Keep(tmp_path / "c", steps=1), rng="native").fit(
        runs.loader(), epochs=1
    )
    outcomes = []
    for number in (1, 2):
        runs.start_all_chance(number)
        resumed = runs.trainer("torch", rng="native")
        resumed.fit(runs.loader(), epochs=1, resume=tmp_path / "c")
        outcomes.append(runs.outcome(resumed))
    assert runs.differing(*outcomes) == []


# What else is brought back
# -----------------------------------------------------------------------------


class Plain(Network):
    def __init__(self):
        super().__init__()
        self.first = self.nn.Linear(4, 5)
        self.second = self.nn.Linear(5, 3)

    def forward(self, x):
        return self.second(self.nn.relu(self.first(x)))


def plain_samples(count=20):
    generator = np.random.default_rng(3)
    return data.Samples(
        generator.normal(size=(count, 4)), generator.integers(0, 3, count)
    )


def plain_trainer(*callbacks, backend="torch", dtype="float64", rule=None, **options):
    network = Plain.on(backend, seed=options.pop("start", 1), dtype=dtype)()
    rule = rule or rules.rule("sgd", lr=0.1, momentum=0.9)
    return Trainer(network, rule, callbacks=callbacks, **options)


def test_callbacks_go_on_by_class_and_number(tmp_path):
    plain_trainer(Count(), Keep(tmp_path / "c", steps=3), Count()).fit(
        plain_samples(), epochs=1, batch_size=5
    )
    first, second, new = Count(), Count(), Count()
    second.seen = first.seen = ["forgotten"]
    plain_trainer(first, second, new).fit(
        plain_samples(), epochs=1, batch_size=5, resume=tmp_path / "c"
    )
    assert first.seen == second.seen == [0, 1, 2, 3]
    assert new.seen == [3]


def test_another_number_of_replicas_goes_on(backend, tmp_path):
    whole = plain_trainer(Keep(tmp_path / "c", steps=2), backend=backend.name)
    whole.fit(plain_samples(), epochs=1, batch_size=5)
    resumed = plain_trainer(
        backend=backend.name, start=2, devices=backend.devices()[:1] * 2
    )
    resumed.fit(plain_samples(), epochs=1, batch_size=5, resume=tmp_path / "c")
    found = runs.outcome(resumed)
    assert all(
        np.allclose(found[name], value, rtol=1e-12)
        for name, value in runs.outcome(whole).items()
    )


def stream(epoch):
    generator = np.random.default_rng(epoch)
    rows = generator.normal(size=(17, 4)), np.arange(17) % 3
    return data.Loader(rows, 4, shuffle=False).batches()


LOADERS = {
    "a stream": lambda: data.Batches(stream),
    "threads that work ahead": lambda: data.Loader(
        plain_samples(), 4, prefetch=3, workers=2, transform=augmented
    ),
    "a sampler": lambda: data.Loader(plain_samples(), 4, sampler=drawn_anew),
}


def drawn_anew(samples, seed, epoch):
    return np.random.default_rng([seed, epoch]).integers(0, samples, samples)


def augmented(sample, generator):
    return sample[0] + generator.normal(size=4), sample[1]


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS.keys())
@pytest.mark.parametrize("step", [7])
def test_any_loader_goes_on_where_it_was(tmp_path, loader, step):
    whole = plain_trainer(Keep(tmp_path / "c", steps=step))
    history = whole.fit(loader(), epochs=3)
    resumed = plain_trainer(start=2)
    more = resumed.fit(loader(), epochs=3, resume=tmp_path / "c")
    assert len(more.steps) == 15 - step
    assert [step.loss for step in more.steps] == [
        step.loss for step in history.steps[step:]
    ]
    assert runs.differing(runs.outcome(whole), runs.outcome(resumed)) == []


def test_frozen_parameters_and_rates_set_by_hand_are_brought_back(backend, tmp_path):
    class Thaw(Callback):
        def on_step(self, run, step):
            if run.step == 1:
                run.network.set_trainable("first.*", False)
                run.optimizers["default"].lr = 0.025

    whole = plain_trainer(Thaw(), Keep(tmp_path / "c", steps=2), backend=backend.name)
    whole.fit(plain_samples(), epochs=1, batch_size=5)
    resumed = plain_trainer(backend=backend.name, start=2)
    resumed.fit(plain_samples(), epochs=1, batch_size=5, resume=tmp_path / "c")
    assert resumed.optimizers["default"].lr == 0.025
    assert not resumed.network.neutral_slots()["first.weight"].trainable
    assert runs.differing(runs.outcome(whole), runs.outcome(resumed)) == []


def test_the_generators_of_python_and_numpy_are_brought_back(tmp_path):
    class Draw(Callback):
        def __init__(self):
            self.drawn = []

        def on_step(self, run, step):
            self.drawn.append((random.random(), random.gauss(0, 1), np.random.normal()))

    whole, resumed = Draw(), Draw()
    plain_trainer(whole, Keep(tmp_path / "c", steps=1)).fit(
        plain_samples(), batch_size=5
    )
    random.seed(4), np.random.seed(4)
    plain_trainer(resumed).fit(plain_samples(), batch_size=5, resume=tmp_path / "c")
    assert resumed.drawn == whole.drawn[1:]


def test_a_loss_scale_goes_on(tmp_path):
    def half_trainer(*callbacks):
        return plain_trainer(*callbacks, dtype="float32", precision="float16")

    whole = half_trainer(Keep(tmp_path / "c", steps=1))
    whole.optimizers["default"].loss_scale.value = 2.0**9
    whole.fit(plain_samples(), batch_size=10)
    resumed = half_trainer()
    resumed.fit(plain_samples(), batch_size=10, resume=tmp_path / "c")
    assert (
        resumed.optimizers["default"].loss_scale
        == whole.optimizers["default"].loss_scale
    )
    assert resumed.optimizers["default"].loss_scale.good_steps == 2


def test_streams_of_flax_and_keys_with_a_type_go_on():
    from flax import nnx

    jax = backends.get("jax")

    class Noisy(nnx.Module):
        def __init__(self, seed):
            self.fc = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
            self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(seed))

        def __call__(self, x):
            return self.dropout(self.fc(x))

    first, second = jax.wrap(Noisy(1)), jax.wrap(Noisy(2))
    x = np.ones((7, 3), np.float32)
    jax.numpy(first(x))
    jax.load_random_state(second, jax.random_state(first))
    assert (jax.numpy(first(x)) == jax.numpy(second(x))).all()
    with pytest.raises(
        ValueError,
        match="the random state has the streams .*, and the network has \\(none\\)",
    ):
        jax.load_random_state(
            jax.wrap(nnx.Linear(3, 2, rngs=nnx.Rngs(0))), jax.random_state(first)
        )


# Runs that are not the same
# -----------------------------------------------------------------------------


OTHERS = {
    "samples": ({}, {"count": 19}, {}, r"samples was 20, here it is 19"),
    "batch size": ({}, {}, {"batch_size": 4}, r"batch_size was 5, here it is 4"),
    "seed": (
        {"seed": 3},
        {},
        {},
        r"seed was 0, here it is 3.*order_seed was 0, here it is 3",
    ),
    "rng": ({"rng": "native"}, {}, {}, r"rng was 'portable', here it is 'native'"),
    "type": (
        {"dtype": "float32"},
        {},
        {},
        r"dtype was 'float64', here it is 'float32'",
    ),
    "accumulate": (
        {"accumulate": 2},
        {},
        {},
        r"accumulate.default was 1, here it is 2",
    ),
    "dropped batches": (
        {},
        {},
        {"drop_last": True},
        r"drop_last was False, here it is True",
    ),
    "optimizers": (
        {"rule": {"first": rules.rule("sgd", lr=0.1)}},
        {},
        {},
        r"it has the optimizers 'default', and here the optimizers 'first'",
    ),
}


@pytest.mark.parametrize(
    ("options", "samples", "fit", "message"), OTHERS.values(), ids=OTHERS.keys()
)
def test_a_run_with_other_settings_is_refused_by_name(
    tmp_path, options, samples, fit, message
):
    plain_trainer(Keep(tmp_path / "c", steps=1)).fit(plain_samples(), batch_size=5)
    other = plain_trainer(start=2, **options)
    before = runs.outcome(other)
    with pytest.raises(CheckpointError, match=message):
        other.fit(
            plain_samples(**samples), **({"batch_size": 5} | fit), resume=tmp_path / "c"
        )
    assert runs.differing(before, runs.outcome(other)) == []


@pytest.mark.parametrize(
    "broken", ["network", "optimizer.default", "random", "callbacks"]
)
def test_what_does_not_fit_changes_nothing(backend, tmp_path, broken):
    plain_trainer(Count(), Keep(tmp_path / "c", steps=1), backend=backend.name).fit(
        plain_samples(), batch_size=5
    )
    state = checkpoint.read(tmp_path / "c")
    state[broken] = {
        "network": lambda: {"first.weight": np.ones((2, 2))},
        "optimizer.default": lambda: {
            "state": {"steps": np.array(3), "third.weight/momentum_buffer": np.ones(2)}
        },
        "random": lambda: state["random"] | {"python": {}},
        "callbacks": lambda: {"Count.0": {}},
    }[broken]()
    checkpoint.write(tmp_path / "c", state)
    random.seed(8)
    chance = random.getstate()
    count = Count()
    count.seen = ["mine"]
    other = plain_trainer(count, backend=backend.name, start=2)
    before = runs.outcome(other)
    with pytest.raises(
        CheckpointError, match="the run was not resumed, and is left as it was"
    ):
        other.fit(plain_samples(), batch_size=5, resume=tmp_path / "c")
    assert runs.differing(before, runs.outcome(other)) == []
    assert count.seen == ["mine"]
    assert random.getstate() == chance


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    checkpoint.write(tmp_path / "c", {"network": {}})
    with pytest.raises(
        CheckpointError,
        match="is not one of a run: it lacks average, callbacks, random",
    ):
        plain_trainer().fit(plain_samples(), resume=tmp_path / "c")
    with pytest.raises(CheckpointMissing, match="there is no checkpoint"):
        plain_trainer().fit(plain_samples(), resume=tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore:accumulate=2 with batch normalisation")
def test_no_state_is_taken_within_a_step():
    trainer = plain_trainer(accumulate=2)
    run = Run(trainer, 1, loader=data.Loader(plain_samples(), 5), in_step=True)
    with pytest.raises(
        CheckpointError, match="cannot be taken while an update is being made"
    ):
        gather(run)
    run.in_step = False
    trainer.network.train_step(plain_samples(), trainer.optimizers)
    with pytest.raises(
        CheckpointError, match="cannot be taken while an update is being made"
    ):
        gather(run)


def test_a_finished_run_that_is_resumed_gives_its_records_and_makes_no_step(tmp_path):
    whole = plain_trainer(Keep(tmp_path / "c", epochs=1)).fit(
        plain_samples(), plain_samples(9), batch_size=5
    )
    more = plain_trainer(start=2).fit(
        plain_samples(), plain_samples(9), batch_size=5, resume=tmp_path / "c"
    )
    assert more.steps == []
    assert more.epochs == whole.epochs


def test_a_state_may_be_restored_by_hand(tmp_path):
    trainer = plain_trainer()
    run = Run(
        trainer, 1, loader=data.Loader(plain_samples(), 5), epoch=3, batch=2, step=14
    )
    other = Run(plain_trainer(start=2), 1, loader=data.Loader(plain_samples(), 5))
    restore(other, gather(run))
    assert other.position() == {"epoch": 3, "batch": 2, "step": 14}
    assert other.resumed
