"""Steps: what a network does with a batch by default, and networks with steps of their own, on
replicas as well."""

import numpy as np
import pytest

from deliralike import DataParallel, Network, in_replicas
from deliralike.errors import ArgumentError, BatchError, SettingError
from deliralike.network.steps import inputs_and_target
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.parallel.networks import Small, batch_of, devices
from tests.training.networks import Gan, Vae, batch_of_noise

X, Y = batch_of(7)


def made(backend, network=Small, count=1, **settings):
    net = network.on(backend, dtype="float64")(
        **({"p": 0.3, "norm": False} if network is Small else settings)
    )
    net = DataParallel(net, devices(backend, count)) if count > 1 else net
    return net, backend.optimizer(rule("sgd", lr=0.2), net)


def numbers(backend, losses):
    return {name: float(backend.numpy(value)) for name, value in losses.items()}


def cross_entropy(net, x=X, y=Y):
    """In NumPy, in evaluation mode."""
    state = net.neutral_state()
    hidden = np.maximum(x @ state["first.weight"].T, 0)
    scores = hidden @ state["fc.weight"].T + state["fc.bias"]
    return float((np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]).mean())


KINDS = [("tuple", 1), ("list", 2), ("dict", 1), ("dict of a tuple", 2)]


@pytest.mark.parametrize(("kind", "count"), KINDS)
def test_a_batch_comes_in_any_of_the_usual_forms(backend, kind, count):
    batch = {
        "tuple": (X, Y),
        "list": [X, Y],
        "dict": {"data": X, "label": Y},
        "dict of a tuple": {"data": (X,), "label": Y},
    }[kind]
    net, optimizer = made(backend, count=count)
    wanted = cross_entropy(net)
    assert numbers(backend, net.val_step(batch)) == {
        "loss": pytest.approx(wanted, rel=1e-12)
    }
    assert numbers(backend, net.test_step(batch)) == {
        "loss": pytest.approx(wanted, rel=1e-12)
    }
    net.eval()
    assert numbers(backend, net.train_step(batch, optimizer)) == {
        "loss": pytest.approx(wanted, rel=1e-12)
    }
    assert optimizer.steps == 1
    assert cross_entropy(net) < wanted


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, "a batch is a dict, tuple or list, not a numpy.ndarray: give"),
        ("images", "a batch is a dict, tuple or list, not a str"),
        (None, "not a NoneType"),
        (iter([X, Y]), "not a list_iterator"),
        ((X,), "a batch of 1 elements has no target: give"),
        ([], "a batch of 0 elements has no target"),
        (
            {"picture": X, "label": Y},
            "the batch has no 'data'. It|the batch has no 'data'",
        ),
        ({"data": X, "lable": Y}, "the batch has no 'label'. Did you mean 'lable'"),
    ],
)
def test_any_other_batch_is_an_error_that_names_it(batch, message):
    from deliralike import backends

    net, optimizer = made(backends.get("torch"))
    before = net.neutral_state()
    with pytest.raises(BatchError, match=message):
        net.train_step(batch, optimizer)
    with pytest.raises(BatchError, match=message):
        net.val_step(batch)
    assert optimizer.steps == 0
    np.testing.assert_array_equal(net.neutral_state()["fc.weight"], before["fc.weight"])


class Affine(Network):
    """The sum of two inputs, each times a matrix."""

    def __init__(self):
        super().__init__()
        self.left, self.right = (
            self.nn.Linear(3, 2, bias=False),
            self.nn.Linear(2, 2, bias=False),
        )

    def forward(self, x, z):
        return self.left(x) + self.right(z)


