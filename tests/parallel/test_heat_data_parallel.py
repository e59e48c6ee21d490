"""Data parallelism by heat's names in one process: gradients that are cleared while an update is
pending stay cleared."""

import pytest
import torch

from deliralike.compat import heat as ht
from deliralike.parallel import SingleProcess

X = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)


def pending():
    """A network with a pending update, its parameters, and what the update makes of them."""
    inside = torch.nn.Linear(3, 2).double()
    parameters = list(inside.parameters())
    optimizer = ht.optim.DataParallelOptimizer(torch.optim.SGD(parameters, lr=0.5))
    network = ht.nn.DataParallel(
        inside, SingleProcess(), optimizer, blocking_parameter_updates=False
    )
    network(X).square().mean().backward()
    updated = [(p - 0.5 * p.grad).detach().clone() for p in parameters]
    optimizer.step()
    assert network.is_under_way
    return network, parameters, updated


@pytest.mark.parametrize(
    ("clear", "wanted"),
    [
        (lambda network: network.zero_grad(), None),  # as a module of PyTorch's does
        (lambda network: network.zero_grad(set_to_none=False), 0.0),
    ],
    ids=["none", "zeros"],
)
def test_gradients_that_are_cleared_before_a_pending_update_stay_cleared(clear, wanted):
    network, parameters, updated = pending()
    clear(network)
    network.finish()
    for parameter, value in zip(parameters, updated, strict=True):
        assert torch.equal(parameter, value)
        if wanted is None:
            assert parameter.grad is None
        else:
            assert torch.equal(parameter.grad, torch.full_like(parameter, wanted))


def test_gradients_that_nobody_touches_are_the_means_after_a_pending_update():
    network, parameters, _ = pending()
    local = [parameter.grad.clone() for parameter in parameters]
    network.finish()
    assert all(torch.equal(p.grad, mean) for p, mean in zip(parameters, local, strict=True))


def test_a_gradient_that_is_changed_before_a_pending_update_is_kept():
    network, parameters, updated = pending()
    parameters[0].grad += 3.0
    changed = parameters[0].grad.clone()
    network.finish()
    assert torch.equal(parameters[0].grad, changed)
    assert all(torch.equal(p, value) for p, value in zip(parameters, updated, strict=True))
