"""Training loops as a user of each framework writes them, over networks in several processes."""

import jax
import numpy as np
import optax
import torch
from flax import nnx
from torch.nn import functional as F

from deliralike import DistributedDataParallel, FullyShardedDataParallel, in_replicas
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import CapabilityError
from deliralike.parallel import LocalSGD, SingleProcess

SIZES = 4, 3  # of the two processes
KEPT = []
L, F_ = chainer.links, chainer.functions


def shares(processes, *arrays):
    """This process's rows; all of them for one that is alone."""
    begin = sum(SIZES[: processes.rank])
    rows = (
        slice(begin, begin + SIZES[processes.rank])
        if processes.count > 1
        else slice(None)
    )
    return [array[rows] for array in arrays]


def images(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(7, 5)), rng.integers(0, 3, 7)


def of_torch(processes, seed=0):
    return [torch.from_numpy(each) for each in shares(processes, *images(seed))]


def kept(network):
    KEPT.append(network)
    return network


# PyTorch
# -----------------------------------------------------------------------------


def perceptron(seed=3, into=3, norm=torch.nn.BatchNorm1d):
    torch.manual_seed(seed)
    layers = torch.nn.Linear(5, 7), norm(7), torch.nn.Tanh(), torch.nn.Linear(7, into)
    return torch.nn.Sequential(*layers).double()


def over(processes, wrapper, module):
    if processes.count == 1:
        return module
    if wrapper == "sharded":
        return kept(FullyShardedDataParallel(module, processes))
    in_backward = {} if wrapper == "in backward" else None
    return kept(DistributedDataParallel(module, processes, in_backward=in_backward))


def weights(module):
    state = (
        module.neutral_state()
        if hasattr(module, "neutral_state")
        else module.state_dict()
    )
    return {
        name: np.asarray(value, np.float64).tolist() for name, value in state.items()
    }


def tutorial(processes, wrapper):
    """PyTorch's first tutorial, with clipping and a term of the weights."""
    net = over(processes, wrapper, perceptron())
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.5, momentum=0.9, weight_decay=0.1
    )
    x, y = of_torch(processes)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        if wrapper != "sharded":  # whose weights are parts
            loss = loss + 0.1 * sum(p.square().sum() for p in net.parameters())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.2)
        optimizer.step()
    return weights(net)


def several_passes(processes, wrapper):
    """Two backward passes for one step, of which one may be in a ``no_sync`` block."""
    net = over(processes, wrapper, perceptron())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for step in range(4):
        optimizer.zero_grad()
        x, y = of_torch(processes, step)
        if step % 2 and processes.count > 1 and wrapper != "sharded":
            with net.no_sync():
                F.cross_entropy(net(x), y).backward()
        else:
            F.cross_entropy(net(x), y).backward()
        x, y = of_torch(processes, step + 7)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return weights(net)


def adversaries(processes, wrapper):
    """A critic, and a generator that is trained through it; both are wrapped."""
    generator = over(processes, wrapper, perceptron(1, 5))
    critic = over(processes, wrapper, perceptron(2, 1, torch.nn.LayerNorm))
    for_generator, for_critic = (
        torch.optim.SGD(each.parameters(), lr=0.3) for each in (generator, critic)
    )
    real, _ = of_torch(processes, 1)
    noise, _ = of_torch(processes, 2)
    for _ in range(2):
        for_critic.zero_grad()
        (
            F.softplus(-critic(real)).mean()
            + F.softplus(critic(generator(noise).detach())).mean()
        ).backward()
        for_critic.step()
        for_generator.zero_grad()
        F.softplus(-critic(generator(noise))).mean().backward()
        for_generator.step()
    return {"generator": weights(generator), "critic": weights(critic)}


def by_denominator(processes, wrapper):
    """A loss with a denominator, called by hand."""
    net = over(processes, wrapper, perceptron())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    importance = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)

    def summed(net, x, y):
        return F.cross_entropy(net(x), y, importance, reduction="sum"), importance[
            y
        ].sum()

    def mean(net, x, y):
        return F.cross_entropy(net(x), y, importance)

    criterion = mean if processes.count == 1 else in_replicas(summed, "denominator")
    for step in range(3):
        optimizer.zero_grad()
        criterion(net, *of_torch(processes, step)).backward()
        optimizer.step()
    return weights(net)


