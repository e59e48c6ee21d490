"""What the tests of optimizer steps compare: tiny networks of odd sizes, and native optimizers
behind the interface."""

from functools import cache

import optax

from deliralike import Network, backends
from deliralike.conformance.subject import Subject
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.rules import rule


class Two(Network):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.hidden, self.fc = self.nn.Linear(3, 5), self.nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.nn.relu(self.hidden(x)))


class Laid(Network):
    """Parameters that no two backends lay out alike."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(2, 3, (2, 3))
        self.back = self.nn.ConvTranspose2d(3, 4, (3, 2))
        self.norm = self.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.back(self.conv(x)))


class Large(Network):
    """One parameter is large."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(41, 60, (3, 2))

    def forward(self, x):
        return self.conv(x)


def following(kind, *hooks, **settings):
    """An optimizer of a neutral rule, given by its name or its class, with hooks before the
    update."""

    def make(network):
        chosen = kind(**settings) if isinstance(kind, type) else rule(kind, **settings)
        optimizer = network.backend.optimizer(chosen, network)
        optimizer.pre_update_hooks += hooks
        return optimizer

    return make


LR, BOUND = 0.05, 0.5
OPTIMIZERS = {  # the rule, its hooks and its settings
    "sgd": ("sgd", (), {"lr": LR, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": ("sgd", (), {"lr": LR, "momentum": 0.9, "nesterov": True}),
    "clipped": (
        "sgd",
        (ClipNorm(BOUND),),
        {"lr": LR, "momentum": 0.9, "weight_decay": 0.01},
    ),
    "adam": ("adam", (), {"lr": 0.01, "weight_decay": 0.01}),
    "amsgrad": ("amsgrad", (), {"lr": 0.01}),
    "adamw": ("adamw", (), {"lr": 0.01, "weight_decay": 0.02}),
    "rmsprop": ("rmsprop", (), {"lr": 0.01, "momentum": 0.9}),
    "adagrad": ("adagrad", (), {"lr": 0.01}),
    "adadelta": ("adadelta", (), {"lr": 1.0}),
    "lion": ("lion", (), {"lr": 0.001, "weight_decay": 0.1}),
    "lamb": ("lamb", (), {"lr": 0.01, "weight_decay": 0.01}),
    "radam": ("radam", (), {"lr": 0.01, "weight_decay": 0.02}),
}


def optimizer(name, kind=None, hooks=None, **changes):
    """One of these, perhaps of another kind, with other hooks and other settings."""
    usual, usual_hooks, settings = OPTIMIZERS[name]
    hooks = usual_hooks if hooks is None else hooks
    return following(kind or usual, *hooks, **(settings | changes))


@cache
def right(backend, network=Two):
    """A right subject with all optimizers; nothing changes it."""
    return Subject(
        network.on(backend, dtype="float64")(),
        optimizers={name: optimizer(name) for name in OPTIMIZERS},
    )


def with_optimizers(backend, **optimizers):
    """The same with other optimizers."""
    return right(backend).replace(optimizers=optimizers)


def of_torch(kind, **settings):
    """One of ``torch.optim``."""
    return lambda network: network.backend.wrap_optimizer(
        kind(network.parameters(), **settings), network
    )


def of_chainer(kind, *hooks, **settings):
    """One of ``chainer.optimizers``."""

    def make(network):
        native = kind(**settings)
        native.setup(network)
        for hook in hooks:
            native.add_hook(hook)
        return network.backend.wrap_optimizer(native, network)

    return make


def of_optax(kind, **settings):
    """One of optax's, with a learning rate that can be set."""
    return lambda network: network.backend.wrap_optimizer(
        optax.inject_hyperparams(kind)(**settings), network
    )


get = backends.get
