"""Parts in evaluation mode stay so while the rest is trained."""

import numpy as np
import pytest
import torch
from flax import nnx

from deliralike import Network, backends, freeze, unfreeze
from deliralike.errors import CapabilityError, UnknownName
from deliralike.optim import rules
from deliralike.training import Checkpoint, Checkpoints, Trainer
from tests.training.small_runs import network, samples


class Nested(Network):
    """A body with two norms, of which one has no parameters, and a dropout; and a head."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.body = nn.Sequential(
            nn.Linear(3, 5),
            nn.BatchNorm1d(5),
            nn.Dropout(0.5),
            nn.BatchNorm1d(5, affine=False),
        )
        self.head = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def forward(self, x):
        return self.head(self.body(x))


def moved(net, before):
    """The names of the weights and statistics that have changed."""
    after = net.neutral_state()
    names = [
        name for name, value in before.items() if not np.array_equal(value, after[name])
    ]
    return sorted(name for name in names if not name.endswith("num_batches_tracked"))


@pytest.mark.parametrize("replicas", [None, 2], ids=["single", "replicas"])
def test_a_norm_in_evaluation_mode_keeps_its_statistics_and_is_trained(
    backend, replicas
):
    net = network(backend.name)
    net.norm.eval()
    before = net.neutral_state()
    devices = None if replicas is None else replicas * backend.devices()[:1]
    each = Trainer(net, rules.rule("sgd", lr=0.1), devices=devices)
    each.fit(samples(), samples(3), epochs=2, batch_size=4)
    kinds = [
        f"{layer}.{kind}"
        for layer in ("first", "last", "norm")
        for kind in ("bias", "weight")
    ]
    assert moved(each.network, before) == kinds
    assert (net.norm.training, net.first.training) == (False, True)


def test_a_frozen_part_stays_as_it_is_and_the_rest_is_trained(backend):
    net = network(backend.name, Nested)
    assert "body.3.running_mean" in freeze(net, "body.*")
    before = net.neutral_state()
    outputs = net.body(backend.prepare(samples().inputs, net))
    trainer_of = Trainer(net, rules.rule("sgd", lr=0.1))
    trainer_of.fit(samples(), samples(3), epochs=2, batch_size=4)
    assert {name.partition(".")[0] for name in moved(net, before)} == {"head"}
    assert "head.1.running_mean" in moved(net, before)
    again = net.body(backend.prepare(samples().inputs, net))
    assert np.array_equal(backend.to_numpy(outputs), backend.to_numpy(again))


def test_what_is_frozen_stays_so_where_the_whole_network_was_set_to_evaluation(backend):
    net = network(backend.name, Nested)
    freeze(net, "body.*")
    net.eval()
    before = net.neutral_state()
    Trainer(net, rules.rule("sgd", lr=0.1)).fit(samples(), batch_size=4)
    names = moved(net, before)
    assert {name.partition(".")[0] for name in names} == {"head"}
    assert "head.1.running_mean" in names


def test_a_network_in_evaluation_mode_as_a_whole_is_trained(backend):
    net = network(backend.name).eval()
    before = net.neutral_state()
    Trainer(net, rules.rule("sgd", lr=0.1)).fit(samples(), batch_size=4)
    assert "norm.running_mean" in moved(net, before)
    assert not net.training


def test_a_part_within_a_frozen_part_can_be_trained_again(backend):
    net = network(backend.name, Nested)
    freeze(net, "body.*")
    unfreeze(net, "body.1.*")
    before = net.neutral_state()
    Trainer(net, rules.rule("sgd", lr=0.1)).fit(samples(), batch_size=4)
    names = [name for name in moved(net, before) if name.startswith("body")]
    kinds = ("bias", "running_mean", "running_var", "weight")
    assert names == [f"body.1.{kind}" for kind in kinds]


def test_a_resumed_run_has_the_frozen_parts_of_the_checkpoint(backend, tmp_path):
    def fitted(net, *callbacks, epochs=2, **options):
        each = Trainer(net, rules.rule("sgd", lr=0.1), callbacks=callbacks)
        each.fit(samples(), epochs=epochs, batch_size=4, **options)
        return net.neutral_state()

    whole = network(backend.name)
    freeze(whole, "norm.*")
    expected = fitted(whole)
    first = network(backend.name)
    freeze(first, "norm.*")
    fitted(first, Checkpoint(tmp_path), epochs=1)
    resumed = fitted(network(backend.name), resume=Checkpoints.latest(tmp_path))
    for name, value in expected.items():
        assert np.array_equal(resumed[name], value), name


def test_a_part_of_a_native_module_in_evaluation_mode_stays_so():
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5)
    ).double()
    module.append(torch.nn.Linear(5, 2).double())
    module[1].eval()
    Trainer(module, torch.optim.SGD(module.parameters(), lr=0.1)).fit(
        samples(), batch_size=4
    )
    assert module[1].running_mean.abs().max() == 0
    assert (module[1].training, module[0].training) == (False, True)


class FlaxNet(nnx.Module):
    """A norm that is in evaluation mode, and one that is not."""

    def __init__(self, rngs):
        self.first = nnx.Linear(3, 5, rngs=rngs)
        self.frozen = nnx.BatchNorm(5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.last = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.norm(self.frozen(self.first(x))))


@pytest.mark.parametrize("whole", [False, True], ids=["a part", "all"])
def test_a_part_of_a_flax_module_in_evaluation_mode_stays_so(whole):
    module = FlaxNet(nnx.Rngs(0))
    (module if whole else module.frozen).eval()
    net = backends.wrap(module)
    before = net.neutral_state()
    Trainer(module, rules.rule("sgd", lr=0.1)).fit(
        (samples().inputs.astype("f4"), samples().labels), batch_size=4
    )
    statistics = [name for name in moved(net, before) if "running" in name]
    assert ("frozen.running_mean" in statistics) is whole
    assert "norm.running_mean" in statistics


def test_freezing_names_what_matches_nothing():
    with pytest.raises(UnknownName, match="no weight of Tiny matches 'nrom.*'"):
        freeze(network("torch"), "nrom.*")


def test_statistics_of_a_link_of_chainer_itself_cannot_be_frozen():
    backends.get("chainer")  # makes Chainer importable
    from chainer import Sequential, links

    net = backends.wrap(Sequential(links.BatchNormalization(3)))
    with pytest.raises(
        CapabilityError, match="BatchNormalization of the framework's own"
    ):
        freeze(net, "*")
