"""Checks of networks: the neutral state, start values, training mode, copies and pickles."""

from __future__ import annotations

import gc
import pickle
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Tensors
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    agree_all,
    build_network,
    dtype_of,
    equal,
    equal_all,
    native,
    output,
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
    Drifting,
    Moving,
    Overlooked,
    Remembering,
    Setting,
    Small,
    Started,
    Tied,
    dense,
)
from deliralike.errors import ConstructionError
from deliralike.nn.start import Normal, Uniform, draw

_IMAGES, _X = values(3, 2, 5, 4), values(4, 3)


def _weights(network: Any, seed: int) -> Tensors:
    """Random weights for a network, of which none is negative."""
    found = {}
    for name, slot in network.neutral_slots().items():
        found[name] = np.array(seed)
        if slot.shape:
            found[name] = np.abs(values(*slot.shape, seed=seed))
    return found


def _same_outputs(backend: Backend, what: str, network: Any, other: Any) -> None:
    found, wanted = output(backend, network, _IMAGES), output(backend, other, _IMAGES)
    agree(f"outputs with {what}", found, wanted, 0.0)


def _total(network: Any, x: Any) -> Any:
    return network.nn.sum(network(x))


@check("networks", "L0")
def names_order_and_shapes(backend: Backend) -> None:
    """Own parameters come first, own buffers second, then blocks in order of creation.

    Names and layouts are PyTorch's.
    """
    network, dtype = build_network(backend, Small), dtype_of(backend)
    found, wanted = {}, {}
    for name, slot in network.neutral_slots().items():
        value = slot.read()
        found[name] = (
            tuple(slot.shape),
            value.shape,
            str(value.dtype),
            slot.is_parameter,
        )
    for name, shape in SMALL.items():
        wanted[name] = (
            shape,
            shape,
            dtype if shape else "int64",
            name not in SMALL_BUFFERS,
        )
    equal_all(
        "the shape, the value's shape and type, and if it is a parameter", found, wanted
    )
    equal("the number of parameters", network.count_parameters(), 103)


@check("networks", "L0")
def blocks_and_their_paths(backend: Backend) -> None:
    """`named_blocks` gives the network, then its blocks; each knows its own path."""
    network = build_network(backend, Small, 3, p=0.5)
    # a list may count as a block
    paths = {
        path: block.block_path
        for path, block in network.named_blocks()
        if path != "blocks"
    }
    equal_all("the path of a block", paths, {path: path for path in SMALL_BLOCKS})
    about = network.device_name, network.dtype_name, network.init_kwargs
    wanted = backend.devices()[0], dtype_of(backend), {"width": 3, "p": 0.5}
    equal("the device, the type and init_kwargs", about, wanted)


@check("networks", "L1")
def start_values(backend: Backend) -> None:
    """Drawn on the host, by seed and path: the same numbers as on any other backend."""
    for seed in (5, 6, 5):
        wanted = {
            "table": draw(Normal(std=0.5, zero_row=1), (4, 2), seed, "table"),
            "given": np.array([1.5, -2.5]),
            "linear.weight": draw(Uniform(5**-0.5), (3, 5), seed, "linear.weight"),
            "linear.bias": np.full(3, 0.25),
        }
        rounded = {
            name: value.astype(dtype_of(backend)) for name, value in wanted.items()
        }
        agree_all(
            "at the start",
            build_network(backend, Started, seed=seed).neutral_state(),
            rounded,
            0.0,
        )


@check("networks", "L0")
def reading_and_loading_the_state(backend: Backend) -> None:
    """A state that is read is the caller's own; a loaded one is read back and changes the outputs."""
    network, twin = (
        build_network(backend, Small, seed=1),
        build_network(backend, Small, seed=2),
    )
    state = _weights(network, 4)
    given = deepcopy(state)
    report = network.load_neutral_state(given)
    true("everything is loaded", report.complete and set(report.loaded) == set(SMALL))
    read = network.neutral_state()
    agree_all("after loading", read, state)
    for value in (*read.values(), *given.values()):
        value[...] = 0
    found = network.neutral_state()
    agree_all("after a change of the arrays that were loaded or read", found, state)
    twin.load_neutral_state(found)
    _same_outputs(backend, "another's weights", twin.eval(), network.eval())


