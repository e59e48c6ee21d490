"""What the processes of the tests do on JAX's own runtime."""

import jax
import numpy as np
from flax import nnx

from deliralike import backends, random
from deliralike.errors import DeliralikeError
from deliralike.optim.rules import rule
from deliralike.training.averaging import WeightAverage
from tests.processes import steps, subjects


def adam(network):
    """Two states for each parameter."""
    return network.backend.optimizer(rule("adam", lr=0.01), network)


def of_subject(processes=None):
    """The subject over processes, or alone."""
    subject = subjects.subject("jax")
    network = subject.network
    if processes is not None:
        network = backends.DistributedDataParallel(network, processes)
    return subject, network


def everything(subject, network, share, rank=0, sizes=(7,)):
    """Updates by two optimizers, gradients and micro-batches, evaluation, states, averages of
    weights."""
    found = {
        "updates": steps.updates(
            network,
            {"clipped": subjects.clipped_sgd, "adam": adam},
            subject.loss,
            share,
        )
    }
    optimizer = adam(network)
    optimizer.keep_gradients, optimizer.accumulate = True, 2
    with random.portable(0, 5), network.training_mode(True):
        for micro_batch in (share, share):
            optimizer.update(subject.loss, *micro_batch)
    begin = sum(sizes[:rank])
    with network.training_mode(False):
        judged = (
            []
            if rank
            else [np.asarray(network(subjects.batch()[0][begin : begin + 2])).tolist()]
        )
    gradients = {
        name: network.backend.numpy(each)
        for name, each in optimizer.latest_gradients.items()
    }
    state, weights = optimizer.neutral_state(), network.neutral_state()
    other = adam(network)
    other.load_neutral_state(state)
    network.load_neutral_state(weights)
    average = WeightAverage(network, 0.5)
    other.post_update_hooks.append(average)
    with random.portable(0, 6), network.training_mode(True):
        loss = other.update(subject.loss, *share)
    with average.swap_in():
        averaged = network.neutral_state()
    named = {
        "averaged": averaged,
        "gradient": gradients,
        "state": state,
        "weights": weights,
        "after": network.neutral_state(),
    }
    lists = {
        kind: {name: value.tolist() for name, value in each.items()}
        for kind, each in named.items()
    }
    return (
        found
        | lists
        | {
            "judged": judged,
            "loss": float(loss),
            "optimizer": optimizer,
        }
    )


def together(processes, sizes):
    """Everything in one of several processes."""
    subject, network = of_subject(processes)
    share = steps.share_of(steps.batch(sum(sizes)), sizes, processes.rank)
    with network.backend.compiling_quickly():
        found = everything(subject, network, share, processes.rank, sizes)
    found.pop("optimizer")
    return found


def alone():
    """Everything in one process."""
    subject, network = of_subject()
    with network.backend.compiling_quickly():
        found = everything(subject, network, steps.batch(7))
    found.pop("optimizer")
    return found


class Flaxen(nnx.Module):
    """Layers of flax's own: batch norm, and dropout from a stream of its own."""

    def __init__(self, seed):
        self.first = nnx.Linear(70, 6, rngs=nnx.Rngs(seed))
        self.norm = nnx.BatchNorm(6, rngs=nnx.Rngs(seed))
        self.drop = nnx.Dropout(0.3, rngs=nnx.Rngs(seed))
        self.last = nnx.Linear(6, 4, rngs=nnx.Rngs(seed))

    def __call__(self, x):
        return self.last(
            self.drop(nnx.relu(self.norm(self.first(x.reshape(len(x), -1)))))
        )


def flaxen_loss(network, x, labels):
    """The mean of something."""
    return network.nn.mean(network.nn.tanh(network(x)) * (1.0 + labels[:, None]))


def flaxen(seed, share, processes=None):
    """Losses and weights after two updates of a network of flax's own."""
    jax.config.update("jax_enable_x64", True)
    network = backends.wrap(Flaxen(seed))
    network.backend.set_dtype(network, "float64")
    generator = np.random.default_rng(
        seed
    )  # float32 start values of flax's own differ by how they were compiled
    start = {
        name: value + generator.normal(0.0, 0.3, value.shape)
        for name, value in network.neutral_state().items()
    }
    network.load_neutral_state(
        {
            name: np.abs(value) if "var" in name else value
            for name, value in start.items()
        }
    )
    network = (
        network
        if processes is None
        else backends.DistributedDataParallel(network, processes)
    )
    with network.backend.compiling_quickly():
        return steps.updates(
            network, {"clipped": subjects.clipped_sgd}, flaxen_loss, share
        )


def a_share(processes, sizes):
    """Updates alone, of processes of which one may have no sample."""
    with backends.get("jax").compiling_quickly():
        return steps.train(processes, "jax", sizes)


def natives_and_errors(processes, sizes):
    """A network of flax's own, whose streams differ from process to process; and what is
    refused."""
    share = steps.share_of(steps.batch(7), sizes, processes.rank)
    found = flaxen(processes.rank, share, processes)
    subject, network = of_subject(processes)
    x, labels = share
    optimizer = adam(network)
    wide = x if processes.rank else np.concatenate([x, x], axis=-1)
    return found, [
        _refused(lambda: optimizer.update(subject.loss, wide, labels)),
        _refused(lambda: network.backend.gradients(subject.loss, network, *share)),
        _refused(lambda: network(x)),
    ]


def _refused(call):
    try:
        call()
    except DeliralikeError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
