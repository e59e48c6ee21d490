"""The steps of the gauntlet: what a network of a stranger goes through, and what is right."""

import copy
import pickle
import tempfile

import numpy as np

import deliralike
from deliralike import nest, rules, weights
from deliralike.training import Checkpoint, Trainer, predict

EPOCHS = 2
RULE = rules.rule("sgd", lr=0.1, momentum=0.9)


def halves(batch):
    """Two batches of four samples, in order."""
    return [
        nest.map(lambda leaf: leaf[part], batch) for part in (slice(0, 4), slice(4, 8))
    ]


class InOrder:
    """The two batches of a case, as often as they are asked for."""

    def __init__(self, case):
        self.case = case

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(halves(self.case.batch))


def close(found, wanted, case):
    """Compare nests of arrays."""
    for one, other in zip(nest.leaves(found), nest.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=case.close, atol=case.close)


def state(network):
    return deliralike.wrap(network).neutral_state()


def trained(case, network, epochs=EPOCHS, callbacks=(), resume=None, **settings):
    """Train a network by ours, and return its losses."""
    trainer = Trainer(network, RULE, losses=case.loss, callbacks=callbacks, **settings)
    history = trainer.fit(InOrder(case), InOrder(case), epochs=epochs, resume=resume)
    return [float(loss) for loss in history.losses]


def predicted(case, network):
    """Return the predictions of both batches by ours."""
    return list(predict(network, InOrder(case), inputs=1))


# The steps. `hand` has the framework's own loops over networks of the case.
# ----------------------------------------------------------------------------------------------


def train(case, hand):
    network = case.make()
    by_hand = hand.trained(evaluates=True)
    close(trained(case, network), by_hand.losses, case)
    close(state(network), state(by_hand.network), case)


def replicas(case, hand):
    network = case.make()
    by_hand = hand.trained(evaluates=True)
    devices = deliralike.backends.of(network).devices()
    close(trained(case, network, devices=(devices * 2)[:2]), by_hand.losses, case)
    close(state(network), state(by_hand.network), case)


def resume(case, hand):
    by_hand = hand.trained(evaluates=True)
    with tempfile.TemporaryDirectory() as folder:
        first = trained(case, case.make(), 1, [Checkpoint(folder)])
        network = case.make()
        last = trained(case, network, resume=f"{folder}/step-00000002")
    close(first + last, by_hand.losses, case)
    close(state(network), state(by_hand.network), case)


def weights_out_and_in(case, hand):
    by_hand = hand.trained()
    wanted, other = by_hand.other_with_its_weights(), case.make()
    predicted(case, other)  # lazy layers have weights
    with tempfile.TemporaryDirectory() as folder:
        weights.write(f"{folder}/w.safetensors", deliralike.wrap(by_hand.network))
        weights.load(deliralike.wrap(other), f"{folder}/w.safetensors")
    close(state(other), state(by_hand.network), case)
    close(predicted(case, other), hand.outputs(wanted), case)


def evaluate_and_predict(case, hand):
    network, same = hand.trained().network, hand.trained().network
    close(predicted(case, network), hand.outputs(same), case)
    found = Trainer(network, RULE, losses=case.loss).evaluate(InOrder(case))
    close(found["loss"], hand.evaluated(same), case)


def compare(case, hand):
    network = case.make()
    proof = deliralike.compare(
        network, case.make(), case.batch, loss=case.loss, levels=hand.levels
    )
    assert proof.headline.startswith("PROVED"), proof.headline


def deepcopy(case, hand):
    by_hand = hand.trained()
    twin = copy.deepcopy(deliralike.wrap(by_hand.network))
    hand.go_on(by_hand.network)
    close(predicted(case, twin), hand.outputs(hand.trained().network), case)


def pickled(case, hand):
    twin = pickle.loads(pickle.dumps(deliralike.wrap(hand.trained().network)))
    close(predicted(case, twin), hand.outputs(hand.trained().network), case)


def what_is_left(case, hand):
    network, by_hand = case.make(), hand.trained(evaluates=True)
    trained(case, network)
    predicted(case, network)
    hand.outputs(by_hand.network)
    assert hand.attributes(network) == hand.attributes(by_hand.network)
    # and goes on in a loop by hand
    close(hand.go_on(network), hand.go_on(by_hand.network), case)


STEPS = {
    "train": train,
    "two replicas": replicas,
    "resume": resume,
    "weights out and in": weights_out_and_in,
    "evaluate and predict": evaluate_and_predict,
    "compare with a copy": compare,
    "deepcopy": deepcopy,
    "pickle": pickled,
    "what is left": what_is_left,
}