def test_several_inputs_come_before_the_target_and_a_floating_target_is_regressed(
    backend,
):
    net, optimizer = made(backend, Affine)
    z, target = X[:, :2] * 2, X[:, 1:] - 1
    state = net.neutral_state()
    wanted = (
        (X @ state["left.weight"].T + z @ state["right.weight"].T - target) ** 2
    ).mean()
    for batch in ((X, z, target), {"data": (X, z), "label": target}):
        assert numbers(backend, net.val_step(batch)) == {
            "loss": pytest.approx(wanted, rel=1e-12)
        }
    assert numbers(backend, net.train_step((X, z, target), optimizer)) == {
        "loss": pytest.approx(wanted, rel=1e-12)
    }


def two_losses(backend):
    """A number, and the mean of squares."""
    nn = backend.nn
    return {
        "two": lambda prediction, target: nn.sum(prediction) * 0.0 + 2.0,
        "spread": lambda prediction, target: nn.mean(prediction * prediction),
    }


@pytest.mark.parametrize("count", [1, 2])
def test_several_losses_are_added_and_each_comes_back_by_its_name(backend, count):
    net, optimizer = made(backend, count=count)
    losses = two_losses(backend)
    net.eval()
    outputs = backend.numpy(net(backend.array(X)))
    wanted = {
        "loss": 2.0 + (outputs**2).mean(),
        "two": 2.0,
        "spread": (outputs**2).mean(),
    }
    assert numbers(backend, net.val_step((X, Y), losses)) == pytest.approx(
        wanted, rel=1e-12
    )
    assert numbers(backend, net.test_step((X, Y), losses)) == pytest.approx(
        wanted, rel=1e-12
    )
    assert list(net.val_step((X, Y), losses)) == ["loss", "two", "spread"]
    assert numbers(backend, net.train_step((X, Y), optimizer, losses)) == pytest.approx(
        wanted, rel=1e-12
    )


def test_losses_for_logging_have_no_graph(backend):
    net, optimizer = made(backend)
    losses = two_losses(backend)
    for values in (
        net.train_step((X, Y), optimizer, losses),
        net.val_step((X, Y), losses),
    ):
        for value in values.values():
            assert (
                not getattr(value, "requires_grad", False) or backend.name == "chainer"
            )
            assert getattr(value, "creator", None) is None


