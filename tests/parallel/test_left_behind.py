"""Replicas follow weights that change past them on every backend, and calls from several
threads."""

import io
import sys
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose

from deliralike import DataParallel, wrap
from deliralike.errors import StateError
from deliralike.parallel import in_replicas
from tests.arrays import same_named
from tests.losses import cross_entropy
from tests.parallel.networks import Small, batch_of, built, optimizer_of, replicated

LEFT_OUT = (
    r"parameter '(weight|bias)' has changed while gradients of it are left in the replicas: "
    r"update it by an optimizer over the replicated network, .* or DataParallel\w+Optimizer"
)


def layer(backend, seed):
    """A layer of the framework's own, and a batch."""
    x = np.random.default_rng(seed).normal(size=(7, 6)).astype(np.float32)
    if backend.name == "torch":
        import torch

        torch.manual_seed(seed)
        return torch.nn.Linear(6, 3), torch.tensor(x)
    if backend.name == "jax":
        import jax.numpy as jnp
        from flax import nnx

        return nnx.Linear(6, 3, rngs=nnx.Rngs(seed)), jnp.asarray(x)
    import chainer

    np.random.seed(seed)
    return chainer.links.Linear(6, 3), x


def step_of_the_frameworks_own(backend, network, native, x):
    """A plain optimizer over the module's parameters, that knows nothing of replicas."""
    if backend.name == "torch":
        import torch

        optimizer = torch.optim.SGD(native.parameters(), lr=0.5)
        optimizer.zero_grad()
        network(x).sum().backward()
        optimizer.step()
    elif backend.name == "jax":
        import optax
        from flax import nnx

        optimizer = nnx.Optimizer(native, optax.sgd(0.5), wrt=nnx.Param)
        optimizer.update(native, nnx.grad(lambda module: module(x).sum())(native))
    else:
        import chainer

        optimizer = chainer.optimizers.SGD(0.5).setup(native)
        network.cleargrads()
        chainer.functions.sum(network(x)).backward()
        optimizer.update()


def load_into_the_module(backend, network, native, x):
    """The framework's own way to load weights, past the wrapper."""
    other, _ = layer(backend, 8)
    if backend.name == "torch":
        native.load_state_dict(other.state_dict())
    elif backend.name == "jax":
        from flax import nnx

        nnx.update(native, nnx.state(other))
    else:
        import chainer

        file = io.BytesIO()
        chainer.serializers.save_npz(file, other)
        chainer.serializers.load_npz(io.BytesIO(file.getvalue()), native)


def write_by_slot(backend, network, native, x):
    """A neutral slot of the last layer."""
    slot = wrap(native).neutral_slots()[list(wrap(native).neutral_slots())[-1]]
    slot.write(slot.read() + 1.0)


@pytest.mark.parametrize("change", [load_into_the_module, write_by_slot])
def test_replicas_have_the_roots_weights_at_the_next_call(backend, change):
    native, x = layer(backend, 1)
    network = DataParallel(native, [backend.devices()[0]] * 3)
    network(x)
    change(backend, network, native, x)
    found, wanted = (backend.numpy(each(x)) for each in (network, native))
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_weights_written_before_a_step_are_those_of_one_device(backend):
    states = []
    for replicas in (1, 2):
        network = replicated(backend, replicas, 0.0, False)
        optimizer = optimizer_of(network)
        for loss in (cross_entropy, in_replicas(cross_entropy)):
            slot = network.neutral_slots()["fc.weight"]
            slot.write(slot.read() * 2.0)
            optimizer.update(loss, *batch_of(5))
        states.append(network.neutral_state())
    same_named(states[1], states[0])


def test_a_plain_optimizer_steps_as_on_one_device_or_says_what_it_leaves_out(backend):
    native, x = layer(backend, 1)
    alone, _ = layer(backend, 1)
    network = DataParallel(native, [backend.devices()[0]] * 3)
    step_of_the_frameworks_own(backend, network, native, x)
    if (
        backend.name == "chainer"
    ):  # whose gradients stay in the replicas that computed them
        with pytest.raises(StateError, match=LEFT_OUT):
            network(x)
        return
    step_of_the_frameworks_own(backend, alone, alone, x)
    found, wanted = (backend.numpy(each(x)) for each in (network, alone))
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_weights_that_are_written_as_they_were_or_are_no_numbers_are_no_error(backend):
    native, x = layer(backend, 2)
    network = DataParallel(native, [backend.devices()[0]] * 2)
    state = network.neutral_state()
    name = list(state)[0]
    network.load_neutral_state(state | {name: np.full_like(state[name], np.nan)})
    network.neutral_slots()[name].write(np.full_like(state[name], np.nan))
    assert np.isnan(backend.numpy(network(x))).all()


# Threads
# -----------------------------------------------------------------------------


def in_threads(call, threads=4, times=15):
    """What each call gives, of so many threads that begin together, and take turns as often as
    Python can."""
    outputs, errors, start = [], [], threading.Barrier(threads)

    def work(number):
        start.wait()
        for _ in range(times):
            try:
                outputs.append((number, call(number)))
            except Exception as error:  # in whatever thread: counted
                errors.append(error)

    workers = [
        threading.Thread(target=work, args=[number]) for number in range(threads)
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []
    return outputs


def test_several_threads_may_call_one_network(backend):
    """Batches of other sizes in each thread, the last of fewer samples than there are replicas."""
    network = replicated(backend, 3, 0.0).eval()
    batches = [batch_of(samples, seed=samples)[0] for samples in (7, 4, 3, 2)]
    wanted = [backend.numpy(network.root(backend.prepare(x, network))) for x in batches]
    outputs = in_threads(
        lambda number: backend.numpy(network(backend.prepare(batches[number], network)))
    )
    assert len(outputs) == 60
    for number, found in outputs:
        assert_allclose(found, wanted[number], rtol=1e-12)


def test_running_statistics_take_part_in_each_call_of_each_thread(backend):
    """Each call moves them a tenth of the way to those of the first replica's share, none is
    lost."""
    network = replicated(backend, 2, 0.0)
    x = backend.prepare(batch_of(6)[0], network)
    once = built(backend, Small, 0.0)
    once(x[:3])
    in_threads(lambda number: network(x), 5, 3)
    mean = once.neutral_state()["bn.running_mean"] / 0.1
    assert_allclose(
        network.neutral_state()["bn.running_mean"], mean * (1 - 0.9**15), rtol=1e-10
    )
