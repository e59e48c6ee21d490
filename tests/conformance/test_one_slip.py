"""Ports with one slip each, where another place or cause was said once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn import functional as F

from deliralike.network import Network
from tests.conformance.small import loaded

GENERATOR = np.random.default_rng(0)
PICTURES = GENERATOR.normal(size=(3, 2, 9, 9)), GENERATOR.integers(0, 3, 3)
ROWS = GENERATOR.normal(size=(5, 6)), GENERATOR.integers(0, 6, 5)


def places(reference, candidate, batch):
    """Each place of level L3 with its cause."""
    proof = loaded(reference, candidate, batch)
    assert proof.verdict == "diverges"
    found = [one for one in proof.findings if one.level == "L3"]
    return [(one.place, one.what, str(one.explanation)) for one in found]


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(6), nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)
        self.last = nn.LayerNorm(6)

    def forward(self, x):
        x = x + self.ln2(self.down(F.relu(self.up(self.ln1(x)))))
        return self.last(x)


class FlaxResidual(nnx.Module):
    """The same; it may forget a norm that it has."""

    def __init__(self, with_last=True, with_second=True):
        rngs = nnx.Rngs(0)
        norms = [nnx.LayerNorm(6, epsilon=1e-5, rngs=rngs) for _ in range(3)]
        self.norm_a, self.norm_b, self.last = norms
        self.fc, self.proj = nnx.Linear(6, 9, rngs=rngs), nnx.Linear(9, 6, rngs=rngs)
        self.with_last, self.with_second = with_last, with_second

    def __call__(self, x):
        second = self.norm_b if self.with_second else self.norm_a
        x = x + second(self.proj(jax.nn.relu(self.fc(self.norm_a(x)))))
        return self.last(x) if self.with_last else x


def test_a_norm_that_is_not_called_is_no_partner_of_another():
    ((place, what, why),) = places(Residual(), FlaxResidual(with_last=False), ROWS)
    assert (place, what) == ("last", "output")
    assert "no LayerNorm: it is left out" in why


def test_a_norm_that_is_called_twice_makes_no_other_difference():
    ((place, what, why),) = places(Residual(), FlaxResidual(with_second=False), ROWS)
    assert what == "gradient of ln2.weight"


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3, stride=2), nn.Linear(64, 3)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).flatten(1))


class FlaxConvolved(nnx.Module):
    def __init__(self, bias):
        rngs = nnx.Rngs(0)
        options = {"strides": 2, "padding": "VALID", "use_bias": bias, "rngs": rngs}
        self.conv = nnx.Conv(2, 4, (3, 3), **options)
        self.fc = nnx.Linear(64, 3, rngs=rngs)

    def __call__(self, x):
        y = jnp.transpose(jax.nn.relu(self.conv(x)), (0, 3, 1, 2))
        return self.fc(y.reshape(len(x), -1))


def test_a_bias_that_is_missing_says_nothing_of_the_order_of_elements():
    (found,) = places(Convolved(), FlaxConvolved(bias=False), PICTURES)
    assert found[0] == "conv" and "bias missing" in found[2]


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Linear(4, 3)

    def forward(self, x):
        y = F.relu(self.conv(F.max_pool2d(x, 3, 2, 1)))
        return self.fc(F.adaptive_avg_pool2d(y, 1).flatten(1))


class PooledOnce(Network):
    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.fc = self.nn.Linear(4, 3)

    def forward(self, x):
        nn = self.nn
        y = nn.relu(self.conv(nn.max_pool2d(x, 3, 2, 0, ceil_mode=True)))
        return self.fc(nn.mean(y, dim=(2, 3)))


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_pooling_of_another_size_is_the_only_place(backend):
    torch.manual_seed(0)
    ((place, what, why),) = places(Pooled(), PooledOnce.on(backend)(), PICTURES)
    assert (place, what) == ("", "output")
    assert "padding 0 instead of ((1, 1), (1, 1))" in why


class Normed(nn.Module):
    """A batch norm by hand, which may forget statistics, or a scale that grows with the calls."""

    def __init__(self, forgotten=(), growth=1.0):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 5), nn.Linear(5, 6)
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("var", torch.ones(5))
        self.register_buffer("calls", torch.zeros(()))
        self.forgotten, self.growth = forgotten, growth

    def forward(self, x):
        y = self.fc(x)
        mean, var = y.mean(0), y.var(0, unbiased=False)
        if self.training:
            with torch.no_grad():
                self.mean = 0.9 * self.mean + 0.1 * mean
                self.var = 0.9 * self.var + 0.1 * var
                self.calls = self.calls + 1
        else:
            mean = 0.0 if "mean" in self.forgotten else self.mean
            var = 1.0 if "var" in self.forgotten else self.var
        late = self.training and self.calls > 1
        y = (y - mean) / (var + 1e-5) ** 0.5
        return self.out(self.growth * y if late else y)


@pytest.mark.parametrize("forgotten", [["mean"], ["var"]])
def test_fresh_statistics_that_evaluation_does_not_read_are_missed_there(forgotten):
    torch.manual_seed(0)
    proof = loaded(Normed(), Normed(forgotten), ROWS)
    assert proof.verdict == "diverges"
    assert proof.findings[0].mode == "eval"


def test_a_second_call_that_differs_is_a_difference():
    torch.manual_seed(0)
    proof = loaded(Normed(), Normed(growth=1.5), ROWS)
    assert proof.verdict == "diverges"
    assert "the second one" in " ".join(proof.level("L1").notes)


def test_a_right_network_with_buffers_is_proved_over_two_calls():
    torch.manual_seed(0)
    proof = loaded(Normed(), Normed(), ROWS)
    assert proof.verdict == "proved"


def test_what_two_slips_do_together_is_said_of_neither_alone():
    class Two(Residual):
        def forward(self, x):
            hidden = F.leaky_relu(self.up(self.ln1(x)))
            return self.last(x + self.ln2(self.down(hidden)))

    other = Two()
    other.last.eps = 1e-3
    proof = loaded(Residual(), other, ROWS)
    effects = [one.effect for one in proof.findings if one.level == "L3"]
    assert len(effects) > 1
    assert all(each.startswith("Effect of all on evaluation") for each in effects)
