"""Lines that a formatter would not leave as they are, and arguments that are sums."""

import importlib

import numpy as np
import pytest

from deliralike import port

pytest.importorskip("libcst")

CHAIN = """
import chainer
import chainer.functions as F
import chainer.links as L

class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope(): self.l = L.Linear(5, 5)

    def forward(self, x):
        h = self.l(x)
        y = F.local_response_normalization((x + h)[:, :, None], 2 + 1)
        return F.hard_sigmoid(h - x) * y[:, :, 0]
"""
MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, k=2):
        super().__init__(); self.l = nn.Linear(5, 5)
        with torch.no_grad(): self.l.bias.zero_()
        self.g = nn.Parameter(torch.ones(5).mul_(k + 1))

    def forward(self, x):
        h = self.l(x)
        return h.reshape(-1).view_as(h + x) * self.g
"""


TEXTS = {"chainer": CHAIN, "torch": MODULE}


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
@pytest.mark.parametrize("framework", TEXTS)
def test_it_is_proved_without_a_touch(framework, backend, tmp_path, monkeypatch):
    native = pytest.importorskip(framework)
    name = f"terse_{framework}"
    (tmp_path / f"{name}.py").write_text(TEXTS[framework])
    monkeypatch.syspath_prepend(tmp_path)
    network = importlib.import_module(name).Net()
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    if framework == "torch":
        x = native.from_numpy(x)
    found = port(network, (x,))
    assert found.hands == []
    proof = found.prove(backend)
    assert proof.headline.startswith("PROVED"), proof.headline
