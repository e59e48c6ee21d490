"""Checks of networks: the neutral state, start values, training mode, copies and pickles."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    dtype_of,
    equal,
    made,
    native,
    refused,
    true,
    values,
)
from deliralike.conformance.suite.nets import (
    SMALL,
    SMALL_BLOCKS,
    SMALL_BUFFERS,
    Contained,
    Dense,
    Small,
    Started,
    Tied,
    dense,
)
from deliralike.errors import ArgumentError, ConstructionError, StateError
from deliralike.network.base import Network
from deliralike.nn.start import Normal, Uniform, draw

_IMAGES = values(3, 2, 5, 4)


def _state(network: Any, seed: int) -> dict[str, np.ndarray]:
    """Random weights for a network."""
    shapes = {name: value.shape for name, value in network.neutral_state().items()}
    return {
        name: np.array(seed) if not shape else np.abs(values(*shape, seed=seed))
        for name, shape in shapes.items()
    }


def _same(what: str, network: Any, state: dict[str, np.ndarray]) -> None:
    for name, value in network.neutral_state().items():
        agree(f"{name} {what}", value, state[name])


@check("networks", "L0")
def names_order_and_shapes(backend: Backend) -> None:
    """Own parameters come first, own buffers second, then blocks in order of creation.

    Names and layouts are PyTorch's.
    """
    slots = made(backend, Small).neutral_slots()
    equal("names of the state, in order", list(slots), list(SMALL))
    equal("shapes", {name: tuple(slot.shape) for name, slot in slots.items()}, SMALL)
    equal(
        "buffers",
        tuple(name for name, slot in slots.items() if not slot.is_parameter),
        SMALL_BUFFERS,
    )
    state = {name: slot.read() for name, slot in slots.items()}
    for name, value in state.items():
        wanted = "int64" if value.shape == () else dtype_of(backend)
        equal(f"the type of {name}", str(value.dtype), wanted)
    equal("the number of parameters", made(backend, Small).count_parameters(), 103)


@check("networks", "L0")
def blocks_and_their_paths(backend: Backend) -> None:
    """`named_blocks` gives the network, then its blocks; each knows its own path."""
    network = made(backend, Small)
    blocks = {
        path: block for path, block in network.named_blocks() if path != "blocks"
    }  # a list may count as one
    equal("paths of blocks", tuple(blocks), SMALL_BLOCKS)
    equal("block_path", [block.block_path for block in blocks.values()], list(SMALL_BLOCKS))
    equal("the device", network.device_name, backend.devices()[0])
    equal("the type", network.dtype_name, dtype_of(backend))
    equal("init_kwargs", made(backend, Small, 3, p=0.5).init_kwargs, {"width": 3, "p": 0.5})


@check("networks", "L0")
def types_of_networks(backend: Backend) -> None:
    """A network of each declared type computes in it."""
    for dtype in (name for name in ("float32", "float64") if name in backend.dtypes):
        network = Dense.on(backend, dtype=dtype)()
        equal(f"dtype_name of a network of {dtype}", network.dtype_name, dtype)
        output = network(backend.array(values(2, 3), dtype=dtype))
        equal(
            f"the type of outputs of a network of {dtype}", str(backend.numpy(output).dtype), dtype
        )
        rough = 1e-10 if dtype == "float64" else 1e-5
        agree(
            f"outputs of a network of {dtype}",
            backend.numpy(output).astype(np.float64),
            dense(
                {name: value.astype(np.float64) for name, value in network.neutral_state().items()},
                values(2, 3),
            ),
            rough,
        )


@check("networks", "L1")
def start_values(backend: Backend) -> None:
    """Drawn on the host, by seed and path: the same numbers as on any other backend."""
    state = made(backend, Started, seed=5).neutral_state()
    dtype = dtype_of(backend)
    wanted = {
        "table": draw(Normal(std=0.5, zero_row=1), (4, 2), 5, "table"),
        "given": np.array([1.5, -2.5]),
        "linear.weight": draw(Uniform(5**-0.5), (3, 5), 5, "linear.weight"),
        "linear.bias": np.full(3, 0.25),
    }
    for name, value in wanted.items():
        agree(f"start value of {name}", state[name], value.astype(dtype), 0.0)
    other = made(backend, Started, seed=6).neutral_state()
    true(
        "another seed gives other start values", not np.array_equal(state["table"], other["table"])
    )
    agree(
        "the start values of seed 5, drawn once more",
        made(backend, Started, seed=5).neutral_state()["table"],
        state["table"],
    )


@check("networks", "L1")
def outputs_of_a_whole_network(backend: Backend) -> None:
    """With loaded weights, as in NumPy."""
    network = made(backend, Dense)
    state = _state(network, 3)
    network.load_neutral_state(state)
    agree(
        "Dense: output",
        backend.numpy(network(native(backend, values(4, 3)))),
        dense(state, values(4, 3)),
    )


@check("networks", "L0")
def reading_and_loading_the_state(backend: Backend) -> None:
    """A state that is read is the caller's own; a loaded one is read back and changes the outputs."""
    network, twin = made(backend, Small, seed=1), made(backend, Small, seed=2)
    state = _state(network, 4)
    report = network.load_neutral_state(state)
    true("everything is loaded", report.complete and set(report.loaded) == set(SMALL))
    _same("after loading", network, state)
    for value in network.neutral_state().values():
        value[...] = 0
    _same("after a change of the arrays that were read", network, state)
    given = {name: value.copy() for name, value in state.items()}
    network.load_neutral_state(given)
    for value in given.values():
        value[...] = 1
    _same("after a change of the arrays that were loaded", network, state)
    twin.load_neutral_state(network.neutral_state())
    x = native(backend, _IMAGES)
    agree(
        "outputs of a network with another's weights",
        backend.numpy(twin.eval()(x)),
        backend.numpy(network.eval()(x)),
        0.0,
    )


