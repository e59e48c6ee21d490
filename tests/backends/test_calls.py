"""Calls of blocks and functions go through another function, and are as before afterwards; the seam
of proofs."""

import threading

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike.backends.jax import arrays as jax_arrays
from deliralike.errors import DtypeError
from deliralike.network.calls import intercept_functions
from tests.conformance import small
from tests.conformance.small import (
    KINDS,
    Block,
    Deep,
    Network,
    Plain,
    Shared,
    batch,
    get,
    made,
    native,
    squares,
)

NAMES = ("torch", "chainer", "jax")


def called(network, around, x):
    """A network's output with its calls going through a function."""
    with (
        network.backend.op_by_op(),
        network.backend.evaluating(),
        network.backend.intercept_calls(network, around),
    ):
        return network.backend.to_numpy(
            network(*network.backend.prepare((x,), network))
        )


def noting(calls):
    """Note the path of each call, and the shape of its first argument."""

    def around(path, block, call, args, kwargs):
        calls.append((path, tuple(args[0].shape)))
        return call(*args, **kwargs)

    return around


def methods(network):
    """What calls could be changed in: the methods of blocks and of their classes."""
    blocks = [block for _, block in network.named_blocks()]
    return [(vars(block).get("forward"), type(block).__call__) for block in blocks]


def plain(state, x):
    """`Plain` in NumPy."""
    hidden = np.tanh(x @ state["one.weight"].T + state["one.bias"])
    return (x + hidden) @ state["two.weight"].T + state["two.bias"]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_native_networks_of_every_kind_are_followed(name, kind):
    network, calls = native(kind, name), []
    output = called(network, noting(calls), batch()[0])
    assert [path for path, _ in calls if path] == ["one", "two"]
    assert ("", (5, 4)) in calls
    assert_allclose(output, plain(network.neutral_state(), batch()[0]), rtol=1e-12)


@pytest.mark.parametrize(("name", "kind"), [*KINDS, *((name, Plain) for name in NAMES)])
def test_what_comes_back_takes_the_place_of_the_output(name, kind):
    network = made(kind, name) if kind is Plain else native(kind, name)

    def around(path, block, call, args, kwargs):
        output = call(*args, **kwargs)
        return output * 3.0 if path == "one" else output

    state = network.neutral_state()
    hidden = np.tanh(3.0 * (batch()[0] @ state["one.weight"].T + state["one.bias"]))
    wanted = (batch()[0] + hidden) @ state["two.weight"].T + state["two.bias"]
    assert_allclose(called(network, around, batch()[0]), wanted, rtol=1e-12)


@pytest.mark.parametrize(("name", "kind"), [*KINDS, *((name, Plain) for name in NAMES)])
@pytest.mark.parametrize("raises", [False, True])
def test_methods_are_as_before_afterwards(name, kind, raises):
    network = made(kind, name) if kind is Plain else native(kind, name)
    before, around = methods(network), noting([])

    def raising(path, block, call, args, kwargs):
        if path == "two":
            raise ZeroDivisionError("planted")
        return call(*args, **kwargs)

    if raises:
        with pytest.raises(ZeroDivisionError, match="planted"):
            called(network, raising, batch()[0])
    else:
        called(network, around, batch()[0])
    after = methods(network)
    assert all(x is z and y is w for (x, y), (z, w) in zip(before, after, strict=True))
    calls = []
    called(
        network,
        lambda path, block, call, args, kwargs: (
            calls.append(path) or call(*args, **kwargs)
        ),
        batch()[0],
    )
    assert "two" in calls


def test_a_method_that_an_instance_has_of_its_own_is_called_and_kept():
    network = made(Plain, "torch")
    block = network.one

    def constant_sevens(x):
        return x * 0 + 7.0

    block.forward = constant_sevens
    calls = []
    output = called(network, noting(calls), batch()[0])
    state = network.neutral_state()
    wanted = (batch()[0] + np.tanh(7.0)) @ state["two.weight"].T + state["two.bias"]
    assert_allclose(output, wanted, rtol=1e-12)
    assert vars(block)["forward"] is constant_sevens
    assert "one" in dict(calls)


def test_other_networks_of_the_same_class_are_not_followed(backend):
    kind = {name: kinds[-1] for name, kinds in small.NATIVE.items()}[backend.name]
    one, other, calls = (
        native(kind, backend.name),
        native(kind, backend.name, seed=2),
        [],
    )
    with (
        backend.op_by_op(),
        backend.evaluating(),
        backend.intercept_calls(one, noting(calls)),
    ):
        x = backend.prepare((batch()[0],), other)
        assert_allclose(
            backend.numpy(other(*x)),
            plain(other.neutral_state(), batch()[0]),
            rtol=1e-12,
        )
    assert calls == []


