"""What a block does between its layers: two networks are compared, and the cause is named."""

import numpy as np
import pytest
import torch

from deliralike.conformance.comparing import compare
from deliralike.conformance.explain.glue import Glue, explain
from deliralike.conformance.locate import level
from tests.conformance.accusing import known
from tests.conformance.small import Plain, batch, get, into, made, source


class Between(Plain):
    """Changes what stands between its layers."""

    change = "right"

    def forward(self, x):
        nn, hidden = self.nn, self.nn.tanh(self.one(x))
        joined = {
            "right": lambda: x + hidden,
            "no shortcut": lambda: hidden,
            "sign": lambda: x - hidden,
            "factor": lambda: x + 0.37 * hidden,
            "reversed": lambda: nn.concatenate(
                [(x + hidden)[:, 3 - i : 4 - i] for i in range(4)], dim=1
            ),
            "relu": lambda: nn.relu(x + hidden),
            "detached": lambda: x + nn.stop_gradient(hidden),
        }
        return self.two(joined[self.change]())


CAUSES = {
    "no shortcut": "the input args[0] is missing",
    "sign": "the output of tanh() is changed: negated (the sign)",
    "factor": "the output of tanh() is changed: scaled: times 0.37",
    "reversed": "reversed along axis 1",
    "relu": "relu",
    "detached": "no gradient through",
}


def found(kind, candidate):
    with get("jax").op_by_op():
        return compare(made(kind), candidate, batch(), levels=("L1", "L3"))


@pytest.mark.parametrize(
    ("backend", "change"),
    [(name, change) for name in ("torch", "chainer") for change in CAUSES]
    + [("jax", "factor")],
)
def test_causes_between_layers_are_named(backend, change):
    class Other(Between):
        pass

    Other.change = change
    finding = found(Between, made(Other, backend)).findings[0]
    assert (finding.level, finding.place) == ("L3", "")
    known(finding.explanation, CAUSES[change])
    assert finding.explanation.match < 1e-12


def test_what_nothing_explains_is_called_unknown():
    class Odd(Plain):
        def joined(self, x, y):
            return (
                x
                + y
                * self.nn.constant(np.random.default_rng(0).standard_normal((1, 4)), y)
                ** 3
            )

    finding = found(Plain, made(Odd, "chainer")).findings[0]
    assert (finding.place, finding.kind) == ("", "Plain")
    assert finding.explanation is None or not finding.explanation.known


class Residual(torch.nn.Module):
    """A block with a norm before it, and positions that are added to its input."""

    first, after = 0, False

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.positions = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 32).reshape(8, 4))
        self.norm, self.fc = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4)
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x):
        x = self.inner(x) + self.positions[self.first : self.first + 6] ** 3
        y = self.norm(torch.tanh(x))
        z = (y if self.after else torch.tanh(x)) + self.fc(y)
        return self.out(z).mean(1)


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"after": True}, "a sum in which the output of tanh()"),
        (
            {"first": 1},
            "what is added to the output of inner is shifted by 1 along axis 1",
        ),
    ],
)
def test_terms_that_are_others_are_named(settings, cause):
    other = type("Other", (Residual,), settings)()
    x = np.random.default_rng(0).standard_normal((3, 6, 4))
    batch = (x, np.arange(3))
    finding = compare(Residual(), other, batch, weights="load").findings[0]
    known(finding.explanation, cause)


def test_a_place_is_looked_for_once_where_nothing_follows_the_mode(monkeypatch):
    class Odd(Residual):
        def forward(self, x):
            return super().forward(torch.sin(x * x) + 0.1 * x)

    modes, search = [], level.localise
    monkeypatch.setattr(
        level, "localise", lambda *given: modes.append(given[3]) or search(*given)
    )
    x = np.random.default_rng(0).standard_normal((3, 6, 4))
    proof = compare(Residual(), Odd(), (x, np.arange(3)), weights="load")
    assert proof.diverges
    assert modes == [True]


# The table
# -----------------------------------------------------------------------------


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


X, Y, Z = (numbers(4, 3, 5, 6, seed=seed) for seed in range(3))
STATES = numbers(4, 7, 3, seed=3)
KNOWN = {
    "args[0]": X,
    "the output of gru": STATES,
    "the output of norm": Y,
    "the output of conv": Z,
}
SEEN = np.tri(6, dtype=bool)
SCORES = numbers(4, 6, 6)


def why(reference, candidate, sources=KNOWN):
    given = {source(words): array for words, array in sources.items()}
    return explain(Glue(given, reference, candidate, into("head")))


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (X + Y, Y, "a sum in which the input args[0] is missing"),
        (X + Y, X - Y, "the output of norm is changed: negated (the sign)"),
        (X + Y, X + np.maximum(Y, 0), "the output of norm is changed: relu of it"),
        (X + Y, X + Y + Z, "one term more, as of a skip connection"),
        (X, 3 * X, "scaled: times 3"),
        (
            np.maximum(X, 0),
            X,
            "the input args[0] instead of relu of it (of the input args[0])",
        ),
        (
            np.maximum(X, 0),
            np.tanh(X),
            "tanh of it (of the input args[0]) instead of relu of it",
        ),
        (
            X.reshape(4, -1),
            X.transpose(0, 2, 3, 1).reshape(4, -1),
            "axes permuted to (0, 2, 3, 1)",
        ),
        (X * Y, (X * Y)[:, ::-1], "what it should be: reversed along axis 1"),
        (SEEN, np.ones((6, 6), bool), "a mask that is set"),
        (np.where(SEEN, SCORES, -np.inf), SCORES, "a mask that hides nothing"),
        (
            np.where(SEEN, SCORES, -np.inf),
            SEEN * SCORES,
            "a mask of 0 instead of minus infinity",
        ),
        (
            np.where(SEEN, SCORES, -np.inf),
            np.where(SEEN, 0.5 * SCORES, -np.inf),
            "times 0.5",
        ),
        (True, False, "the input of head being False instead of True"),
    ],
)
def test_entries_of_the_table(reference, candidate, words):
    found = why(reference, candidate)
    known(found, words)


@pytest.mark.parametrize(
    "candidate", [X + Y + 1e-3 * np.sin(40 * Z), (X + Y) ** 3, np.sort(X + Y, axis=1)]
)
def test_what_is_no_entry_is_not_explained(candidate):
    assert why(X + Y, candidate) is None


def test_few_numbers_bear_out_nothing():
    assert why(X[0, 0, 0], 2 * X[0, 0, 0]) is None


def test_a_gradient_that_the_reference_stops_is_named():
    found = explain(Glue({}, X, X, gradients={source("args[0]"): (0.0 * X, X)}))
    known(found, "which the reference stops")


def test_a_gradient_with_another_factor_is_named():
    gradients = {source("the output of norm"): (X, 0.25 * X), source("args[0]"): (Y, Y)}
    found = explain(Glue({}, X, X, gradients=gradients))
    assert found.cause == "gradient of the output of norm times 0.25" and found.known
