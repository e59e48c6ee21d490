"""Checks of randomness: portable masks to the bit, native ones by their share, and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike import random
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    build_network,
    output,
    true,
    values,
)

_X = values(4, 3, 2, 5)
# The shapes of the input and of the mask: some layers drop whole channels, or all of a sample.
_MASKED = {
    "Dropout": ((4, 3, 2, 5), (4, 3, 2, 5)),
    "Dropout1d": ((4, 3, 2), (4, 3, 1)),
    "Dropout2d": ((4, 3, 2, 5), (4, 3, 1, 1)),
    "Dropout3d": ((4, 3, 2, 2, 2), (4, 3, 1, 1, 1)),
    "DropPath": ((4, 3, 2, 5), (4, 1, 1, 1)),
}


@check("chance", "L1")
def portable_masks(backend: Backend) -> None:
    """Masks within `random.portable` are those of `deliralike.random.keep_mask`, also backward.

    What is kept is scaled up.
    """
    for kind, (of_input, shape) in _MASKED.items():
        network, x = build_network(backend, kind, 0.3), values(*of_input)
        for step in (0, 7):
            scale = random.keep_mask(5, "", step, 0, shape, 0.3) / 0.7
            with random.portable(seed=5, step=step):
                agree(f"{kind} at step {step}", output(backend, network, x), x * scale)
                found = backend.gradients(
                    lambda net, at: net.nn.sum(net(at)), network, x
                )
            wanted = np.broadcast_to(scale, x.shape)
            agree(f"gradient through {kind} at step {step}", found.inputs[0], wanted)


@check("chance", "L1")
def portable_masks_of_samples(backend: Backend) -> None:
    """Each sample has its own mask, wherever in the batch it is."""
    network = build_network(backend, "Dropout", 0.3)
    with random.portable(seed=5, step=1):
        whole = output(backend, network, _X)
    with random.portable(seed=5, step=1, first_sample=2):
        share = output(backend, network, _X[2:])
    agree("the masks of a share that begins with sample 2", share, whole[2:])


@check("chance", "L1")
def native_masks(backend: Backend) -> None:
    """Masks outside of `random.portable` keep the declared share, scale it, and never repeat."""
    ones, network = np.ones((40, 100)), build_network(backend, "Dropout", 0.3)
    first, second = output(backend, network, ones), output(backend, network, ones)
    mask = first != 0.0
    agree("what is kept", first, mask / 0.7)
    share = mask.mean()
    true(f"about 0.7 of 4000 elements are kept, not {share}", abs(share - 0.7) < 0.036)
    true("two calls draw two masks", not np.array_equal(first, second))


@check("chance", "L1")
def several_draws(backend: Backend) -> None:
    """A layer that is called twice in a loss draws twice; the loss anew draws the same.

    So do its steps within `scan`, each time.
    """

    def loss(net: Any, at: Any) -> Any:
        rows = [net(at), net(at)]
        _, scanned = net.nn.scan(lambda carry, row: (carry, net(row)), at[0], at)
        return net.nn.sum(net.nn.stack([*rows, scanned]) * 2.0)

    network = build_network(backend, "Dropout", 0.3)
    shape = (4, 3, 2)
    masks = [
        random.keep_mask(5, "", 1, 0, sizes, 0.3, draw).astype("float64")
        for draw, sizes in enumerate((shape, shape, shape[1:]))
    ]
    wanted = (masks[0] + masks[1] + masks[2]) / 0.35
    for attempt in ("first", "second"):
        with random.portable(seed=5, step=1):
            found = backend.gradients(loss, network, values(*shape))
            again = backend.gradients(loss, network, values(*shape))
        for gradients in (found, again):
            agree(f"gradient, {attempt} block", gradients.inputs[0], wanted)


@check("chance", "L1")
def portable_noise(backend: Backend) -> None:
    """Noise within `random.portable` is that of `deliralike.random.noise`, in both modes.

    No gradient goes through it.
    """
    for layer, kind in (("NormalNoise", "normal"), ("UniformNoise", "uniform")):
        for training in (True, False):
            network = build_network(backend, layer).train(training)
            with random.portable(seed=5, step=7, first_sample=3):
                found = output(backend, network, _X)
                slopes = backend.gradients(
                    lambda net, at: net.nn.sum(net(at) * at), network, _X
                )
            wanted = random.noise(5, "", 7, 3, _X.shape, kind)
            agree(layer, found, wanted)
            agree(f"gradient of an array times {layer}", slopes.inputs[0], wanted)


@check("chance", "L1")
def native_noise(backend: Backend) -> None:
    """Noise outside of `random.portable` has its mean and variance, and never repeats."""
    ones = np.ones((40, 100))
    for layer, mean, variance in (
        ("NormalNoise", 0.0, 1.0),
        ("UniformNoise", 0.5, 1.0 / 12.0),
    ):
        network = build_network(backend, layer)
        first, second = output(backend, network, ones), output(backend, network, ones)
        # five standard errors of 4000 numbers
        off = abs(first.mean() - mean) / np.sqrt(variance / 4000)
        true(f"the mean of {layer} is {mean}, not {first.mean():.3g}", off < 5.0)
        ratio = first.var() / variance
        true(
            f"the variance of {layer} is {ratio:.3g} of what it is", 0.85 < ratio < 1.15
        )
        true(f"two calls of {layer} differ", not np.array_equal(first, second))


@check("chance", "L1")
def evaluation_draws_nothing(backend: Backend) -> None:
    """Dropout passes its input on in evaluation; so it does with p=0, and gives zeros with p=1."""
    for what, network, wanted in (
        ("in evaluation", build_network(backend, "Dropout", 0.3).eval(), _X),
        ("with p=0", build_network(backend, "Dropout", 0.0), _X),
        ("with p=1", build_network(backend, "Dropout", 1.0), np.zeros(_X.shape)),
    ):
        agree(f"Dropout {what}", output(backend, network, _X), wanted)


@check("chance", "L1")
def seeds(backend: Backend) -> None:
    """The same seed gives the same masks, another one others."""
    network, drawn = build_network(backend, "Dropout", 0.3), []
    for seed in (3, 3, 4):
        backend.seed(seed)
        drawn.append(output(backend, network, _X))
    agree("masks of the same seed", drawn[1], drawn[0])
    true("another seed draws other masks", not np.array_equal(drawn[2], drawn[0]))


@check("chance", "L1", "random state")
def states_of_generators(backend: Backend) -> None:
    """From a state that was kept the masks go on as they did."""
    network = build_network(backend, "Dropout", 0.3)
    state = backend.random_state(network)
    first = [output(backend, network, _X) for _ in range(2)]
    backend.load_random_state(network, state)
    for mask in first:
        agree("a mask from a state that was kept", output(backend, network, _X), mask)