def test_two_functions_may_follow_at_once(backend):
    network, outer, inner = made(Plain, backend), [], []
    with backend.intercept_calls(network, noting(outer)):
        called(network, noting(inner), batch()[0])
    assert (
        [path for path, _ in outer] == [path for path, _ in inner] == ["", "one", "two"]
    )


def test_a_block_called_twice_is_followed_twice(backend):
    network, calls = made(Shared, backend), []
    called(network, noting(calls), batch()[0])
    assert [path for path, _ in calls] == ["", "twice", "twice", "head"]


class Aliased(Network):
    """One layer under two names."""

    def __init__(self):
        super().__init__()
        self.one = self.nn.Linear(4, 4)
        self.other = self.one

    def forward(self, x):
        return self.other(self.nn.tanh(self.one(x)))


def test_a_block_with_two_names_is_followed_once_a_call(backend):
    network, calls = made(Aliased, backend), []
    called(network, noting(calls), batch()[0])
    assert len(calls) == 3, calls
    assert calls[1] == calls[2]


# Functions of nn
# -----------------------------------------------------------------------------


def test_functions_are_followed_and_replaced(backend):
    network, calls = made(Plain, backend), []
    x = batch()[0]

    def around(name, functions, call, args, kwargs):
        calls.append((name, functions is backend.nn))
        return call(*args, **kwargs) * 2.0 if name == "tanh" else call(*args, **kwargs)

    before = dict(vars(backend.nn))
    with (
        backend.op_by_op(),
        backend.evaluating(),
        intercept_functions(backend.nn, around),
    ):
        output = backend.numpy(network(*backend.prepare((x,), network)))
    assert ("tanh", True) in calls
    assert vars(backend.nn) == before
    state = network.neutral_state()
    hidden = 2.0 * np.tanh(x @ state["one.weight"].T + state["one.bias"])
    assert_allclose(
        output, (x + hidden) @ state["two.weight"].T + state["two.bias"], rtol=1e-12
    )


def test_a_function_that_a_vocabulary_gains_later_is_followed(backend, monkeypatch):
    """Also one that takes another's place, as an author of a backend may write it."""
    nn = backend.nn
    came = []

    def around(name, functions, call, args, kwargs):
        came.append(name)
        return call(*args, **kwargs)

    def twice(self, x):
        return 2 * x

    with intercept_functions(nn, around):
        assert not hasattr(nn, "twice")
    monkeypatch.setattr(type(nn), "twice", twice, raising=False)
    monkeypatch.setattr(type(nn), "relu", twice)
    with intercept_functions(nn, around):
        assert nn.twice(3) == nn.relu(3) == 6
    assert came == ["twice", "relu"]
    assert nn.twice(3) == 6
    assert came == ["twice", "relu"]


def test_a_function_that_a_vocabulary_had_before_is_forgotten(backend, monkeypatch):
    """Another one has come, so the classes have as many names as they had then."""
    functions, calls = backend.nn, []
    names = ["first", "came_and_went", "came_later"]  # asking makes classes grow once
    for name in names:
        with monkeypatch.context() as patch:
            patch.setattr(type(functions), name, lambda self, x: x, raising=False)
            with intercept_functions(functions, noting(calls)):
                getattr(functions, name)(np.ones(2))
    assert [call[0] for call in calls] == names


def test_functions_are_as_before_after_an_error(backend):
    before = dict(vars(backend.nn))
    with (
        pytest.raises(ZeroDivisionError),
        intercept_functions(backend.nn, lambda *given: 1 / 0),
    ):
        backend.nn.tanh(backend.array(np.zeros(3)))
    assert vars(backend.nn) == before


def test_other_threads_are_not_followed():
    nn, calls = get("torch").nn, []
    x = get("torch").array(np.ones(3))

    def around(name, functions, call, args, kwargs):
        calls.append(name)
        return call(*args, **kwargs)

    with intercept_functions(nn, around):
        thread = threading.Thread(target=lambda: nn.tanh(x))
        thread.start()
        thread.join()
        assert calls == []
        nn.tanh(x)
    assert calls == ["tanh"]


