"""What plain comparisons see: they are what the proof is measured against, so they are to see what
is there."""

import numpy as np

from deliralike.conformance.subject import Subject
from deliralike.optim.rules import rule
from tests.conformance.small import Deep, Plain, batch, made
from tests.planted.allclose import TOLERANCES, seen_by_allclose

ALL = {
    f"{what} {tolerance:.0e}"
    for what in ("outputs", "gradients", "curves")
    for tolerance in TOLERANCES
}


def short(kind, backend="torch", optimizers=None, **options):
    """A subject in float32 with the weights that all have."""
    network = kind.on(backend, dtype="float32")(**options)
    network.load_neutral_state(made(kind, "torch", **options).neutral_state())
    return Subject(network, optimizers=optimizers or {})


def test_right_networks_are_close():
    for name in ("torch", "chainer"):
        assert seen_by_allclose(short(Deep), short(Deep, name), batch()) == ()


class Off(Plain):
    """A constant added to the outputs."""

    def __init__(self, by=0.0):
        super().__init__()
        self.by = by

    def forward(self, x):
        return super().forward(x) + self.by * x[:, :1] * self.nn.constant(np.eye(1, 3), x)


def test_what_differs_by_more_than_a_tolerance_is_seen_at_it():
    near = seen_by_allclose(short(Off), short(Off, by=5e-4), batch())
    assert "outputs 1e-04" in near
    assert "outputs 1e-03" not in near
    assert seen_by_allclose(short(Off), short(Off, by=1e-6), batch()) == ()
    assert set(seen_by_allclose(short(Off), short(Off, by=0.5), batch())) == ALL


def test_an_optimizer_shows_in_the_curve_alone():
    def following(lr):
        return {"sgd": lambda network: network.backend.optimizer(rule("sgd", lr=lr), network)}

    seen = seen_by_allclose(
        short(Plain, optimizers=following(0.1)), short(Plain, optimizers=following(0.2)), batch()
    )
    assert set(seen) == {"curves 1e-03", "curves 1e-04"}


def test_one_that_raises_fails_all():
    class Raising(Plain):
        def forward(self, x):
            raise ZeroDivisionError("planted")

    assert set(seen_by_allclose(short(Plain), short(Raising), batch())) == ALL
