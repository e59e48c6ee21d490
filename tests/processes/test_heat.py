"""Data parallelism by heat's names: the updates of one process, and each thing that heat itself
does wrong."""

import importlib
import sys
import types
from functools import cache

import numpy as np
import pytest
import torch

import deliralike.compat.heat as ht
from deliralike import backends, zoo
from deliralike.errors import ArgumentError, CapabilityError, SettingError
from deliralike.parallel import SingleProcess
from tests.processes import heat_example, heat_steps
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together

pytestmark = together

MODULE = "tests.processes.heat_steps"


# The updates of one process
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "count"), [("mpi", 4), ("torch", 2)])
def test_updates_are_those_of_one_process(engine, count):
    """With groups, momentum, a schedule and tied parameters."""
    for each in call(engine, count, f"{MODULE}:torch_ways"):
        for (kind, clears), (blocking, waiting) in zip(
            heat_steps.WAYS, each, strict=True
        ):
            wanted = heat_steps.torch_states(None, kind, True, clears)
            assert largest_difference(blocking, wanted) < 1e-12
            assert largest_difference(waiting, blocking) < 1e-15


def test_networks_that_are_written_once():
    (wanted, *_), _ = heat_steps.written_once(None)
    for (blocking, steps), (waiting, _) in call("mpi", 2, f"{MODULE}:written_once"):
        assert steps == heat_steps.STEPS
        assert largest_difference(blocking, wanted) < 1e-12
        assert largest_difference(waiting, blocking) < 1e-15


def test_the_example_of_heats_users_runs_with_another_import():
    accuracy, wanted = heat_example.alone()
    assert accuracy > 0.4
    for found, state in call("mpi", 4, "tests.processes.heat_example:main", False):
        assert found == accuracy
        assert largest_difference(state, wanted) < 1e-10


# What heat does wrong
# -----------------------------------------------------------------------------


@cache
def flaws():
    """What each of two processes has seen."""
    return call("mpi", 2, f"{MODULE}:flaws")


def alone(**action):
    """The weights after two steps of PyTorch alone."""
    _, _, module = heat_steps.two_steps(None, True, **action)
    return heat_steps.listed(
        {name: p.detach() for name, p in module.state_dict().items()}
    )


@pytest.mark.parametrize("name", heat_steps.ACTIONS)
def test_what_is_done_between_two_steps_counts_when_it_is_done(name):
    """Clipping sees the means; a new learning rate holds from the next step on; evaluation finds
    the last update."""
    wanted = alone(**heat_steps.ACTIONS[name])
    for each in flaws():
        for state in each[name]:
            assert largest_difference(state, wanted) < 1e-12


def test_several_optimizers_step_by_the_same_means():
    wanted = heat_steps.several_optimizers(None)
    for each in flaws():
        assert largest_difference(each["several optimizers"], wanted) < 1e-12


def test_layers_of_equal_shape_are_not_mixed_up():
    """A layer that another process does not use counts as zero there; one that nobody uses is left
    alone."""
    for each in flaws():
        for before, after in each["two paths"]:
            for name, gradient in (
                ("first.weight", 2.0 / 2),
                ("second.weight", 3.0 / 2),
            ):
                wanted = np.array(before[name]) * 0.5 - gradient
                np.testing.assert_allclose(after[name], wanted, rtol=1e-14)
            assert after["third.weight"] == before["third.weight"]


def test_processes_that_train_different_layers_are_told_so():
    said = call(
        "mpi", 2, "tests.processes.refusals:said", [f"{MODULE}:other_layer_frozen"]
    )
    for (each,), own in zip(said, ("first", "second"), strict=True):
        assert (
            f"the gradients of {own}.weight: another process has sent something else at this point"
            in each
        )


def test_small_layers_share_a_message():
    """Of 100 bytes: the bias of 3, the weight of 18 and those before it, 6 and 30 numbers, each of
    8 bytes."""
    fits = [
        [3 * 8],
        [18 * 8],
        [6 * 8],
        [30 * 8],
    ]  # 24 + 144 are too many, and so is each further one
    for each in flaws():
        assert (
            each["messages"] == [[3 * len(fits), 1]] * 2
        )  # the exchange gives the weights of the root