@check("networks", "L0")
def training_mode(backend: Backend) -> None:
    """It holds for every block; `training_mode` gives back what was there before."""
    network = build_network(backend, Small)
    blocks = dict(network.named_blocks())
    wanted = dict.fromkeys(SMALL_BLOCKS, True)

    def follow(what: str) -> None:
        found = {path: blocks[path].training for path in SMALL_BLOCKS}
        equal_all(f"training, {what}", found, wanted)

    follow("when it is new")
    true("eval() gives back the network", network.eval() is network)
    wanted = dict.fromkeys(SMALL_BLOCKS, False)
    follow("after eval()")
    network.train()
    blocks["norm"].train(False)
    with network.training_mode(False):
        follow("within training_mode(False)")
    wanted = dict.fromkeys(SMALL_BLOCKS, True) | {"norm": False}
    follow("after training_mode(False)")


@check("networks", "L1")
def buffers_follow_assignments(backend: Backend) -> None:
    """An array that a forward pass assigns to a buffer becomes its value, in the buffer's type."""
    network = build_network(backend, Small)
    output(backend, network, _IMAGES)
    with backend.evaluating():
        output(backend, network.eval(), _IMAGES)
    agree(
        "the buffer 'calls' after two calls",
        network.neutral_state()["calls"],
        np.array(2),
    )


@check("networks", "L0")
def parameters_are_not_assigned_to(backend: Backend) -> None:
    """An array that a forward pass assigns to a parameter is refused; the parameter stays."""
    network = build_network(backend, Drifting)
    before = network.neutral_state()
    with refused("an array assigned to a parameter", TypeError):
        output(backend, network, _X)
    agree_all("after an assignment", network.neutral_state(), before)


@check("networks", "L1")
def buffers_keep_no_graph(backend: Backend) -> None:
    """What a forward pass assigns to a buffer is a value alone.

    So no gradient goes through an earlier call, and nothing of that call stays in memory.
    """
    network, twin = build_network(backend, Moving), build_network(backend, Moving)
    output(backend, network, _X)
    twin.load_neutral_state(network.neutral_state())
    found, wanted = (
        backend.gradients(_total, net, _X).parameters for net in (network, twin)
    )
    agree_all("after an earlier call: gradient", found, wanted)
    backend.gradients(
        _total, network, _X
    )  # what is kept once and for all is there after that
    setting = build_network(backend, Setting)
    (slope,) = backend.gradients(_total, setting, _X).parameters.values()
    mean = (_X * setting.neutral_state()["factor"]).mean(0)
    agree("through a value of this call: gradient", slope, (_X * mean).sum(0))
    before = _objects()
    for _ in range(10):
        backend.gradients(_total, network, _X)
    more = _objects() - before
    true(f"ten calls leave no objects behind, not {more}", more < 10)


@check("networks", "L1")
def states_outlive_calls(backend: Backend) -> None:
    """What a network remembers is there in its next call, and not in its neutral state."""
    network = build_network(backend, Remembering)
    factor = network.neutral_state()["factor"]
    agree("the first call", output(backend, network, _X), _X * factor)
    agree("the second call", output(backend, network, _X), (_X * factor) ** 2)
    equal("names of the state", list(network.neutral_state()), ["factor"])


def _objects() -> int:
    """How many objects there are that refer to others, as those of a graph do."""
    gc.collect()
    return len(gc.get_objects())


# `copy.deepcopy` and pickle go by the class as written, and the backend's registered name.
for _name, _copy in (
    ("copies", deepcopy),
    ("pickles", lambda network: pickle.loads(pickle.dumps(network))),
):

    @check("networks", "L0", "registered", name=_name)
    def copied(backend: Backend, copy_of: Any = _copy) -> None:
        """A copy has the same weights, modes and outputs, and shares nothing."""
        original = build_network(backend, Small, seed=3)
        output(backend, original, _IMAGES)
        original.set_trainable("stem.*", False)
        state, copy = original.eval().neutral_state(), copy_of(original)
        found = {name: slot.trainable for name, slot in copy.neutral_slots().items()}
        fixed = (*SMALL_BUFFERS, "stem.weight")
        equal_all(
            "trainable in a copy", found, {name: name not in fixed for name in SMALL}
        )
        agree_all("of a copy", copy.neutral_state(), state)
        about = copy.training, copy.init_kwargs
        equal(
            "training and init_kwargs of a copy", about, (False, original.init_kwargs)
        )
        _same_outputs(backend, "a copy", copy, original)
        before = original.neutral_state()
        copy.load_neutral_state(_weights(copy, 6))
        agree_all(
            "of the original after its copy has changed",
            original.neutral_state(),
            before,
        )


