"""What the tests of replicated networks compute with: devices, small networks, batches, and watched
training runs."""

import numpy as np

from deliralike import DataParallel, Network, random
from deliralike.optim.rules import rule
from tests.arrays import same_named


def devices(backend, count):
    """As many devices: different ones where the backend has them, else the default one again and
    again."""
    present = backend.devices()
    return [
        present[index] if index < len(present) else present[0] for index in range(count)
    ]


def device_of(backend, array):
    """The name of the device that holds an array."""
    if backend.name == "jax":
        from deliralike.backends.jax.arrays import name_of_device

        return name_of_device(array)
    if backend.name == "chainer":
        import chainer

        return str(
            chainer.backend.get_device_from_array(getattr(array, "array", array))
        )
    return str(array.device)


def images_of(samples, seed=5):
    """Images of odd sizes and labels."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 2, 5, 7)), rng.integers(0, 4, samples)


def batch_of(samples, seed=5):
    """Vectors of three numbers and labels."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 3)), rng.integers(0, 4, samples)


class Convolutional(Network):
    """Stride 2, batch normalisation, dropout, linear."""

    def __init__(self, p=0.3):
        super().__init__()
        nn = self.nn
        self.conv = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(3)
        self.dropout = nn.Dropout(p)
        self.fc = nn.Linear(3 * 3 * 4, 4)

    def forward(self, x):
        nn = self.nn
        return self.fc(self.dropout(nn.flatten(nn.relu(self.bn(self.conv(x))))))


class Small(Network):
    """The same on vectors, which compiles in less time."""

    def __init__(self, p=0.3, norm=True):
        super().__init__()
        nn = self.nn
        self.first = nn.Linear(3, 4, bias=False)
        self.bn = nn.BatchNorm1d(4) if norm else nn.Identity()
        self.dropout = nn.Dropout(p)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(self.dropout(self.nn.relu(self.bn(self.first(x)))))


class Dense(Network):
    """A linear layer, and a parameter that takes no part."""

    def __init__(self, inputs=3, outputs=2):
        super().__init__()
        self.fc = self.nn.Linear(inputs, outputs)
        self.unused = self.nn.Linear(2, 1)

    def forward(self, x):
        return self.fc(x)


def built(backend, network=Small, *args, dtype="float64", **kwargs):
    return network.on(backend, seed=3, dtype=dtype)(*args, **kwargs)


def replicated(
    backend, count, *args, settings=None, network=Small, places=None, **kwargs
):
    """The same network as `built`, over so many replicas."""
    return DataParallel(
        built(backend, network, *args, **kwargs),
        places or devices(backend, count),
        **settings or {},
    )


def optimizer_of(network, name="sgd", **numbers):
    settings = {
        "sgd": {"lr": 0.1, "momentum": 0.9},
        "adam": {"lr": 0.01},
        "adamw": {"lr": 0.01, "weight_decay": 0.1},
    }
    return network.backend.optimizer(rule(name, **(settings[name] | numbers)), network)


def native_sgd(network):
    """Each framework's own SGD with momentum."""
    if network.backend.name == "torch":
        import torch

        return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    if network.backend.name == "chainer":
        import chainer

        return chainer.optimizers.MomentumSGD(lr=0.1, momentum=0.9)
    import optax

    return optax.sgd(0.1, momentum=0.9)


def watch_gradients(optimizer):
    """A list that gets every update's gradients, as the pre-update hooks before this one leave
    them."""
    seen, backend = [], optimizer.network.backend

    def keep(gradients):
        seen.append(
            {
                name: None if each is None else backend.numpy(each)
                for name, each in gradients.items()
            }
        )

    def hook(optimizer, gradients):
        if backend.name == "jax":  # hooks are traced
            import jax

            jax.debug.callback(keep, gradients)
        else:
            keep(gradients)
        return gradients

    optimizer.pre_update_hooks.append(hook)
    return seen


def wait_for_callbacks(backend):
    """JAX calls back when it comes to it."""
    if backend.name == "jax":
        import jax

        jax.effects_barrier()


def train(network, loss, batches, name="sgd", seed=7, **numbers):
    """Losses, gradients and the state after each step of one run in portable mode."""
    optimizer = optimizer_of(network, name, **numbers)
    gradients, losses, states = watch_gradients(optimizer), [], []
    for step, batch in enumerate(batches):
        with random.portable(seed, step):
            result = optimizer.update(loss, *batch)
        losses.append(
            float(
                network.backend.numpy(
                    result[0] if isinstance(result, tuple) else result
                )
            )
        )
        states.append(network.neutral_state())
    wait_for_callbacks(network.backend)
    return {"losses": losses, "gradients": gradients, "states": states}


def same_runs(found, wanted, tolerance=1e-12):
    """Two runs agree in every loss, gradient, parameter and buffer of every step."""
    np.testing.assert_allclose(
        found["losses"], wanted["losses"], rtol=tolerance, atol=tolerance
    )
    for what in ("gradients", "states"):
        assert len(found[what]) == len(wanted[what])
        for step, (mine, other) in enumerate(
            zip(found[what], wanted[what], strict=True)
        ):
            same_named(mine, other, tolerance, f"{what} of step {step}")


class Torn(Exception):
    """An exception that cannot be made again from its message."""

    def __init__(self, layer, wanted, came):
        super().__init__(f"{layer}: wanted {wanted}, came {came}")
        self.layer, self.wanted, self.came = layer, wanted, came