def test_bfloat16_on_the_wire():
    """Each part is rounded once, and so is their sum: in all a few units of the eighth bit."""
    blocking, waiting = zip(*(each["short"] for each in flaws()), strict=True)
    parts = [own for _, own in waiting]
    for moved, _ in (*blocking, *waiting):
        assert moved == blocking[0][0]
        for name, value in moved.items():
            mean = np.mean([part[name] for part in parts], axis=0)
            error = np.abs(np.array(value) - mean).max()
            assert 1e-6 < error < np.abs(mean).max() * 2**-7


def test_gradients_add_up_over_several_passes():
    wanted = heat_steps.two_backward(None, True)
    for each in flaws():
        for state in each["two backward passes"]:
            assert largest_difference(state, wanted) < 1e-12


# What is refused, and names
# -----------------------------------------------------------------------------


def test_other_backends_say_what_to_use():
    network = zoo.build("mlp", backend="jax", in_features=3, out_features=2)
    optimizer = ht.optim.DataParallelOptimizer(None)
    with pytest.raises(CapabilityError, match=r"use\s+deliralike\.DistributedData"):
        ht.nn.DataParallel(network, SingleProcess(), optimizer)


def test_errors():
    linear = torch.nn.Linear(3, 2)
    optimizer = ht.optim.DataParallelOptimizer(
        torch.optim.SGD(linear.parameters(), lr=0.1)
    )
    with pytest.raises(SettingError, match="the optimizer has no network yet"):
        optimizer.step()
    with pytest.raises(ArgumentError, match=r"wanted ht.optim.DataParallelOptimizer"):
        ht.nn.DataParallel(linear, SingleProcess(), optimizer.torch_optimizer)
    daso = ht.optim.DASO(
        optimizer.torch_optimizer, total_epochs=1, comm=SingleProcess()
    )
    with pytest.raises(
        TypeError, match=r"DASO came, which goes with ht.nn.DataParallelMultiGPU"
    ):
        ht.nn.DataParallel(linear, SingleProcess(), daso)
    with pytest.raises(ArgumentError, match="'all' is no communicator"):
        ht.nn.DataParallel(linear, "all", optimizer)
    with pytest.raises(
        ArgumentError, match="blocking=1 is a int, wanted True or False"
    ):
        ht.optim.DataParallelOptimizer(optimizer.torch_optimizer, blocking=1)
    with pytest.raises(SettingError, match="wire='half' is unknown"):
        ht.nn.DataParallel(linear, SingleProcess(), optimizer, wire="half")
    other = backends.wrap(torch.nn.Linear(3, 2))
    inside = other.backend.wrap_optimizer(
        torch.optim.SGD(other.parameters(), lr=0.1), other
    )
    with pytest.raises(SettingError, match="the optimizer is over another network"):
        ht.nn.DataParallel(
            linear, SingleProcess(), ht.optim.DataParallelOptimizer(inside)
        )


def test_names_of_heat():
    assert ht.nn.Linear is torch.nn.Linear and ht.optim.SGD is torch.optim.SGD
    assert ht.nn.functional.relu is torch.nn.functional.relu
    functional = importlib.import_module("deliralike.compat.heat.nn.functional")
    schedulers = importlib.import_module("deliralike.compat.heat.optim.lr_scheduler")
    assert functional.nll_loss is torch.nn.functional.nll_loss
    assert schedulers.StepLR is torch.optim.lr_scheduler.StepLR
    with pytest.raises(
        AttributeError, match="compat.heat.nn' has no attribute 'Linnear'"
    ):
        _ = ht.nn.Linnear
    ht.use_comm(SingleProcess())
    assert (ht.get_comm().size, ht.get_comm().rank, ht.get_comm().is_distributed()) == (
        1,
        0,
        False,
    )


def test_other_names_are_heats_own_where_it_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "heat", None)
    with pytest.raises(
        AttributeError, match="'array' would be heat's own.*pip install heat"
    ):
        _ = ht.array
    monkeypatch.setitem(sys.modules, "heat", types.SimpleNamespace(array=np.array))
    assert ht.array is np.array
    with pytest.raises(AttributeError, match="arrray"):
        _ = ht.arrray