def in_evaluation(processes, wrapper):
    """Fine-tuning with the statistics of batch normalisation held, and a gradient penalty, with
    equal shares."""
    net = over(processes, wrapper, perceptron()).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    rows = (
        slice(None, 6)
        if processes.count == 1
        else slice(3 * processes.rank, 3 * processes.rank + 3)
    )
    x, y = (torch.from_numpy(each[rows]) for each in images())
    for _ in range(2):
        optimizer.zero_grad()
        at = x.clone().requires_grad_()
        scores, penalty = net(at), 0.0
        if wrapper != "sharded":
            (slope,) = torch.autograd.grad(scores.square().sum(), at, create_graph=True)
            penalty = slope.square().mean()
        (F.cross_entropy(scores, y) + penalty).backward()
        optimizer.step()
    return weights(net)


LOOPS = {
    each.__name__: each
    for each in (tutorial, several_passes, adversaries, by_denominator, in_evaluation)
}
REFUSED_BY_SHARDED = ("by_denominator",)


def on_torch(processes, wrappers):
    """What each loop leaves with each wrapper."""
    return {wrapper: _loops(processes, wrapper) for wrapper in wrappers}


def _loops(processes, wrapper):
    names = [
        name for name in LOOPS if wrapper != "sharded" or name not in REFUSED_BY_SHARDED
    ]
    return {name: LOOPS[name](processes, wrapper) for name in names}


def alone(wrapper):
    return on_torch(SingleProcess(), [wrapper])[wrapper]


def refused_on_torch(processes):
    """What is said of loops that would give processes different weights."""
    averaged = kept(
        DistributedDataParallel(perceptron(), processes, averaging=LocalSGD(every=2))
    )
    plain = kept(DistributedDataParallel(perceptron(), processes))
    x, y = of_torch(processes)
    said = [_said(lambda: F.cross_entropy(averaged(x), y).backward())]
    if processes.rank == 1:
        with plain.empty_share():
            said.append(plain(x))
    else:
        said.append(_said(lambda: F.cross_entropy(plain(x), y).backward()))
    return said


def _said(call):
    try:
        call()
    except CapabilityError as error:
        return str(error)


# Chainer
# -----------------------------------------------------------------------------


def perceptron_of_chainer(seed=3, into=3):
    np.random.seed(seed)
    with chainer.using_config("dtype", np.float64):
        layers = L.Linear(5, 7), L.BatchNormalization(7), F_.tanh, L.Linear(7, into)
        return chainer.Sequential(*layers)


def refused_on_chainer(processes):
    """A backward pass, an update of an optimizer over a classifier, and one in evaluation."""
    net = kept(DistributedDataParallel(perceptron_of_chainer(), processes))
    classifier = L.Classifier(net)
    optimizer = chainer.optimizers.MomentumSGD(lr=0.5).setup(classifier)
    x, y = shares(processes, *images())
    labels = y.astype(np.int32)
    return [
        _said(lambda: F_.softmax_cross_entropy(net(x), labels).backward()),
        _said(lambda: optimizer.update(classifier, x, labels)),
        _said(lambda: F_.sum(net.eval()(x)).backward()),
    ]


# JAX
# -----------------------------------------------------------------------------


def refused_on_jax(processes):
    """What is said of a step by flax's own optimizer, in training and in evaluation mode."""
    (x,) = shares(processes, images()[0].astype(np.float32))
    return [_flax_step(_over_in_flax(processes, each), x) for each in (True, False)]


def _over_in_flax(processes, training):
    layers = (
        nnx.Linear(5, 6, rngs=nnx.Rngs(0)),
        nnx.tanh,
        nnx.Linear(6, 4, rngs=nnx.Rngs(1)),
    )
    network = DistributedDataParallel(
        nnx.Sequential(*layers), processes, buffers="root"
    )
    return kept(network).train(training)


def _flax_step(network, x):
    optimizer = nnx.Optimizer(network, optax.sgd(0.1), wrt=nnx.Param)

    def step():
        _, gradients = nnx.value_and_grad(lambda network: (network(x) ** 2).mean())(
            network
        )
        optimizer.update(network, gradients)

    return _said(step)


def evaluated_on_jax(processes):
    """Whether evaluation in a compiled program of the user's is still possible, and equal to that
    outside of it."""
    network = _over_in_flax(processes, False)
    x = images()[0].astype(np.float32)
    return float(
        abs(
            nnx.jit(lambda network, x: network(x))(network, x)
            - network(jax.numpy.asarray(x))
        ).max()
    )
