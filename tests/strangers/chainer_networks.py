"""Networks of Chainer in the habits of real code."""

import numpy as np

from deliralike.backends.chainer.arrays import chainer
from tests.strangers.case import NO_FUNCTIONS, OWN_LOSS, Case, X, Y

F, L = chainer.functions, chainer.links


def mse(network, x, y):
    return F.mean_squared_error(network(x), y)


def in_dict(network, inputs, y):
    return F.mean_squared_error(network(inputs)["out"], y)


class Linear(chainer.Chain):
    """The base of most: one linear layer."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.layer = L.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


class Named(Linear):
    def __init__(self):
        super().__init__()
        self.backend, self.root, self.native = "gloo", "here", 1
        self.start_values, self.training = None, "always"


class Lazy(chainer.Chain):
    def __init__(self):
        super().__init__()
        start = chainer.initializers.Constant(0.3, dtype=np.float64)
        with self.init_scope():
            self.layer = L.Linear(None, 2, initialW=start)

    def forward(self, x):
        return self.layer(F.tanh(x))


class Twice(chainer.Chain):
    """One link under two names."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.there = L.Linear(4, 4)
            self.back = self.there
            self.out = L.Linear(4, 2)

    def forward(self, x):
        return self.out(self.back(F.tanh(self.there(x))))


class OfNumpy(Linear):
    """NumPy's own functions of the inputs."""

    def forward(self, x):
        return self.layer(np.tanh(x))


class OfDict(Linear):
    def forward(self, inputs):
        return {"out": self.layer(inputs["a"] + inputs["b"]), "in": inputs["a"]}


class OwnLoss(Linear):
    """The loss in training, predictions in evaluation."""

    def forward(self, x, y=None):
        out = self.layer(x)
        return out if y is None else F.mean_squared_error(out, y)


class Counting(Linear):
    """A persistent number, and an attribute that is none."""

    def __init__(self):
        super().__init__()
        self.add_persistent("calls", 0)
        self.sizes = []

    def forward(self, x):
        if chainer.config.train:
            self.calls += 1
        return self.layer(x) / (1 + 0.1 * self.calls)


class Sequences(chainer.ChainList):
    """NStepLSTM over sequences of different lengths, in a ChainList."""

    def __init__(self):
        super().__init__(L.NStepLSTM(1, 1, 3, 0.0), L.Linear(3, 2))

    def forward(self, x):
        lengths = [3 + int(each[0] > 0) for each in chainer.backend.from_chx(_array(x))]
        sequences = [
            x[i, :length].reshape(length, 1) for i, length in enumerate(lengths)
        ]
        hidden, _, _ = self[0](None, None, sequences)
        return self[1](hidden[-1])


class Closure(Linear):
    """A function among the attributes that holds the link itself."""

    def __init__(self):
        super().__init__()
        self.head = lambda x: F.tanh(self.layer(x))

    def forward(self, x):
        return self.head(x)


def _array(x):
    return x.array if isinstance(x, chainer.Variable) else x


def in_float64(make):
    def build():
        np.random.seed(3)
        with chainer.using_config("dtype", np.float64):
            return make()

    return build


def case(make, loss=mse, batch=(X, Y), **options):
    return Case(in_float64(make), loss, batch, **options)


ONCE = ("told: updated once a step", "are one parameter")
TRAINED = ("train", "two replicas", "resume", "evaluate and predict", "what is left")

NETWORKS = {
    "attributes of our names": case(Named),
    "a lazy layer": case(Lazy),
    "a link under two names": case(Twice, refused=dict.fromkeys(TRAINED, ONCE)),
    "NumPy on the inputs": case(OfNumpy),
    "a dict of inputs": case(OfDict, in_dict, ({"a": X, "b": 2 * X}, Y)),
    "the loss within forward": case(
        OwnLoss, lambda network, x, y: network(x, y), refused=OWN_LOSS
    ),
    "a persistent number": case(Counting),
    "sequences of NStepLSTM": case(Sequences),
    "closures of the link": case(Closure, refused={"pickle": NO_FUNCTIONS}),
}