class Scaled(ht.nn.DataParallel):
    """What a user of heat adds to it: a layer behind the network."""

    def __init__(self, module, comm, optimizer):
        super().__init__(module, comm, optimizer)
        self.scale = torch.nn.Linear(2, 2, bias=False)

    def forward(self, x):
        return self.scale(super().forward(x))


def linear_and_optimizer():
    linear = torch.nn.Linear(3, 2)
    return linear, ht.optim.DataParallelOptimizer(
        torch.optim.SGD(linear.parameters(), lr=0.5)
    )


def test_networks_are_modules_of_heats_classes():
    linear, optimizer = linear_and_optimizer()
    network = Scaled(linear, SingleProcess(), optimizer)
    assert isinstance(network, ht.nn.DataParallel) and isinstance(
        network, torch.nn.Module
    )
    assert (network.comm.size, network.blocking_parameter_updates) == (1, False)
    whole = torch.nn.Sequential(network, torch.nn.ReLU()).to(torch.float64)
    assert linear.weight.dtype == torch.float64
    assert list(network.state_dict()) == ["weight", "bias", "scale.weight"]
    assert list(whole.state_dict()) == ["0.weight", "0.bias", "0.scale.weight"]
    inputs = torch.arange(6.0).double().reshape(2, 3)
    wanted = (linear(inputs) @ network.scale.weight.T).relu()
    torch.testing.assert_close(whole(inputs), wanted)
    before = linear.weight.detach().clone()
    whole(inputs).sum().backward()
    gradient = linear.weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(whole.state_dict()["0.weight"], before - 0.5 * gradient)


def test_checkpoints_of_heat_can_be_loaded():
    """Whose names have a prefix."""
    linear = torch.nn.Linear(3, 2)
    optimizer = ht.optim.DataParallelOptimizer(
        torch.optim.SGD(linear.parameters(), lr=0.1)
    )
    network = ht.nn.DataParallel(linear, SingleProcess(), optimizer)
    network.load_state_dict(
        {"module.weight": torch.full((2, 3), 5.0), "module.bias": torch.zeros(2)}
    )
    assert linear.weight.tolist() == [[5.0] * 3] * 2
    network.load_state_dict(network.state_dict())


# Who waits when
# -----------------------------------------------------------------------------


class Recording(SingleProcess):
    """One process that notes when sums begin and are waited for."""

    def __init__(self):
        super().__init__()
        self.events = []

    def begin_all_reduce_flat(self, flat):
        number = sum(what == "begin" for what, _ in self.events)
        self.events.append(("begin", number))
        return lambda: self.events.append(("wait", number)) or flat


def test_sums_begin_within_backward_and_are_waited_for_at_its_end():
    processes = Recording()
    inside, _, network = heat_steps.made(processes, False)
    inside[1].register_full_backward_hook(
        lambda *_: processes.events.append(("back", 1))
    )
    heat_steps.backward(network, processes, 0)
    begun = [("begin", number) for number in range(4)]
    waited = [("wait", number) for number in range(4)]
    # the last layer's two before the activation's gradient
    assert processes.events == [*begun[:2], ("back", 1), *begun[2:], *waited]


def test_a_backward_pass_that_broke_off_leaves_no_sums_behind():
    processes = Recording()
    inside, optimizer, network = heat_steps.made(processes, False)

    def refuse(*_):
        raise ValueError("broken off")

    hook = inside[1].register_full_backward_hook(refuse)
    with pytest.raises(ValueError, match="broken off"):
        heat_steps.backward(network, processes, 0)
    hook.remove()
    wanted = heat_steps.two_steps(None, True)[2]
    for number in range(2):
        network(torch.ones(1, 5).double())
        optimizer.zero_grad()
        heat_steps.backward(network, processes, number)
        optimizer.step()
    assert (
        largest_difference(
            heat_steps.listed(network.state_dict()),
            heat_steps.listed(
                {name: p.detach() for name, p in wanted.state_dict().items()}
            ),
        )
        < 1e-12
    )
