"""Noise layers: numbers by place in the batch, on every backend, and a network that needs them."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, build, checkpoint_blocks, data, random, rules
from deliralike.errors import SettingError
from deliralike.training import Trainer
from tests.arrays import same_named
from tests.conftest import BACKENDS
from tests.losses import mean_square_error
from tests.nn.agreement import get, hold, normal

KINDS = {"NormalNoise": "normal", "UniformNoise": "uniform"}


def drawn(name, network, x, *shape):
    backend = get(name)
    (array,) = backend.prepare((x,), network)
    return backend.numpy(network.layer(array, *shape))


def test_portable_noise_follows_the_sample_and_not_the_share(name):
    x = normal(0, 7, 3, 2)
    for layer, kind in KINDS.items():
        network = hold(name, layer)
        wanted = [
            random.noise(3, "layer", 2, place, (1, 3, 2), kind)[0] for place in range(7)
        ]
        with random.portable(seed=3, step=2):
            assert_array_equal(drawn(name, network, x), np.stack(wanted))
            row = drawn(name, network, x, (7, 1))
        assert_array_equal(row[2], random.noise(3, "layer", 2, 2, (1, 1), kind, 1)[0])
        with random.portable(seed=3, step=2):
            alone = drawn(name, network, x, ())
        assert_array_equal(alone, random.noise(3, "layer", 2, 0, (1,), kind)[0])
        with random.portable(seed=3, step=2, first_sample=4):
            share = drawn(name, network.eval(), x[4:])
        assert_array_equal(share, np.stack(wanted[4:]))


def test_portable_noise_has_the_moments_of_its_distribution():
    values = random.noise(0, "a", 0, 0, (200, 501), "normal").ravel()
    moments = [np.mean(values**power) for power in (1, 2, 3, 4)]
    assert_allclose(moments, [0, 1, 0, 3], atol=0.06)
    values = random.noise(0, "a", 0, 0, (200, 501), "uniform").ravel()
    found, _ = np.histogram(values, bins=10, range=(0, 1))
    assert_allclose(found / values.size, 0.1, atol=0.004)
    assert found.sum() == values.size


def test_noise_of_an_unknown_kind_is_refused():
    with pytest.raises(
        SettingError, match="kind='gauss'; wanted 'normal' or 'uniform'"
    ):
        random.noise(0, "a", 0, 0, (2,), "gauss")


def test_noise_is_that_of_pytorch_outside_of_the_portable_stream():
    x = torch.zeros(5, 3, dtype=torch.float64)
    for layer, function in (
        ("NormalNoise", torch.randn_like),
        ("UniformNoise", torch.rand_like),
    ):
        torch.manual_seed(4)
        found = hold("torch", layer).layer(x)
        torch.manual_seed(4)
        assert torch.equal(found, function(x))


class Autoencoder(Network):
    """Encodes to means and deviations, and decodes a sample."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(2, 6)
        self.noise = nn.NormalNoise()

    def forward(self, x):
        mean, log_std = self.nn.chunk(self.encode(x), 2, dim=1)
        latent = mean + self.noise(mean) * self.nn.exp(log_std)
        return self.decode(latent)


def trained(network, batch_size=6, loss=mean_square_error, **settings):
    rule = rules.rule("adam", lr=0.05)
    trainer = Trainer(network, rule, loss, seed=2, **settings)
    samples = data.Samples(normal(0, 23, 6), normal(1, 23, 6))
    trainer.fit(samples, batch_size=batch_size, epochs=2)
    return trainer.network.neutral_state()


def test_a_variational_autoencoder_trains_alike_on_each_backend_and_replicated(backend):
    def run(on=backend.name, **settings):
        return trained(build(Autoencoder.on(on), dtype="float64", seed=0), **settings)

    wanted = run("torch")
    same_named(run(), wanted, 1e-9)
    same_named(run(devices=[backend.devices()[0]] * 2), wanted, 1e-9)


class Siamese(Network):
    """One layer of dropout in several places, and a block that is called twice."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.drop, self.first, self.last = (
            nn.Dropout(0.4),
            nn.Linear(6, 5),
            nn.Linear(5, 6),
        )
        self.block = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.3), nn.Tanh())

    def forward(self, x):
        x = self.drop(self.first(self.drop(x)))
        return self.last(self.block(self.block(x)))


def twice(network, x, target):
    """As in SimCSE: two views of each sample, which differ by their masks."""
    nn = network.nn
    one, other = network(x), network(x)
    return nn.mse_loss(one, target) - 0.1 * nn.mse_loss(one, other)


def test_layers_that_draw_several_times_train_alike_everywhere(backend):
    def run(change=lambda network: None, on=backend.name, **settings):
        network = build(Siamese.on(on), dtype="float64", seed=0)
        change(network)
        return trained(network, loss=twice, **settings)

    wanted = run(on="torch")
    same_named(run(), wanted, 1e-9)
    same_named(run(devices=[backend.devices()[0]] * 2), wanted, 1e-9)
    same_named(run(batch_size=3, accumulate=2), wanted, 1e-9)
    if "checkpointed blocks" in backend.capabilities:
        checkpointed = run(lambda network: checkpoint_blocks(network, "block"))
        same_named(checkpointed, wanted, 1e-9)


def test_networks_of_several_frameworks_draw_the_same_in_one_block():
    x, outputs = np.ones((3, 6)), []
    with random.portable(seed=1):
        for name in BACKENDS:
            network = hold(name, "Dropout", {"p": 0.5})
            outputs.append([drawn(name, network, x) for _ in range(2)])
    for first, second in outputs:
        assert_array_equal(first, outputs[0][0])
        assert_array_equal(second, outputs[0][1])
    assert (outputs[0][0] != outputs[0][1]).any()
