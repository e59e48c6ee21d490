"""A layer that cannot take its input is named, where a framework by itself names an operation."""

import numpy as np
import pytest

from deliralike import Network, training
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import DtypeError, ShapeError
from deliralike.inference.predictor import predictor_of
from deliralike.optim import rules
from tests.conftest import BACKENDS

torch = pytest.importorskip("torch")
nnx = pytest.importorskip("flax.nnx")
SGD = rules.rule("sgd", lr=0.5)
LABELS = np.arange(6) % 2
ROWS = np.ones((6, 9), np.float32)
PICTURES = np.ones((6, 5, 7, 3), np.float32)


class TorchRows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(10, 2))

    def forward(self, x):
        return self.body(x)


class ChainerRows(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.body = chainer.Sequential(
                chainer.functions.relu, chainer.links.Linear(10, 2)
            )

    def forward(self, x):
        return self.body(x)


class FlaxRows(nnx.Module):
    def __init__(self):
        self.body = nnx.Sequential(nnx.relu, nnx.Linear(10, 2, rngs=nnx.Rngs(0)))

    def __call__(self, x):
        return self.body(x)


ROW_NETWORKS = {
    "torch": (TorchRows, "Linear at 'body.1'"),
    "chainer": (ChainerRows, "Linear at 'body.1'"),
    "flax": (FlaxRows, "Linear at 'body.layers.1'"),
}
USES = {
    "fit": lambda network: training.Trainer(network, SGD).fit(
        (ROWS, LABELS), batch_size=6
    ),
    "evaluate": lambda network: training.evaluate(network, (ROWS, LABELS)),
    "predict": lambda network: list(training.predict(network, ROWS)),
    "predictor_of": lambda network: predictor_of(network)(ROWS),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("framework", ROW_NETWORKS)
def test_a_wrong_number_of_features_names_the_layer(framework, use):
    make, layer = ROW_NETWORKS[framework]
    shapes = r"got an input of shape \(6, 9\), wanted \(\.\.\., 10\)"
    wanted = f"{layer}: {shapes}: make the layer for 9"
    with pytest.raises(ShapeError, match=wanted) as caught:
        USES[use](make())
    assert caught.value.__cause__ is not None
    said = f"{make.__name__} was called with arrays (6, 9) float32"
    assert said in caught.value.__notes__


@pytest.mark.skipif("torch" not in BACKENDS, reason="replicates on PyTorch")
def test_a_replica_names_the_layer_too():
    trainer = training.Trainer(TorchRows(), SGD, devices=["cpu", "cpu"])
    with pytest.raises(
        ShapeError, match=r"Linear at 'body.1': got an input of shape \(3, 9\)"
    ):
        trainer.fit((ROWS, LABELS), batch_size=6)


CONVOLUTIONS = {
    "torch": lambda: torch.nn.Conv2d(3, 2, 3),
    "chainer": lambda: chainer.links.Convolution2D(3, 2, 3),
}


@pytest.mark.parametrize("framework", CONVOLUTIONS)
@pytest.mark.parametrize(
    ("pictures", "error", "message"),
    [
        (
            PICTURES,
            ShapeError,
            r"wanted \(batch, 3, height, width\): its channels come last",
        ),
        (
            PICTURES[..., 0],
            ShapeError,
            r"an axis is lacking, images\[:, np.newaxis\] adds it",
        ),
        (
            PICTURES.astype(np.uint8),
            DtypeError,
            r"got an input of uint8, .*astype\('float32'\)",
        ),
    ],
    ids=["channels last", "grey", "bytes"],
)
def test_pictures_of_another_layout_or_type_say_what_to_do(
    framework, pictures, error, message
):
    with pytest.raises(error, match=message):
        list(training.predict(CONVOLUTIONS[framework](), pictures))


class OfDicts(Network):
    """A forward pass that wants the whole batch."""

    def __init__(self):
        super().__init__()
        self.layer = self.nn.Linear(9, 2)

    def forward(self, batch):
        return self.layer(batch["x"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_network_of_whole_batches_is_told_what_forward_gets(backend):
    trainer = training.Trainer(OfDicts.on(backend)(), SGD)
    with pytest.raises((TypeError, IndexError)) as caught:
        trainer.fit({"x": ROWS, "y": LABELS}, batch_size=6)
    assert any(
        "OfDicts was called with arrays (6, 9) float32: forward gets the inputs" in note
        for note in caught.value.__notes__
    )


class Shifted(torch.nn.Module):
    """Fails in its own code, where no layer is at fault."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Flatten(0))
        self.shift = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.inner(x) + self.shift


def test_an_error_of_the_networks_own_code_keeps_its_class_and_gets_a_note():
    with pytest.raises(RuntimeError, match="size of tensor") as caught:
        list(training.predict(Shifted(), ROWS))
    assert caught.value.__notes__ == ["Shifted was called with arrays (6, 9) float32"]


def test_an_error_of_a_loss_gets_no_note_of_arrays():
    def loss(prediction, target):
        raise RuntimeError("of the loss")

    trainer = training.Trainer(torch.nn.Linear(9, 2), SGD, {"loss": loss})
    with pytest.raises(RuntimeError, match="of the loss") as caught:
        trainer.fit((ROWS, LABELS))
    assert "was called with" not in "".join(caught.value.__notes__)
