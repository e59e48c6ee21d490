"""What a block does between its layers, from end to end: two networks are compared, and the cause
is named."""

import numpy as np
import pytest

from deliralike.conformance.comparing import compare
from tests.conformance.small import Network, Plain, batch, get, made


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
    "no shortcut": "(the input args[0]) is missing",
    "sign": "(the output of tanh()) has the wrong sign",
    "factor": "(the output of tanh()) is scaled by the factor 0.37",
    "reversed": "reversed along axis 1",
    "relu": "relu",
    "detached": "no gradient through",
}


def found(kind, candidate):
    with get("jax").op_by_op():
        return compare(made(kind), candidate, batch(), levels=("L1", "L3"))


@pytest.mark.parametrize(
    ("backend", "change"),
    [(name, change) for name in ("torch", "chainer") for change in CAUSES] + [("jax", "factor")],
)
def test_causes_between_layers_are_named(backend, change):
    class Other(Between):
        pass

    Other.change = change
    finding = found(Between, made(Other, backend)).findings[0]
    assert (finding.level, finding.place) == ("L3", "")
    assert finding.explanation is not None
    assert finding.explanation.known, finding
    assert finding.explanation.match < 1e-12
    assert CAUSES[change] in finding.explanation.cause


def test_what_nothing_explains_is_called_unknown():
    class Odd(Plain):
        def joined(self, x, y):
            return (
                x + y * self.nn.constant(np.random.default_rng(0).standard_normal((1, 4)), y) ** 3
            )

    finding = found(Plain, made(Odd, "chainer")).findings[0]
    assert (finding.place, finding.kind) == ("", "Plain")
    assert finding.explanation is None or not finding.explanation.known


class Joined(Network):
    """Puts two outputs one after another."""

    order = (0, 1)

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = (
            self.nn.Linear(4, 2),
            self.nn.Linear(4, 3),
            self.nn.Linear(5, 3),
        )

    def forward(self, x):
        parts = [self.left(x), self.right(x)]
        return self.head(self.nn.concatenate([parts[i] for i in self.order], dim=1))


def test_another_order_of_parts_is_named():
    class Swapped(Joined):
        order = (1, 0)

    finding = found(Joined, made(Swapped, "chainer")).findings[0]
    assert finding.place == ""
    assert finding.explanation.known, finding
    assert "right" in finding.explanation.cause
