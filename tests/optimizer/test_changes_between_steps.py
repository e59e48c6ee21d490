"""What changes between two steps holds from the next step on, as computed in NumPy."""

from dataclasses import dataclass

import numpy as np
import pytest

from deliralike import backends, rules, zoo
from deliralike.errors import IndexRangeError

BACKENDS = ("torch", "chainer", "jax")
WEIGHT, BIAS = "layers.0.weight", "layers.0.bias"
INPUTS = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
LABELS = np.array([0, 1, 3, 2, 2, 0, 1, 3])


@dataclass
class Reference:
    """Softmax regression by gradient descent, whose gradients are those of the formula."""

    weight: np.ndarray
    bias: np.ndarray
    lr: float = 0.25
    factor: float = 1.0
    frozen: tuple[str, ...] = ()

    def step(self, inputs, labels):
        counted = labels >= 0
        scores = np.exp(inputs @ self.weight.T + self.bias)
        shares = scores / scores.sum(1, keepdims=True)
        shares[counted, labels[counted]] -= 1.0
        shares = shares * counted[:, None] * self.factor / counted.sum()
        if WEIGHT not in self.frozen:
            self.weight = self.weight - self.lr * shares.T @ inputs
        if BIAS not in self.frozen:
            self.bias = self.bias - self.lr * shares.sum(0)


class Training:
    """A network and its reference, which make the same steps."""

    def __init__(self, backend):
        settings = {"in_features": 3, "out_features": 4, "hidden": ()}
        self.network = zoo.build("mlp", backend=backend, **settings)
        self.optimizer = backends.get(backend).optimizer(
            rules.rule("sgd", lr=0.25), self.network
        )
        state = self.network.neutral_state()
        self.reference = Reference(state[WEIGHT], state[BIAS])
        self.losses = None

    def step(self, inputs=INPUTS, labels=LABELS):
        self.network.train_step((inputs, labels), self.optimizer, self.losses)
        self.reference.step(inputs, labels)

    def agrees(self):
        state = self.network.neutral_state()
        np.testing.assert_allclose(
            state[WEIGHT], self.reference.weight, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            state[BIAS], self.reference.bias, rtol=1e-5, atol=1e-6
        )


def doubling(optimizer, gradients):
    return {name: gradient * 2.0 for name, gradient in gradients.items()}


def set_the_learning_rate(training):
    training.optimizer.lr = training.reference.lr = 0.5


def freeze(training):
    training.network.set_trainable(WEIGHT, False)
    training.reference.frozen = (WEIGHT,)


def thaw(training):
    freeze(training)
    training.step()
    training.network.set_trainable(WEIGHT, True)
    training.reference.frozen = ()


def load_weights(training):
    training.reference.weight = np.full((4, 3), 0.5, np.float32)
    state = training.network.neutral_state()
    training.network.load_neutral_state(state | {WEIGHT: training.reference.weight})


def add_a_hook(training):
    training.optimizer.pre_update_hooks.append(doubling)
    training.reference.factor = 2.0


def remove_a_hook(training):
    add_a_hook(training)
    training.step()
    training.optimizer.pre_update_hooks.clear()
    training.reference.factor = 1.0


def take_another_loss(training):
    nn = training.network.nn
    training.losses = {
        "tripled": lambda scores, labels: 3.0 * nn.cross_entropy(scores, labels)
    }
    training.reference.factor = 3.0


def train_on_fewer_samples(training):
    training.step(INPUTS[:3], LABELS[:3])


def ignore_some_labels(training):
    training.step(INPUTS, np.where(LABELS == 2, -100, LABELS))


def give_labels_of_another_type(training):
    training.step(INPUTS, LABELS.astype(np.int32))


def give_a_label_that_is_no_class(training):
    with pytest.raises(IndexRangeError, match="4 is out of range"):
        training.network.train_step(
            (INPUTS, LABELS + 1), training.optimizer, training.losses
        )


CHANGES = (
    set_the_learning_rate,
    freeze,
    thaw,
    load_weights,
    add_a_hook,
    remove_a_hook,
    take_another_loss,
    train_on_fewer_samples,
    ignore_some_labels,
    give_labels_of_another_type,
    give_a_label_that_is_no_class,
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_holds_from_the_next_step_on(change, backend):
    training = Training(backend)
    training.step()
    training.step()
    change(training)
    training.step()
    training.step()
    training.agrees()


def test_a_network_that_became_one_of_double_precision_gets_its_batches_so():
    training = Training("torch")
    training.step()
    training.network.double()
    training.step()
    training.agrees()
    assert training.network.dtype_name == "float64"


def test_a_block_that_comes_later_is_among_the_parameters_of_chainer_once():
    network = Training("chainer").network
    before = list(network.params())
    later = zoo.build(
        "mlp", backend="chainer", in_features=3, out_features=4, hidden=()
    )
    network.head, network.tied = later, later
    after = list(network.params())
    assert len(after) == len(set(map(id, after))) == len(before) + 2


def test_a_network_of_chainer_may_have_parameters_of_its_own_choice():
    class Few(backends.get("chainer").network_base):
        def params(self, include_uninit=True):
            return iter(())

    network = Training("chainer").network
    before = len(list(network.params()))
    few = Few()
    few.layer = zoo.build(
        "mlp", backend="chainer", in_features=3, out_features=4, hidden=()
    )
    network.few = few
    assert len(list(network.params())) == before