@check("networks", "L0")
def weights_that_do_not_fit(backend: Backend) -> None:
    """They are refused, and the network stays as it was."""
    network = made(backend, Small)
    before = network.neutral_state()
    right = _state(network, 5)
    for what, state in {
        "a missing name": {name: value for name, value in right.items() if name != "head.weight"},
        "a name too many": right | {"tail.weight": np.ones(2)},
        "a wrong shape": right | {"stem.weight": np.ones((3, 2, 3, 2))},
    }.items():
        with refused(f"weights with {what}", StateError):
            network.load_neutral_state(state)
        _same(f"after weights with {what}", network, before)
    report = network.load_neutral_state({"head.bias": right["head.bias"]}, strict=False)
    equal("what is loaded of one name, not strictly", report.loaded, ("head.bias",))
    agree("head.bias, loaded alone", network.neutral_state()["head.bias"], right["head.bias"])
    agree("gain, which was not loaded", network.neutral_state()["gain"], before["gain"])


@check("networks", "L0")
def training_mode(backend: Backend) -> None:
    """It holds for every block; `training_mode` gives back what was there before."""
    network = made(backend, Small)
    blocks = dict(network.named_blocks())

    def modes() -> list[bool]:
        return [blocks[path].training for path in SMALL_BLOCKS]

    equal("modes of a new network", modes(), [True] * 9)
    true("eval() gives back the network", network.eval() is network)
    equal("modes after eval()", modes(), [False] * 9)
    network.train()
    blocks["norm"].train(False)
    before = modes()
    with network.training_mode(False):
        equal("modes within training_mode(False)", modes(), [False] * 9)
    equal("modes after training_mode(False)", modes(), before)


@check("networks", "L1")
def buffers_follow_assignments(backend: Backend) -> None:
    """An array that a forward pass assigns to a buffer becomes its value, in the buffer's type."""
    network = made(backend, Small)
    for count in (1, 2):
        network(native(backend, _IMAGES))
        agree(
            f"the buffer 'calls' after {count} calls",
            network.neutral_state()["calls"],
            np.array(count),
        )
    with backend.evaluating():
        network.eval()(native(backend, _IMAGES))
    agree(
        "the buffer 'calls' after one more call in evaluation",
        network.neutral_state()["calls"],
        np.array(3),
    )


def _a_copy(backend: Backend, copy: Any, original: Any) -> None:
    """It has the same weights, modes and outputs, and shares nothing."""
    state = original.neutral_state()
    equal("names of a copy, in order", list(copy.neutral_state()), list(SMALL))
    _same("of a copy", copy, state)
    frozen = [
        name
        for name, slot in copy.neutral_slots().items()
        if slot.is_parameter and not slot.trainable
    ]
    equal("the frozen parameters of a copy", frozen, ["stem.weight"])
    true("a copy is in evaluation mode as well", not copy.training)
    equal("init_kwargs of a copy", copy.init_kwargs, original.init_kwargs)
    x = native(backend, _IMAGES)
    agree("outputs of a copy", backend.numpy(copy(x)), backend.numpy(original(x)), 0.0)
    copy.load_neutral_state(_state(copy, 6))
    original_now = original.neutral_state()
    agree(
        "weights of the original after its copy has changed",
        original_now["stem.weight"],
        state["stem.weight"],
        0.0,
    )


def _original(backend: Backend) -> Any:
    network = made(backend, Small, seed=3)
    network(native(backend, _IMAGES))
    network.set_trainable("stem.*", False)
    return network.eval()


@check("networks", "L0", "registered")
def copies(backend: Backend) -> None:
    """Check `copy.deepcopy`, which uses the backend's registered name unless the backend differs."""
    original = _original(backend)
    _a_copy(backend, deepcopy(original), original)


