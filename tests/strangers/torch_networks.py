"""Networks of PyTorch in the habits of real code."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.strangers.case import NO_FUNCTIONS, NOT_KEPT, OWN_LOSS, TEXTS, Case, X, Y

NO_COMPLEX = "refused: files have no complex numbers"


def mse(network, x, y):
    return F.mse_loss(network(x), y)


def by_keyword(network, inputs, y):
    return F.mse_loss(network(**inputs), y)


def in_dict(network, inputs, y):
    return F.mse_loss(network(inputs)["out"], y)


class Linear(nn.Module):
    """The base of most: one linear layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


class Table(Linear):
    """A table that is made at the first call, in training or not."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0.5, 1.0, 4, dtype=x.dtype)
        return (
            self.layer(self.layer.weight.new_ones(1) * x * self.table) * self.table[:2]
        )


class Recurrent(nn.Module):
    """A hidden state that stays from batch to batch."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 3)
        self.out = nn.Linear(3, 2)
        self.hidden = None

    def forward(self, x):
        hidden = self.cell(x, self.hidden)
        self.hidden = hidden.detach()
        return self.out(hidden)


class Counting(Linear):
    """A buffer that is replaced at each call, and one that is changed in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer(
            "calls", torch.zeros((), dtype=torch.int64), persistent=False
        )

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * self.layer.weight.detach()[0]
        self.calls += 1
        return self.layer(x - self.mean)


def with_attributes(**attributes):
    def make():
        network = Linear()
        for name, value in attributes.items():
            setattr(network, name, value)
        return network

    return make


class AnswersAll(Linear):
    """Any unknown attribute is None."""

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return None


class Keyword(Linear):
    def forward(self, *, values):
        return self.layer(values)


class OfDict(Linear):
    def forward(self, inputs):
        return {"out": self.layer(inputs["a"] + inputs["b"]), "in": inputs["a"]}


class Extra(Linear):
    """State beside the tensors."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def get_extra_state(self):
        return torch.tensor([self.seen])

    def set_extra_state(self, state):
        self.seen = int(state)

    def forward(self, x):
        self.seen += self.training
        return self.layer(x) / (1 + 0.01 * self.seen)


class Texts(nn.Module):
    """A transformer with padding, which PyTorch computes by nested tensors in evaluation."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.out = nn.Linear(8, 2)

    def forward(self, ids):
        hidden = self.encoder(self.embed(ids), src_key_padding_mask=ids == 0)
        return self.out(hidden[:, 0])


class Closure(Linear):
    """Functions among the attributes that hold the module itself."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.head = lambda x: self.layer(x) * self.scale
        self.again = self.plain

    def plain(self, x):
        return self.head(x)

    def forward(self, x):
        return self.again(x)


class Explicit(Linear):
    """Types that are named in forward, whatever the parameters have."""

    def forward(self, x):
        return self.layer(x).float().tanh().to(self.layer.weight.dtype)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.phases = nn.Parameter(torch.randn(4, 2, dtype=torch.complex128))

    def forward(self, x):
        return (x.to(torch.complex128) @ self.phases).abs()


class Tied(nn.Module):
    """One weight under two names, and one layer called twice."""

    def __init__(self):
        super().__init__()
        self.there = nn.Linear(4, 4)
        self.back = nn.Linear(4, 4)
        self.back.weight = self.there.weight
        self.out = nn.Linear(4, 2)
        self.same = self.out

    def forward(self, x):
        return self.out(self.back(torch.tanh(self.there(x)))) + self.same(x)


class OwnLoss(Linear):
    """The loss in training, predictions in evaluation."""

    def forward(self, x, y=None):
        out = self.layer(x)
        return out if y is None else F.mse_loss(out, y)


class Branching(nn.Module):
    """A layer that only some samples use, and a part that is unused."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        chosen = (x[:, 0] > 0).long()
        outs = torch.stack([expert(x) for expert in self.experts], 1)
        return outs[torch.arange(len(x)), chosen]


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 3, batch_first=True)
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        lengths = 3 + (x[:, 0] > 0).long()
        packed = nn.utils.rnn.pack_padded_sequence(
            x.unsqueeze(-1), lengths, batch_first=True, enforce_sorted=False
        )
        _, (hidden, _) = self.lstm(packed)
        return self.out(hidden[-1])


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(9, 2, sparse=True, mode="sum")

    def forward(self, ids):
        return self.embed(ids)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        hidden = torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)
        return self.out(hidden)


class Adapter(nn.Module):
    """A state that leaves out what is trained beside the body."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)
        self.adapter = nn.Linear(4, 2)
        self.register_state_dict_post_hook(Adapter.drop)

    @staticmethod
    def drop(module, state, prefix, metadata):
        for name in [name for name in state if "adapter" in name]:
            del state[name]

    def forward(self, x):
        return self.body(x) + torch.tanh(self.adapter(x))


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.ones(4), torch.ones(4)])
        self.heads = nn.ParameterDict({"a": torch.ones(4, 2), "b": torch.zeros(2)})

    def forward(self, x):
        return (x * self.scales[0] + self.scales[1]) @ self.heads["a"] + self.heads["b"]


