"""DASO by heat's names in one process: what it takes, what it refuses, and that it is then the
local optimizer."""

import pytest
import torch

import deliralike.compat.heat as ht
from deliralike import zoo
from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    ProcessError,
    SettingError,
    StateError,
)
from deliralike.parallel import SingleProcess


def made(network=None, **settings):
    network = torch.nn.Linear(3, 2) if network is None else network
    local = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    settings = {
        "total_epochs": 3,
        "warmup_epochs": 1,
        "cooldown_epochs": 1,
        "comm": SingleProcess(),
    } | settings
    return network, local, ht.optim.DASO(local, **settings)


@pytest.mark.parametrize(
    "name",
    [
        "total_epochs",
        "warmup_epochs",
        "cooldown_epochs",
        "max_global_skips",
        "sending_chunk_size",
        "skip_reduction_factor",
        "local_skip_factor",
    ],
)
def test_whole_numbers(name):
    """TypeError and ValueError, as heat has them."""
    with pytest.raises(TypeError, match=f"{name}=2.5 must be of type int"):
        made(**{name: 2.5})
    with pytest.raises(ValueError, match=f"{name}=-1 must be at least [01]"):
        made(**{name: -1})


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        (
            {"stability_level": 5},
            ArgumentError,
            "stability_level=5 must be of type float",
        ),
        (
            {"use_mpi_groups": False},
            SettingError,
            "use_mpi_groups=False must be at least True",
        ),
        (
            {"scheduler": torch.optim.lr_scheduler.StepLR},
            ArgumentError,
            "give a scheduler made over the local",
        ),
        (
            {"stability_level": -0.5},
            SettingError,
            "stability_level=-0.5 must be at least 0.0",
        ),
        ({"verbose": 1}, ArgumentError, "verbose=1 must be of type bool"),
        (
            {"use_mpi_groups": "yes"},
            ArgumentError,
            "use_mpi_groups='yes' must be of type bool",
        ),
        ({"downcast_type": 5}, ArgumentError, "downcast_type=5 must be torch.bfloat16"),
        (
            {"downcast_type": torch.float64},
            SettingError,
            "must be torch.bfloat16, torch.half, torch.float or None",
        ),
        (
            {"downcast_type": "asdf"},
            SettingError,
            "downcast_type='asdf' must be torch.bfloat16, torch.half",
        ),
        ({"comm": "world"}, ArgumentError, "'world' is no communicator"),
        ({"members": 2}, ProcessError, "every node needs the same number of processes"),
    ],
)
def test_arguments_that_are_refused(settings, error, why):
    with pytest.raises(error, match=why):
        made(**settings)


@pytest.mark.parametrize("given", ["sgd", torch.optim.SGD, None, 0.1])
def test_what_is_no_optimizer(given):
    with pytest.raises(
        TypeError, match="is no optimizer: give one made over the network's parameters"
    ):
        ht.optim.DASO(given, total_epochs=1, comm=SingleProcess())


def test_the_communicator_is_heats():
    assert (made()[2].comm.rank, made()[2].comm.size) == (0, 1)
    assert made(comm=None)[2].comm.size == 1
    assert made(comm=ht.Communication(SingleProcess()))[2].comm.size == 1


def test_networks_that_are_refused():
    network, _, optimizer = made()
    with pytest.raises(
        ArgumentError, match="DataParallelMultiGPU takes a DASO optimizer"
    ):
        ht.nn.DataParallelMultiGPU(network, torch.optim.SGD(network.parameters()))
    with pytest.raises(
        CapabilityError,
        match="backend 'jax' keeps no gradients beside parameters.*AveragedUpdates",
    ):
        ht.nn.DataParallelMultiGPU(
            zoo.build("mlp", backend="jax", in_features=3, out_features=2), optimizer
        )
    with pytest.raises(SettingError, match="DASO has no network yet"):
        optimizer.step()
    ht.nn.DataParallelMultiGPU(network, optimizer, SingleProcess())
    with pytest.raises(
        SettingError, match=r"batches=None: say how many batches an epoch has"
    ):
        optimizer.step()


def train(forward, optimizer, epochs, end):
    losses = []
    generator = torch.Generator().manual_seed(3)
    for _ in range(epochs):
        for _ in range(4):
            x = torch.randn(5, 3, generator=generator)
            optimizer.zero_grad()
            loss = (forward(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        end(loss)
    return losses


def test_one_process_is_the_local_optimizer():
    """With a scheduler, which steps after each update."""
    alone = torch.nn.Linear(3, 2)
    network, local, optimizer = made(alone)
    wanted = torch.nn.Linear(3, 2)
    wanted.load_state_dict(alone.state_dict())
    plain = torch.optim.SGD(wanted.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(plain, 4, 0.5)
    optimizer.scheduler = torch.optim.lr_scheduler.StepLR(local, 4, 0.5)
    optimizer.last_batch = 4
    model = ht.nn.DataParallelMultiGPU(network, optimizer)
    expected = train(wanted, _Both(plain, schedule), 3, lambda loss: None)
    assert train(model, optimizer, 3, optimizer.epoch_loss_logic) == expected
    assert torch.equal(network.weight, wanted.weight)
    assert optimizer.averages.state.epoch == 3


class _Both:
    def __init__(self, optimizer, schedule):
        self.zero_grad, self.parts = optimizer.zero_grad, (optimizer, schedule)

    def step(self):
        for part in self.parts:
            part.step()


def test_the_end_of_an_epoch_is_printed(capsys):
    network, _, optimizer = made(total_epochs=9, verbose=True)
    model = ht.nn.DataParallelMultiGPU(network, optimizer)
    optimizer.last_batch = 4
    train(model, optimizer, 1, lambda loss: optimizer.epoch_loss_logic(1.0))
    assert capsys.readouterr().out.startswith("epoch 1: loss 1.0000, Pace(")


def test_the_network_is_reached_through_its_wrapper():
    network, _, optimizer = made()
    model = ht.nn.DataParallelMultiGPU(network, optimizer)
    assert model.module is network and model.weight is network.weight
    assert torch.equal(model.forward(torch.ones(1, 3)), network(torch.ones(1, 3)))
    assert list(model.state_dict()) == ["weight", "bias"]
    model.eval()
    assert not network.training


def test_more_batches_than_were_told_and_states_of_others():
    network, _, optimizer = made()
    model = ht.nn.DataParallelMultiGPU(network, optimizer)
    optimizer.last_batch = 2
    with pytest.raises(
        ProcessError,
        match="epoch 0, batch 3: the epoch has 2 batches: end it before the next one",
    ):
        train(model, optimizer, 1, lambda loss: None)
    with pytest.raises(
        StateError,
        match="the state is of process 1 of 2 nodes of 2, and this is process 0 of 1",
    ):
        optimizer.load_state_dict(optimizer.state_dict() | {"place": [1, 2, 2]})