def summed(network, x, y):
    kept = y != 0
    return network.nn.cross_entropy(
        network(x), y, reduction="sum", ignore_index=0
    ), network.nn.sum(network.nn.cast(kept, network(x)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_loss_in_replicas_is_taken_as_it_is(backend, count):
    net, optimizer = made(backend, count=count)
    net.eval()
    wanted = cross_entropy(net, X[Y != 0], Y[Y != 0])
    loss = in_replicas(summed, "denominator")
    assert numbers(backend, net.val_step((X, Y), loss)) == {
        "loss": pytest.approx(wanted, rel=1e-12)
    }
    assert numbers(backend, net.train_step((X, Y), optimizer, loss)) == {
        "loss": pytest.approx(wanted, rel=1e-12)
    }


@pytest.mark.parametrize("count", [1, 2])
def test_validation_changes_nothing(backend, count):
    net, optimizer = made(backend, count=count)
    net.train_step((X, Y), optimizer)
    before, modes = (
        net.neutral_state(),
        [block.training for _, block in net.named_blocks()],
    )
    net.val_step((X, Y))
    with pytest.raises(ZeroDivisionError):
        net.val_step((X, Y), lambda network, x, y: 1 / 0)
    assert [block.training for _, block in net.named_blocks()] == modes
    assert any(modes)
    np.testing.assert_equal(net.neutral_state(), before)


def test_the_default_step_takes_one_optimizer_of_a_mapping():
    from deliralike import backends

    net, optimizer = made(backends.get("torch"))
    other = backends.get("torch").optimizer(rule("sgd", lr=0.1), net)
    net.train_step((X, Y), {"only": optimizer})
    net.train_step((X, Y), {"default": optimizer, "other": other})
    assert (optimizer.steps, other.steps) == (2, 0)
    with pytest.raises(
        SettingError,
        match="has one optimizer, and there are 2: 'a', 'b'; call one of them 'default'",
    ):
        net.train_step((X, Y), {"a": optimizer, "b": other})


def test_losses_that_are_none_are_refused():
    from deliralike import backends

    net, optimizer = made(backends.get("torch"))
    with pytest.raises(SettingError, match="losses is empty: give at least one"):
        net.train_step((X, Y), optimizer, {})
    with pytest.raises(
        ArgumentError, match="losses is a dict of functions or one function, not a list"
    ):
        net.val_step((X, Y), [cross_entropy])


# Steps of a network's own
# -----------------------------------------------------------------------------

OWN = {Gan: ("critic", "generator"), Vae: ("encoder", "decoder")}


def own_steps(backend, kind, count, steps=5):
    """The losses of five steps with a batch of seven, those of a validation, and the weights."""
    net, _ = made(backend, kind, count)
    optimizers = {
        name: backend.optimizer(rule("adam", lr=0.05), net, f"{name}.*")
        for name in OWN[kind]
    }
    batch = batch_of_noise(7)
    losses = [numbers(backend, net.train_step(batch, optimizers)) for _ in range(steps)]
    losses.append(numbers(backend, net.val_step(batch)))
    assert {optimizer.steps for optimizer in optimizers.values()} == {steps}
    return losses, net.neutral_state()


def by_hand(network, losses, steps=5):
    """The losses of each step on PyTorch alone: one optimizer after the other."""
    import torch

    optimizers = {
        name: torch.optim.Adam(getattr(network, name).parameters(), lr=0.05)
        for name in losses
    }
    found = []
    for _ in range(steps):
        found.append({})
        for name, loss in losses.items():
            network.zero_grad()
            value = loss()
            value.backward()
            optimizers[name].step()
            found[-1][name] = value.item()
    return found


def gan_by_hand():
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as bce

    net = Gan.on("torch", dtype="float64")()
    real, noise = (
        torch.from_numpy(batch_of_noise(7)[name]) for name in ("data", "noise")
    )

    def critic():
        for_real, for_made = net.critic(real), net.critic(net.generator(noise).detach())
        return bce(for_real, torch.ones_like(for_real)) + bce(
            for_made, torch.zeros_like(for_made)
        )

    def generator():
        scores = net.critic(net.generator(noise))
        return bce(scores, torch.ones_like(scores))

    losses = by_hand(net, {"critic": critic, "generator": generator})
    losses.append({"critic": critic().item(), "generator": generator().item()})
    return losses, net.neutral_state()


def vae_by_hand():
    import torch

    net = Vae.on("torch", dtype="float64")()
    x, noise = (torch.from_numpy(batch_of_noise(7)[name]) for name in ("data", "noise"))

    def loss():
        mean, log_var = net.encoder(x).chunk(2, -1)
        made = net.decoder(mean + (0.5 * log_var).exp() * noise)
        divergence = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
        return ((made - x) ** 2).mean() + divergence

    losses = by_hand(net, dict.fromkeys(OWN[Vae], loss))
    return [*losses, {"elbo": loss().item()}], net.neutral_state()


OWN_STEPS = [(Gan, gan_by_hand, 2), (Vae, vae_by_hand, 1)]


@pytest.mark.parametrize(("kind", "reference", "count"), OWN_STEPS)
def test_a_network_with_two_optimizers_trains_as_by_hand_on_any_number_of_replicas(
    backend, kind, reference, count
):
    losses, state = own_steps(backend, kind, count)
    wanted, weights = reference()
    for found, want in zip(losses, wanted, strict=True):
        assert found == pytest.approx(want, rel=1e-10)
    same_named(state, weights)


def test_a_batch_without_a_usual_name_is_told_the_usual_ones():
    with pytest.raises(
        BatchError, match=r"no 'data'. Known: cls, feats. Usual names are inputs, "
    ):
        inputs_and_target({"feats": X, "cls": Y})
