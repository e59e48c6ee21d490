"""Habits that small classes of others have: a line each, where the port once failed."""

import importlib

import numpy as np
import pytest

from deliralike import port
from deliralike.errors import ProofFailed
from tests.port.proving import proved

pytest.importorskip("libcst")
pytest.importorskip("chainer")
torch = pytest.importorskip("torch")

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
        super().__init__(); self.l = nn.Linear(5, 5); nn.init.ones_(self.l.bias)
        with torch.no_grad(): self.l.bias.zero_()
        self.g = nn.Parameter(torch.ones(5).mul_(k + 1)); self.l.weight.data.mul_(2.0)

    def forward(self, x):
        h = self.l(x)
        return h.reshape(-1).view_as(h + x) * self.g
"""
CHAIN_OF_MEMBERS = """
import chainer
import chainer.links as L

class Net(chainer.Chain):
    def __init__(self):
        super().__init__(l=L.Linear(5, 5)); self.factor = 3.0

    def forward(self, x):
        return self.factor * self.l(x)
"""
# A size that a network finds out of itself; parts of a sequence, frozen or with a name.
SIZES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 3, 2))
        x = torch.zeros(2, 1, 5)
        with torch.no_grad():
            for layer in self.features:
                x = layer(x)
        self.out = nn.Linear(x.flatten(1).shape[1], self._size(x))
        self.first, self.last = self.features[:2], self.features[2:]
        for p in self.features[2:].parameters():
            p.requires_grad = False

    def _size(self, x):
        return self.features(torch.zeros(1, 1, 7)).view(1, -1).size(1)

    def forward(self, x):
        return self.out(self.features(x[:, None]).flatten(1)), self.first(x[:, None])
"""
LOSSES = """
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.mse = nn.Linear(5, 5), nn.MSELoss(reduction="sum")
        self.norm = nn.SyncBatchNorm(5)

    def forward(self, x):
        y = self.l(x)
        label = x.argmax(1)
        loss = F.cross_entropy(y, label, None, ignore_index=1) + self.mse(y, x)
        loss = loss + F.cross_entropy(y, label, reduction="none").sum()
        return loss + F.triplet_margin_loss(y, x, -x, 0.7, p=1)
"""
# Of former times: values without a gradient, an array that NumPy has made.
OLD = """
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 5)
        self.table = nn.Embedding.from_pretrained(torch.FloatTensor(np.eye(3, 5)))
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
        y = self.l(x)
        if self.training:
            self.mean.data.mul_(0.9).add_(y.data.mean(0))
        zeros = y.data.new(y.data.size()).zero_().clamp_min(0.5)
        y = F.softmax(y, 1) * y.data + zeros + self.mean
        return y + self.table(torch.arange(3)), F.log_softmax(y[None], 0)
"""
CHAIN_OF_VALUES = """
import chainer
import chainer.functions as F
import chainer.links as L

class Net(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(5, 5)

    def forward(self, x):
        y = self.l(x)
        return F.exp(y) * chainer.Variable(y.data) + F.tanh(y).array, y.data.shape[0]
"""
KEPT_FUNCTION = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.ModuleDict(dict(fc=nn.Linear(5, 4), out=nn.Linear(4, 5)))
        m = self.mlp
        self.mlpf = lambda x: m.out(m.fc(x).tanh())

    def forward(self, x):
        return x + self.mlpf(x)
"""
# A buffer as an index, here and in a function outside of the class.
INDEXED = """
import torch
from torch import nn

def picked(table, order):
    return table[order]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 5)
        self.register_buffer("order", torch.arange(5).flip(0))

    def forward(self, x):
        y = self.l(x)
        return picked(y.t(), self.order), y[:, self.order]
"""
TEXTS = {
    "indexed": INDEXED,
    "chain": CHAIN,
    "chain_of_values": CHAIN_OF_VALUES,
    "kept_function": KEPT_FUNCTION,
    "old": OLD,
    "module": MODULE,
    "chain_of_members": CHAIN_OF_MEMBERS,
    "sizes": SIZES,
    "losses": LOSSES,
}


def ported(name, text, folder, monkeypatch):
    """The port of the class in a file with a text."""
    (folder / f"habits_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    network = importlib.import_module(f"habits_{name}").Net()
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    if not name.startswith("chain"):
        x = torch.from_numpy(x)
    return port(network, (x,))


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
@pytest.mark.parametrize("name", TEXTS)
def test_it_is_proved_without_a_touch(name, backend, tmp_path, monkeypatch):
    found = ported(name, TEXTS[name], tmp_path, monkeypatch)
    assert found.hands == []
    proved(found, backend)


HANDS = {
    "layers = [nn.Softmax()]": "Softmax without dim: 0 for inputs of one or three axes",
    "y = nn.functional.softmax(x)": "softmax without dim: 0 for inputs of one or three axes",
    "loss = nn.MSELoss(len(x) > 1)": "MSELoss with size_average or reduce: give reduction",
    "y = nn.functional.l1_loss(x, x, reduce=False)": "l1_loss with size_average or reduce",
    "with torch.set_grad_enabled(x is None): x": "y = y if trained else nn.detach(y)",
}
LINE = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        {line}
        return x + 1
"""