def parametrized():
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    nn.utils.parametrizations.weight_norm(network[0])
    return network


def spectral():
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    nn.utils.parametrizations.spectral_norm(network[0])
    return network


def hooked():
    """Hooks that the user has left."""
    network = Linear()
    network.layer.register_forward_hook(lambda module, inputs, output: output * 1.5)
    network.layer.weight.register_hook(lambda gradient: gradient * 2)
    return network


class Lazy(nn.LazyLinear):
    """A lazy layer that draws no start values."""

    def reset_parameters(self):
        if self.bias is not None and not self.has_uninitialized_params():
            with torch.no_grad():
                self.weight.copy_(
                    torch.linspace(-1, 1, self.weight.numel()).view_as(self.weight)
                )
                self.bias.zero_()


def lazy():
    return nn.Sequential(Lazy(5), nn.Tanh(), Lazy(2))


def scripted():
    return torch.jit.script(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))


def seeded(make):
    def build():
        torch.manual_seed(3)
        return make().double()

    return build


def case(make, loss=mse, batch=(X, Y), **options):
    return Case(seeded(make), loss, batch, **options)


NO_PICKLE = ("not by PyTorch", "Serialization of parametrized")

NETWORKS = {
    "a table made at the first call": case(Table),
    "a hidden state kept": case(Recurrent, refused={"resume": NOT_KEPT}),
    "buffers replaced": case(Counting),
    "an attribute backend": case(with_attributes(backend="gloo", start_values=None)),
    "an attribute root": case(with_attributes(root="here", native=1, device_name=None)),
    "`__getattr__` that answers None": case(AnswersAll),
    "`__data_parallel_replicate__ = None`": case(
        with_attributes(__data_parallel_replicate__=None)
    ),
    "keyword-only inputs": case(
        Keyword, by_keyword, ({"values": X}, Y), call=lambda network, x: network(**x)
    ),
    "a dict of inputs": case(OfDict, in_dict, ({"a": X, "b": 2 * X}, Y)),
    "extra state": case(Extra),
    "in place first": case(
        lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))
    ),
    "padded texts": case(Texts, batch=(TEXTS, Y)),
    "batch norm without momentum": case(
        lambda: nn.Sequential(
            nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 2)
        )
    ),
    "closures of the module": case(Closure, refused={"pickle": NO_FUNCTIONS}),
    "explicit float32": case(
        Explicit,
        close=1e-6,
        refused={"compare with a copy": ("undecided, told", "does not compute in it")},
    ),
    "complex parameters": case(
        Complex,
        refused={
            "resume": (NO_COMPLEX, "lack"),
            "weights out and in": (NO_COMPLEX, "complex128"),
        },
    ),
    "tied and shared": case(Tied),
    "the loss within forward": case(
        OwnLoss, lambda network, x, y: network(x, y), refused=OWN_LOSS
    ),
    "branches and an unused part": case(Branching),
    "packed sequences": case(Packed),
    "a sparse embedding": case(Sparse, batch=(TEXTS, Y)),
    "checkpointed by PyTorch": case(Checkpointed),
    "weight norm": case(parametrized, refused={"pickle": NO_PICKLE}),
    "spectral norm": case(spectral, refused={"pickle": NO_PICKLE}),
    "hooks": case(hooked, refused={"pickle": NO_FUNCTIONS}),
    "lazy layers": case(lazy),
    "TorchScript": case(
        scripted,
        refused={
            "two replicas": ("refused", "cannot be replicated"),
            "pickle": ("not by PyTorch", "__getstate__"),
        },
    ),
    "an adapter left out of state_dict": case(
        Adapter, refused={"weights out and in": ("not by PyTorch", "Missing key")}
    ),
    "parameters in lists and dicts": case(Lists),
}
