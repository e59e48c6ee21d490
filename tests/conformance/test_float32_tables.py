"""A table that one side has rounded to float32 is named, where it is added."""

import numpy as np
import pytest
import torch
from torch import nn

from deliralike.conformance import compare
from deliralike.conformance.explain import tables
from deliralike.conformance.explain.glue import Glue

X = np.random.default_rng(0).normal(size=(4, 5, 6))
TABLE = np.sin(np.arange(1, 43.0)).reshape(7, 6)
ROUNDED = TABLE.astype(np.float32).astype(float)


def explained(difference, table=ROUNDED):
    reference = X + ROUNDED[:5]
    return tables.explain(Glue({}, reference, reference + difference, tables={"pe": table}))


def test_a_rounded_table_is_the_cause():
    found = explained((TABLE - ROUNDED)[:5])
    assert found.known
    assert found.cause.startswith("pe being computed in float32")


@pytest.mark.parametrize(
    ("difference", "table"),
    [
        (1e-8 * X, ROUNDED),  # another one in each sample
        (np.full((5, 6), 1e-3), ROUNDED),  # too large
        ((TABLE - ROUNDED)[:5], TABLE),  # the reference's is in float64
        (0.0, ROUNDED),
    ],
    ids=["each sample", "large", "float64", "nothing"],
)
def test_other_differences_are_not(difference, table):
    assert explained(difference, table) is None


class Positions(nn.Module):
    """What is made by `wide` is no buffer: a port that has the numbers in float64."""

    def __init__(self, wide):
        super().__init__()
        self.embed, self.norm, self.fc = nn.Embedding(9, 6), nn.LayerNorm(6), nn.Linear(6, 4)
        self.wide = torch.from_numpy(TABLE) if wide else None
        self.register_buffer("pe", torch.from_numpy(TABLE).float())

    def forward(self, words):
        table = self.pe if self.wide is None else self.wide
        return self.fc(self.norm(self.embed(words) + table[: words.shape[1]]).mean(1))


def test_a_port_with_a_table_in_float64_is_told_of_it():
    torch.manual_seed(0)
    words = np.random.default_rng(0).integers(0, 9, (5, 6))
    found = compare(
        Positions(False),
        Positions(True),
        (words, words[:, 0] % 4),
        weights="load",
        levels=("L1", "L3"),
    )
    (finding,) = (one for one in found.level("L3").findings if one.what == "the input of norm")
    assert "pe being computed in float32" in finding.explanation.cause
