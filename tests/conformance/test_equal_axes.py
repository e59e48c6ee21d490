"""Arrays whose axes are equally long lie as the reference's, unless that cannot be."""

import numpy as np
import pytest
import torch

from deliralike import backends
from deliralike.conformance.layout_adapter import fit
from deliralike.conformance.matching.aligning import Orders, align
from deliralike.conformance.pairs import bring_together
from deliralike.conformance.subject import Subject

SIDE = 3  # batch, channels, height and width


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def test_an_array_that_is_close_as_it_lies_is_not_taken_for_a_turned_one():
    reference = 1.0 + 1e-5 * drawn(SIDE, SIDE, SIDE, SIDE)
    turned = np.ascontiguousarray(reference.transpose(1, 0, 2, 3))
    orders = Orders()
    (leaf,) = align(reference, turned, orders).leaves
    assert leaf.transform.plain
    assert not orders.used


class Deep(torch.nn.Module):
    """A network whose output hardly depends on what is put in.

    Args:
        shift: Of the first score.
        turned: Whether samples come second.
    """

    def __init__(self, shift=0.0, turned=False):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(SIDE, SIDE, 3, padding=1)
        self.head = torch.nn.Linear(SIDE, SIDE)
        self.shift, self.turned = torch.tensor([shift, 0.0, 0.0]), turned
        self.double()

    def forward(self, x):
        x = x.transpose(0, 1) if self.turned else x
        return self.head(torch.relu(self.conv(x)).mean((2, 3)) * 1e-4) + self.shift


def loss_of(network, x, y):
    return torch.nn.functional.cross_entropy(network(torch.tensor(x)), torch.tensor(y))


def test_a_layout_in_which_the_loss_agrees_by_chance_is_none():
    batch = (drawn(SIDE, SIDE, SIDE, SIDE), np.arange(SIDE))
    reference = Deep()
    right, turned = loss_of(reference, *batch), loss_of(Deep(turned=True), *batch)
    (slope,) = torch.autograd.grad(right, reference.head.bias)
    shift = ((right - turned) / slope[0]).item()
    by_chance = loss_of(Deep(shift, turned=True), *batch).item()
    assert by_chance == pytest.approx(right.item(), rel=1e-11)
    sides = [Subject(backends.wrap(one)) for one in (reference, Deep(shift))]
    assert fit(*sides, batch).layout.inputs == {}


def test_a_layout_in_which_all_activations_agree_is_found():
    batch = (drawn(SIDE, SIDE, SIDE, SIDE), np.arange(SIDE))
    sides = [Subject(backends.wrap(one)) for one in (Deep(), Deep(turned=True))]
    assert fit(*sides, batch).layout.inputs == {4: (1, 0, 2, 3)}


def test_activations_of_nearly_the_same_name_keep_their_own():
    class Two(torch.nn.Module):
        def __init__(self, first):
            super().__init__()
            self.fc = torch.nn.Linear(SIDE, SIDE)
            self.act, self.act2 = first, torch.nn.ReLU()

        def forward(self, x):
            return self.act2(self.fc(self.act(x)) + x)

    sides = [
        Subject(backends.wrap(Two(act))) for act in (torch.nn.ReLU(), torch.nn.GELU())
    ]
    match = bring_together(sides, (drawn(5, SIDE), np.arange(5) % SIDE), {}).match
    assert {"act": "act", "act2": "act2"}.items() <= match.blocks.items()