@check("networks", "L0", "registered", "changes of type")
def copies_in_another_type(backend: Backend) -> None:
    """`in_dtype` gives a copy with the same values, rounded; the network stays as it is."""
    network = build_network(backend, Small)
    before, twin = network.neutral_state(), backend.in_dtype(network, "float32")
    types = twin.dtype_name, network.dtype_name
    equal(
        "dtype_name of the copy and the network", types, ("float32", dtype_of(backend))
    )
    agree_all("of the copy", twin.neutral_state(), before, 1e-7)


@check("networks", "L0")
def containers(backend: Backend) -> None:
    """Names by position or key, in the order in which blocks were given."""
    network = build_network(backend, Contained)
    weights = _weights(network, 2)
    names = [
        "body.0.weight",
        "body.0.bias",
        "body.2.0.weight",
        "heads.b.weight",
        "heads.a.weight",
    ]
    equal("names", list(weights), names)
    network.load_neutral_state(weights)
    first, bias, second, _, head = weights.values()
    wanted = np.tanh(_X @ first.T + bias) @ second.T @ head.T
    agree("outputs", output(backend, network, _X), wanted)


@check("networks", "L0")
def containers_that_change(backend: Backend) -> None:
    """Blocks are removed and added; names by position are those of the places then."""
    network = build_network(backend, Contained)
    removed = network.body.pop(0)
    del network.heads["b"]
    names = ["body.1.0.weight", "heads.a.weight"]
    equal("names without two blocks", list(network.neutral_slots()), names)
    network.body.insert(2, removed)
    names[1:1] = ["body.2.weight", "body.2.bias"]
    equal("names with a block put back", list(network.neutral_slots()), names)


@check("networks", "L0")
def layers_that_would_be_overlooked(backend: Backend) -> None:
    """A layer in a plain container or object is refused: other frameworks would not train it."""
    for hide in (list, lambda layers: {"all": layers}, _object_with):
        with refused("a layer in a plain place", ConstructionError):
            build_network(backend, Overlooked, hide)


def _object_with(layers: list[Any]) -> SimpleNamespace:
    return SimpleNamespace(layer=layers[0])


@check("networks", "L0")
def tied_parameters(backend: Backend) -> None:
    """A parameter under two names is in the state twice, counts once, and sums both gradients."""
    network, table, index = (
        build_network(backend, Tied),
        values(4, 3),
        np.array([0, 2, 2]),
    )
    slots = network.neutral_slots()
    equal("names", list(slots), ["table.weight", "head.weight"])
    numbers = (
        len({id(slot.native) for slot in slots.values()}),
        network.count_parameters(),
    )
    equal("the numbers of native parameters and of their elements", numbers, (1, 12))
    network.load_neutral_state({"table.weight": table})
    agree(
        "head.weight after loading table.weight",
        network.neutral_state()["head.weight"],
        table,
    )
    found = backend.gradients(_total, network, index).parameters
    counts = np.array([[1.0], [0.0], [2.0], [0.0]])
    wanted = table[index].sum(0) + counts * table.sum(0)
    equal("names of gradients", list(found), list(slots))
    for name in slots:
        agree(f"gradient of {name}", found[name], wanted)


@check("networks", "L0")
def calls_of_blocks_are_followed(backend: Backend) -> None:
    """`intercept_calls` shows each block's call and can replace its output, in gradients as well."""
    network, called = build_network(backend, Dense), []
    wanted = dense(_X, *network.neutral_state().values())

    def interceptor(path: str, block: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        called.append(path)
        return call(*args, **kwargs) * (2.0 if path == "second" else 1.0)

    def loss(net: Any, at: Any) -> Any:
        with backend.intercept_calls(net, interceptor):
            return _total(net, at)

    with backend.intercept_calls(network, interceptor):
        agree(
            "outputs with a block's doubled", output(backend, network, _X), 2.0 * wanted
        )
    equal("blocks in the order of their calls", called, ["", "first", "second"])
    agree("outputs afterwards", output(backend, network, _X), wanted)
    found = backend.gradients(loss, network, _X).parameters["second.bias"]
    agree(
        "gradient of second.bias with its block's output doubled",
        found,
        np.full(3, 8.0),
    )


@check("networks", "L0")
def abstract_and_native(backend: Backend) -> None:
    """Networks written once are native ones, and wrapping one changes nothing."""
    network = build_network(backend, Small).eval()
    natives = backend.is_native(network), backend.is_native(native(backend, _IMAGES))
    equal("if a network and an array are native networks", natives, (True, False))
    wrapped = backend.wrap(network)
    equal("names of a wrapped network", list(wrapped.neutral_state()), list(SMALL))
    _same_outputs(backend, "a wrapped network", wrapped, network)
