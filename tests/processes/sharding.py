"""What the processes of the tests do: steps of networks that are spread over them."""

from deliralike import FullyShardedDataParallel
from deliralike.clipping import ClipNorm
from deliralike.conformance.planted import replicas as planted
from deliralike.rules import rule
from tests.processes import steps

RULES = {
    "adamw": lambda: rule("adamw", lr=0.01, weight_decay=0.1),
    "lamb": lambda: rule("lamb", lr=0.01, weight_decay=0.1),
}


def _made(kind):
    def make(network):
        groups = {"*.bias": {"weight_decay": 0.0}}
        optimizer = network.backend.optimizer(RULES[kind](), network, groups=groups)
        optimizer.pre_update_hooks.append(ClipNorm(0.05))
        return optimizer

    return make


OPTIMIZERS = {"clipped sgd": planted.clipped_sgd} | {kind: _made(kind) for kind in RULES}


def train(processes, sizes, keywords):
    """The updates of one of several processes."""
    subject = planted.subject("torch")
    network = FullyShardedDataParallel(subject.network, processes, **keywords)
    steps.KEPT.append(network)
    share = steps.share_of(steps.batch(sum(sizes)), sizes, processes.rank)
    sits_out = None if sizes[processes.rank] else True
    return steps.updates(network, OPTIMIZERS, subject.loss, share, sits_out)


def alone(samples):
    subject = planted.subject("torch")
    return steps.updates(subject.network, OPTIMIZERS, subject.loss, steps.batch(samples))
