"""Checks of randomness: portable masks to the bit, native ones by their share, and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike import random
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import agree, made, native, true, values
from deliralike.conformance.suite.nets import Dropped

_X = values(4, 3, 2, 5)
# The shape of the input, and of the mask: some layers drop whole channels, or all of a sample.
_MASKED = {
    "Dropout": ((4, 3, 2, 5), (4, 3, 2, 5)),
    "Dropout1d": ((4, 3, 2), (4, 3, 1)),
    "Dropout2d": ((4, 3, 2, 5), (4, 3, 1, 1)),
    "Dropout3d": ((4, 3, 2, 2, 2), (4, 3, 1, 1, 1)),
    "DropPath": ((4, 3, 2, 5), (4, 1, 1, 1)),
}


def _output(backend: Backend, network: Any, x: np.ndarray) -> np.ndarray:
    return backend.numpy(network(native(backend, x)))


@check("chance", "L1")
def portable_masks(backend: Backend) -> None:
    """Masks within `random.portable` are those of `deliralike.random.keep_mask`.

    What is kept is scaled up.
    """
    for kind, (of_input, shape) in _MASKED.items():
        network, x = made(backend, Dropped, 0.3, kind), values(*of_input)
        for step in (0, 7):
            mask = random.keep_mask(5, "drop", step, 0, shape, 0.3)
            with random.portable(seed=5, step=step):
                agree(f"{kind} at step {step}", _output(backend, network, x), x * mask / 0.7)


@check("chance", "L1")
def portable_masks_of_samples(backend: Backend) -> None:
    """Each sample has its own mask, wherever in the batch it is."""
    network = made(backend, Dropped)
    with random.portable(seed=5, step=1):
        whole = _output(backend, network, _X)
    with random.portable(seed=5, step=1, first_sample=2):
        agree(
            "the masks of a share that begins with sample 2",
            _output(backend, network, _X[2:]),
            whole[2:],
        )


@check("chance", "L1")
def gradient_of_dropout(backend: Backend) -> None:
    """The mask of backward is the one of forward."""
    mask = random.keep_mask(5, "drop", 0, 0, _X.shape, 0.3)
    with random.portable(seed=5):
        found = backend.gradients(
            lambda net, x: net.nn.sum(net(x)), made(backend, Dropped), _X
        ).inputs[0]
    agree("gradient through Dropout", found, mask / 0.7)


@check("chance", "L1")
def native_masks(backend: Backend) -> None:
    """Masks outside of `random.portable` keep the declared share, scale it, and never repeat."""
    ones, network = np.ones((40, 100)), made(backend, Dropped)
    first, second = _output(backend, network, ones), _output(backend, network, ones)
    kept = first[first != 0.0]
    agree("what is kept", kept, np.full(len(kept), 1.0 / 0.7))
    share = len(kept) / first.size
    true(
        f"about 0.7 of 4000 elements are kept, not {share}",
        abs(share - 0.7) < 5 * (0.21 / first.size) ** 0.5,
    )
    true("two calls draw two masks", not np.array_equal(first, second))


@check("chance", "L1")
def evaluation_draws_nothing(backend: Backend) -> None:
    """Dropout passes its input on in evaluation; so it does with p=0, and gives zeros with p=1."""
    agree("Dropout in evaluation", _output(backend, made(backend, Dropped).eval(), _X), _X)
    agree("Dropout with p=0", _output(backend, made(backend, Dropped, 0.0), _X), _X)
    agree("Dropout with p=1", _output(backend, made(backend, Dropped, 1.0), _X), np.zeros_like(_X))


@check("chance", "L1")
def seeds(backend: Backend) -> None:
    """The same seed gives the same masks, another one others."""

    def drawn(seed: int) -> np.ndarray:
        backend.seed(seed)
        return _output(backend, made(backend, Dropped), _X)

    first = drawn(3)
    agree("masks of the same seed", drawn(3), first)
    true("another seed draws other masks", not np.array_equal(drawn(4), first))


@check("chance", "L1", "random state")
def states_of_generators(backend: Backend) -> None:
    """From a state that was kept the masks go on as they did."""
    network = made(backend, Dropped)
    state = backend.random_state(network)
    first = [_output(backend, network, _X) for _ in range(2)]
    backend.load_random_state(network, state)
    agree(
        "masks from a state that was kept",
        np.stack([_output(backend, network, _X) for _ in range(2)]),
        np.stack(first),
    )