@pytest.mark.filterwarnings("ignore:size_average and reduce args")
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize("line", HANDS)
def test_a_line_that_needs_a_hand_says_what_to_write(line, tmp_path, monkeypatch):
    name = f"line_{list(HANDS).index(line)}"
    found = ported(name, LINE.format(line=line), tmp_path, monkeypatch)
    assert HANDS[line] in str(found.hands[0])


COUNTING = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.count = nn.Linear(5, 5), 0

    def forward(self, x):
        if {when}:
            self.count += 1
        return self.l(x) * min(1.0, self.count / 1000)
"""


@pytest.mark.parametrize("when", ["self.training", "not self.training"])
def test_what_a_plain_attribute_remembers_needs_a_hand(when, tmp_path, monkeypatch):
    name = f"counting_{when.count(' ')}"
    found = ported(name, COUNTING.format(when=when), tmp_path, monkeypatch)
    assert "remembers something between calls" in str(found.hands[0])
    with pytest.raises(ProofFailed, match="reset_state"):
        found.prove("jax")


LAZY = """
import sys
from .sizes import WIDTH

sys.modules[__name__].__package__ = None  # as modules that load others when asked
"""
USING = """
from habits_lazy import WIDTH
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, WIDTH)

    def forward(self, x):
        return self.l(x)
"""


def test_a_name_of_a_package_that_does_not_say_its_own(tmp_path, monkeypatch):
    package = tmp_path / "habits_lazy"
    package.mkdir()
    (package / "__init__.py").write_text(LAZY)
    (package / "sizes.py").write_text("WIDTH = 3")
    found = ported("using", USING, tmp_path, monkeypatch)
    assert found.hands == []
    assert "WIDTH = 3" in found.source


BRANCHES = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 5)

    def forward(self, x, other=None):
        x = self.l(x)
        if x is not None:
            x = x.view(-1, 5)
        if other is not None:
            x = x + other.view(-1, 5)
        return x
"""


def test_a_branch_that_no_input_takes_is_reported(tmp_path, monkeypatch):
    found = ported("branches", BRANCHES, tmp_path, monkeypatch)
    number = BRANCHES.splitlines().index("            x = x + other.view(-1, 5)") + 1
    told = [str(one) for one in found.left_out if "did not take" in one.text]
    assert len(told) == 1
    assert f"habits_branches.py:{number}: " in told[0]


OUTSIDE = """
import torch
from torch import nn

def size_of(net):
    return net(torch.zeros(1, 5)).shape[1]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 4)
        self.out = nn.Linear(size_of(self.l), 2)

    def forward(self, x):
        return self.out(self.l(x))
"""


def test_a_network_called_in_a_function_outside_needs_a_hand(tmp_path, monkeypatch):
    found = ported("outside", OUTSIDE, tmp_path, monkeypatch)
    assert "self.backend.prepare(x, net)" in str(found.hands[0])


FROZEN = """
import torch
from torch import nn

def train_only(net, names):
    for name, parameter in net.named_parameters():
        parameter.requires_grad = any(word in name for word in names)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 5), nn.Sequential(nn.Linear(5, 5)))
        train_only(self, ["1.0.bias"])
        self.tail = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5)).requires_grad_(False)
        self.order = nn.Parameter(torch.arange(5).flip(0), requires_grad=False)

    def forward(self, x):
        return self.tail(self.body(x)[:, self.order])
"""


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_what_is_trained_is_what_the_class_trains(backend, tmp_path, monkeypatch):
    found = ported("frozen", FROZEN, tmp_path, monkeypatch)
    assert found.hands == []
    assert found.source.count("set_trainable") == 3
    assert 'self.set_trainable("tail.*", False)' in found.source
    slots = found.network(backend).neutral_slots()
    trained = {name for name, slot in slots.items() if slot.trainable}
    parameters = dict(found.reference.named_parameters())
    assert trained == {name for name, one in parameters.items() if one.requires_grad}
    assert trained == {"body.1.0.bias"}
    proved(found, backend)


THAWING = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(5, 5)

    def forward(self, x):
        {line}
        return self.l(x)
"""


@pytest.mark.parametrize(
    "line",
    [
        "self.l.weight.requires_grad = self.training",
        "self.l.requires_grad_(self.training)",
    ],
)
def test_training_a_layer_at_times_needs_a_hand(line, tmp_path, monkeypatch):
    text = THAWING.format(line=line)
    found = ported(f"thawing_{len(line)}", text, tmp_path, monkeypatch)
    assert "whether it is trained is said in __init__" in str(found.hands[0])


CHAINED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        mask = torch.ones(5)
        mask.add_(1).mul_(2)
        self.register_buffer("mask", mask)

    def forward(self, x):
        return x * self.mask
"""


def test_methods_that_write_over_one_behind_the_other_need_a_hand(
    tmp_path, monkeypatch
):
    (hand,) = ported("chained", CHAINED, tmp_path, monkeypatch).hands
    assert "habits_chained.py:9: mul_ while the network is created" in str(hand)