# Types
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [*KINDS, *((name, Deep) for name in NAMES)])
def test_a_network_in_another_type_is_a_copy(name, kind):
    network = made(kind, name) if kind is Deep else native(kind, name)
    backend, before = network.backend, network.neutral_state()
    twin = backend.in_dtype(network, "float32")
    state = twin.neutral_state()
    for key, value in before.items():
        wanted = value.astype(np.float32) if value.dtype.kind == "f" else value
        assert_array_equal(state[key], wanted)
        assert state[key].dtype == wanted.dtype, key
    twin.load_neutral_state({key: value * 0 for key, value in state.items()})
    for key, value in network.neutral_state().items():
        assert value.dtype == before[key].dtype
        assert_array_equal(value, before[key])
    with backend.op_by_op():
        output = called(twin, noting([]), batch()[0])
    assert (output.dtype, twin.dtype_name, network.dtype_name) == (
        np.float32,
        "float32",
        "float64",
    )
    assert twin.training == network.training


def test_the_mode_of_a_copy_is_that_of_the_network(backend):
    for training in (True, False):
        twin = backend.in_dtype(made(Deep, backend).train(training), "float32")
        assert twin.training == training
        assert {
            block.training for path, block in twin.named_blocks() if path == "norm"
        } == {training}


def test_a_type_that_a_backend_lacks_is_refused(backend):
    with pytest.raises(DtypeError, match="cannot compute in 'float8'"):
        backend.in_dtype(made(Block, backend), "float8")


def test_both_widths_compute_what_they_say(backend):
    """Forth and back is the network with rounded weights."""
    network = made(Plain, backend)
    twin = backend.in_dtype(backend.in_dtype(network, "float32"), "float64")
    state = {
        key: value.astype(np.float32).astype(np.float64)
        for key, value in network.neutral_state().items()
    }
    output = called(twin, noting([]), batch()[0])
    assert output.dtype == np.float64
    assert_allclose(output, plain(state, batch()[0]), rtol=1e-13)


# Gradients
# -----------------------------------------------------------------------------


def test_what_stands_beside_the_loss_comes_back_as_arrays(backend):
    network, (x, _) = made(Plain, backend), batch()

    def loss(network, x):
        output = network(x)
        return (
            squares(network, x),
            {"output": output, "name": "kept", "list": [7, None]},
            x,
        )

    with backend.op_by_op():
        found = backend.gradients(loss, network, x)
    wanted = plain(network.neutral_state(), x)
    given, same_x = found.beside
    assert isinstance(given["output"], np.ndarray) and isinstance(same_x, np.ndarray)
    assert_allclose(given.pop("output"), wanted, rtol=1e-12)
    assert_array_equal(same_x, x)
    assert given == {"name": "kept", "list": [7, None]}
    assert found.loss == pytest.approx((wanted**2).sum(), rel=1e-12)
    assert_allclose(found.parameters["two.bias"], 2 * wanted.sum(0), rtol=1e-12)


def test_jax_gives_the_same_compiled_quickly_whole_or_not_at_all():
    backend, network, (x, _) = get("jax"), made(Plain, "jax"), batch()
    found = [backend.gradients(squares, network, x)]
    with backend.compiling_quickly():
        found.append(backend.gradients(squares, network, x))
    with backend.op_by_op():
        found.append(backend.gradients(squares, network, x))
    state = network.neutral_state()
    expected = 2 * plain(state, x)
    for one in found:
        assert_allclose(one.parameters["two.bias"], expected.sum(0), rtol=1e-12)


def test_what_a_quick_program_of_jax_loses_comes_from_one_compiled_as_usual(
    monkeypatch,
):
    """A rounding in two ways, which XLA does on some processors, is played by the compiler here."""
    compiled = jax_arrays.compile_once

    def lossy(function, compiler_options, **options):
        program = compiled(function, **options)
        quick = compiler_options["xla_backend_optimization_level"] == 0
        return lambda *args: (
            jax.tree.map(lambda x: x * np.nan, program(*args))
            if quick
            else program(*args)
        )

    monkeypatch.setattr(jax_arrays, "compile_once", lossy)
    backend, network, (x, _) = get("jax"), made(Plain, "jax"), batch()
    found = backend.gradients(squares, network, x)
    expected = 2 * plain(network.neutral_state(), x)
    assert_allclose(found.parameters["two.bias"], expected.sum(0), rtol=1e-12)


def test_a_layer_of_flax_that_was_told_another_type_keeps_it():
    """It rounds its inputs in every copy: that is what it does."""
    network = native(small.FlaxNet, "jax")
    network.native.one.dtype = jax.numpy.float16
    twin = network.backend.in_dtype(network, "float32")
    assert (twin.native.one.dtype, twin.native.two.dtype) == (
        jax.numpy.float16,
        np.float32,
    )