@check("networks", "L0", "registered")
def pickles(backend: Backend) -> None:
    """By the class as written and the backend's registered name."""
    original = _original(backend)
    _a_copy(backend, pickle.loads(pickle.dumps(original)), original)


@check("networks", "L0")
def containers(backend: Backend) -> None:
    """Names by position or key, in the order in which blocks were given."""
    network = made(backend, Contained)
    names = ["body.0.weight", "body.0.bias", "body.2.0.weight", "heads.b.weight", "heads.a.weight"]
    equal("names", list(network.neutral_state()), names)
    state = _state(network, 2)
    network.load_neutral_state(state)
    hidden = np.tanh(values(4, 3) @ state[names[0]].T + state[names[1]])
    wanted = hidden @ state[names[2]].T @ state[names[4]].T
    agree("outputs", backend.numpy(network(native(backend, values(4, 3)))), wanted)


@check("networks", "L0")
def tied_parameters(backend: Backend) -> None:
    """A parameter under two names is in the state twice, counts once, and sums both gradients."""
    network = made(backend, Tied)
    table, index = values(4, 3), np.array([0, 2, 2])
    slots = network.neutral_slots()
    equal("names", list(slots), ["table.weight", "head.weight"])
    true(
        "both names have the same native parameter",
        slots["table.weight"].native is slots["head.weight"].native,
    )
    equal("the number of parameters", network.count_parameters(), 12)
    network.load_neutral_state({"table.weight": table})
    agree("head.weight after loading table.weight", network.neutral_state()["head.weight"], table)
    found = backend.gradients(lambda net, i: net.nn.sum(net(i)), network, index).parameters
    wanted = table[index].sum(0) * np.ones((4, 1))
    np.add.at(wanted, index, table.sum(0))
    agree("gradient of table.weight", found["table.weight"], wanted)


@check("networks", "L0", "registered", "changes of type")
def copies_in_another_type(backend: Backend) -> None:
    """`in_dtype` gives a copy with the same values, rounded; the network stays as it is."""
    network = made(backend, Small)
    before, twin = network.neutral_state(), backend.in_dtype(network, "float32")
    equal("dtype_name of the copy", twin.dtype_name, "float32")
    equal(
        "the type of num_batches_tracked",
        str(twin.neutral_state()["norm.num_batches_tracked"].dtype),
        "int64",
    )
    for name, value in before.items():
        agree(f"{name} of the copy", twin.neutral_state()[name].astype(value.dtype), value, 1e-7)
    equal("dtype_name of the network", network.dtype_name, dtype_of(backend))


@check("networks", "L0")
def calls_of_blocks_are_followed(backend: Backend) -> None:
    """`called_through` shows each block's call and can replace its output, in gradients as well."""
    network, seen = made(backend, Dense), []

    def around(path: str, block: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        seen.append(path)
        y = call(*args, **kwargs)
        return y * 2.0 if path == "second" else y

    x = values(4, 3)
    with backend.called_through(network, around):
        doubled = backend.numpy(network(native(backend, x)))
    equal("blocks in the order of their calls", seen, ["", "first", "second"])
    agree("outputs with a block's doubled", doubled, 2.0 * dense(network.neutral_state(), x))
    agree(
        "outputs afterwards",
        backend.numpy(network(native(backend, x))),
        dense(network.neutral_state(), x),
    )

    def loss(net: Any, at: Any) -> Any:
        with backend.called_through(net, around):
            return net.nn.sum(net(at))

    found = backend.gradients(loss, network, x).parameters["second.bias"]
    agree("gradient of second.bias with its block's output doubled", found, np.full(3, 8.0))


@check("networks", "L0")
def abstract_and_native(backend: Backend) -> None:
    """Networks written once are native ones, and wrapping one changes nothing."""
    network = made(backend, Dense)
    true("a network written once is native", backend.is_native(network))
    true("an array is no network", not backend.is_native(native(backend, _IMAGES)))
    equal(
        "names of a wrapped network",
        list(backend.wrap(network).neutral_state()),
        list(network.neutral_state()),
    )
    wrapped: Any = backend.wrap(network)
    x = native(backend, values(4, 3))
    agree("outputs of a wrapped network", backend.numpy(wrapped(x)), backend.numpy(network(x)))
    equal(
        "to_numpy of a nest",
        [type(x) for x in backend.to_numpy([native(backend, _IMAGES), None])],
        [np.ndarray, type(None)],
    )


class _Overlooked(Network):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [self.nn.Linear(2, 2)]


@check("networks", "L7")
def mistakes_in_building(backend: Backend) -> None:
    """A plain list of layers, and an argument that there is none of, are refused."""
    with refused("a plain list of layers", ConstructionError):
        made(backend, _Overlooked)
    with refused("an unknown argument", ArgumentError):
        made(backend, Small, widht=3)
