"""Optimizers of optax in the trainer, those that hide their learning rate as well."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from deliralike import rules, zoo
from deliralike.errors import CapabilityError
from deliralike.training import Trainer, schedules
from deliralike.training.callbacks import Checkpoint, Checkpoints

KINDS = {
    "hidden": lambda: optax.adam(0.05),
    "shown": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.05),
}
X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.arange(12) % 2


def trainer(native, callbacks=(), **settings):
    network = zoo.build(
        "mlp",
        backend="jax",
        in_features=3,
        hidden=(),
        out_features=2,
        dtype="float64",
        seed=3,
    )
    optimizer = network.backend.wrap_optimizer(native, network)
    return Trainer(network, optimizer, callbacks=callbacks, **settings)


def by_hand(epochs):
    """The losses of softmax regression by optax alone, on whole batches."""
    with jax.enable_x64(True):
        start = trainer(optax.adam(0.05)).network.neutral_state()
        weights = (
            jnp.asarray(start["layers.0.weight"]),
            jnp.asarray(start["layers.0.bias"]),
        )

        def loss(weights):
            scores = jnp.asarray(X) @ weights[0].T + weights[1]
            return optax.softmax_cross_entropy_with_integer_labels(
                scores, jnp.asarray(Y)
            ).mean()

        native = optax.adam(0.05)
        state, losses = native.init(weights), []
        for _ in range(epochs):
            value, gradients = jax.value_and_grad(loss)(weights)
            updates, state = native.update(gradients, state, weights)
            weights = optax.apply_updates(weights, updates)
            losses.append(float(value))
    return losses


@pytest.mark.parametrize("kind", KINDS)
def test_the_trainer_makes_the_updates_of_optax_and_resumes(kind, tmp_path):
    callbacks = [Checkpoint(tmp_path / "checkpoints")]
    first = trainer(KINDS[kind](), callbacks).fit((X, Y), epochs=2, batch_size=12)
    latest = Checkpoints.latest(tmp_path / "checkpoints")
    rest = trainer(KINDS[kind]()).fit((X, Y), epochs=5, batch_size=12, resume=latest)
    losses = [*first.losses, *rest.losses]
    np.testing.assert_allclose(
        losses, by_hand(5), rtol=1e-6
    )  # the rate of "shown" is a float32
    wanted = {"hidden": None, "shown": pytest.approx(0.05)}
    assert first.steps[0].lr == wanted[kind]


def test_a_schedule_needs_a_learning_rate_that_is_shown():
    with pytest.raises(CapabilityError, match="inject_hyperparams"):
        trainer(KINDS["hidden"](), schedule=schedules.Cosine(6))
    history = trainer(KINDS["shown"](), schedule=schedules.Cosine(4)).fit(
        (X, Y), batch_size=3
    )
    rule = trainer(KINDS["shown"]()).network
    neutral = Trainer(rule, rules.rule("adam", lr=0.05), schedule=schedules.Cosine(4))
    np.testing.assert_allclose(
        history.losses, neutral.fit((X, Y), batch_size=3).losses, rtol=1e-6
    )
