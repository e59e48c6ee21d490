"""``Trainer(compile=True)`` makes the updates of eager mode, in few programs."""

import numpy as np
import pytest

from deliralike import DataParallel, Network, data, errors, rules, zoo
from deliralike.training import Trainer
from tests.arrays import same_named

torch = pytest.importorskip("torch")

COUNT, BATCH, EPOCHS = 23, 5, 3  # four whole batches and one of 3 an epoch


class Small(Network):
    """Batch normalisation, dropout of elements and paths, and two layers of one weight."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(1, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.dropout, self.path = nn.Dropout(0.3), nn.DropPath(0.2)
        self.first, self.head = nn.Linear(5 * 49, 7), nn.Linear(7, 3)
        self.tied, self.twin = nn.Linear(7, 7), nn.Linear(7, 7)
        self.twin.weight = self.tied.weight

    def forward(self, x):
        relu = self.nn.relu
        x = self.nn.flatten(relu(self.norm(self.conv(x))), 1)
        x = relu(self.first(self.dropout(x)))
        return self.head(x + self.path(self.twin(relu(self.tied(x)))))


def samples():
    generator = np.random.default_rng(0)
    return generator.normal(size=(COUNT, 1, 7, 7)), generator.integers(0, 3, COUNT)


@pytest.fixture
def programs(monkeypatch):
    """The graphs that the compiler was given, through all graph breaks."""
    found = []

    def backend(graph, inputs, **options):
        found.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs, **options)

    torch._dynamo.reset()
    yield found, backend
    torch._dynamo.reset()


def trained(compile, *, frozen=(), **settings):
    torch.manual_seed(1)
    network = Small.on("torch", dtype="float64", seed=3)()
    for name in frozen:
        network.set_trainable(name, False)
    rule = rules.rule("sgd", lr=0.1, momentum=0.9)
    trainer = Trainer(network, rule, compile=compile, **settings)
    history = trainer.fit(samples(), epochs=EPOCHS, batch_size=BATCH)
    return history.losses, network.neutral_state()


def assert_equal_runs(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-12)
    same_named(one[1], other[1])


SETTINGS = {
    "portable masks, frozen layers": {
        "rng": "portable",
        "frozen": ("conv.*", "first.weight"),
    },
    "native masks, accumulated": {"rng": "native", "accumulate": 2},
}
normalised_apart = pytest.mark.filterwarnings(
    "ignore:accumulate=2 with batch normalisation"
)


@normalised_apart
@pytest.mark.parametrize("name", SETTINGS)
def test_the_updates_are_those_of_eager_mode_in_one_graph_for_each_of_two_sizes(
    name, programs
):
    found, backend = programs
    compiled = trained({"backend": backend}, **SETTINGS[name])
    assert len(found) == 2
    assert_equal_runs(compiled, trained(False, **SETTINGS[name]))


@normalised_apart
def test_the_programs_of_inductor_make_the_updates_of_eager_mode():
    settings = SETTINGS["native masks, accumulated"]
    assert_equal_runs(trained(True, **settings), trained(False, **settings))


def test_a_layer_that_is_frozen_between_steps_does_not_move(programs):
    _, backend = programs
    network = Small.on("torch")()
    trainer = Trainer(network, rules.rule("sgd", lr=0.1), compile={"backend": backend})
    trainer.fit(samples(), batch_size=BATCH)
    network.set_trainable("head.*", False)
    before = network.neutral_state()
    trainer.fit(samples(), batch_size=BATCH)
    after = network.neutral_state()
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert "first.weight" in moved
    assert not {"head.weight", "head.bias"} & moved


def test_evaluation_is_eager_and_masks_follow_the_step_when_they_are_drawn_in_a_program(
    programs,
):
    found, backend = programs
    network = Small.on("torch", dtype="float64")()
    trainer = Trainer(network, rules.rule("sgd", lr=0.0), compile={"backend": backend})
    in_order = data.Loader(samples(), COUNT, shuffle=False)
    losses = trainer.fit(in_order, samples(), epochs=2).losses
    assert len(found) == 1
    assert (
        losses[0] != losses[1]
    )  # of the same batch and weights: only the masks differ


def test_jax_accepts_it_and_chainer_says_that_it_cannot():
    rule = rules.rule("sgd", lr=0.1)
    losses = []
    for compiled in (False, True):
        network = zoo.build(
            "mlp", backend="jax", in_features=49, hidden=(3,), out_features=3
        )
        trainer = Trainer(network, rule, compile=compiled)
        losses.append(trainer.fit(samples(), batch_size=COUNT).losses)
    assert losses[0] == losses[1]
    with pytest.raises(errors.SettingError, match="'jax' compiles each step by itself"):
        Trainer(network, rule, compile={"mode": "default"})
    network = zoo.build(
        "mlp", backend="chainer", in_features=49, hidden=(3,), out_features=3
    )
    with pytest.raises(
        errors.CapabilityError, match="'chainer' does not have 'compile'"
    ):
        Trainer(network, rule, compile=True)


def test_replicas_and_unknown_settings_are_refused():
    rule = rules.rule("sgd", lr=0.1)
    with pytest.raises(
        errors.SettingError, match=r"replicate what torch.compile\(network\) gives"
    ):
        Trainer(DataParallel(Small.on("torch")(), ["cpu", "cpu"]), rule, compile=True)
    with pytest.raises(
        errors.SettingError, match=r"compile=\{'mode': 'fast'\}: torch.compile: "
    ):
        Trainer(Small.on("torch")(), rule, compile={"mode": "fast"})
