"""What users of other libraries hand to a `Trainer` by mistake is refused, with what is wanted."""

from collections import namedtuple

import numpy as np
import pytest

from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import ArgumentError, DtypeError, StructureError
from deliralike.optim import rules
from deliralike.training import Trainer

torch = pytest.importorskip("torch")

SAMPLES = np.ones((6, 3), np.float32), np.arange(6) % 2
SGD = rules.rule("sgd", lr=0.5)
Output = namedtuple("Output", "logits features")


class Structured(torch.nn.Linear):
    """Gives its scores with something else beside them."""

    def __init__(self, container):
        super().__init__(3, 2)
        self.container = container

    def forward(self, x):
        return self.container(super().forward(x), x)


def fit(network, optimizer=SGD, **options):
    return Trainer(network, optimizer, **options).fit(SAMPLES, batch_size=3)


def test_an_optimizer_of_another_module_is_refused():
    other = torch.optim.SGD(torch.nn.Linear(4, 2).parameters(), lr=0.1)
    with pytest.raises(
        ArgumentError, match=r"none of the network's.*shape \(2, 4\).*that is"
    ):
        fit(torch.nn.Linear(3, 2), other)


def test_an_optimizer_of_some_of_the_parameters_is_taken():
    network = torch.nn.Linear(3, 2)
    before = network.weight.detach().clone(), network.bias.detach().clone()
    fit(network, torch.optim.SGD([network.bias], lr=0.1))
    assert torch.equal(network.weight, before[0])
    assert not torch.equal(network.bias, before[1])


@pytest.mark.parametrize("made", [True, False])
def test_a_scheduler_of_pytorch_is_refused(made):
    network = torch.nn.Linear(3, 2)
    optimizer, scheduler = (
        torch.optim.SGD(network.parameters(), 0.1),
        torch.optim.lr_scheduler.StepLR,
    )
    given = scheduler(optimizer, 1) if made else scheduler
    word = "a StepLR" if made else "the class StepLR"
    with pytest.raises(
        ArgumentError, match=f"a schedule is {word}, wanted a name such as 'cosine'"
    ):
        fit(network, optimizer, schedule=given)


@pytest.mark.parametrize(
    ("container", "named", "path"),
    [
        (Output, "an Output", "prediction.logits"),
        (
            lambda y, x: {"logits": y},
            r"a dict with keys \['logits'\]",
            r"prediction\['logits'\]",
        ),
    ],
)
def test_a_prediction_of_several_arrays_wants_a_loss_that_takes_one_out(
    container, named, path
):
    with pytest.raises(
        StructureError, match=rf"gives {named}.*cross_entropy\({path}, target\)"
    ):
        fit(Structured(container))


def test_the_loss_that_the_message_proposes_is_that_of_the_scores_alone():
    alone, structured = torch.nn.Linear(3, 2), Structured(Output)
    structured.load_state_dict(alone.state_dict())
    cross_entropy = torch.nn.functional.cross_entropy
    found = fit(
        structured, losses={"loss": lambda both, y: cross_entropy(both.logits, y)}
    )
    assert np.array_equal(found.losses, fit(alone).losses)


def test_a_loss_of_prediction_and_target_without_a_name_is_refused():
    network, loss = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss()
    with pytest.raises(
        ArgumentError, match=r"losses=CrossEntropyLoss is called as \(network"
    ):
        fit(network, losses=loss)
    assert len(fit(network, losses={"loss": loss}).losses) == 2


@pytest.mark.parametrize(
    ("kind", "named"), [(str, "<U3"), (object, "object")]
)  # pandas' objects
def test_labels_that_are_texts_are_to_be_numbered(kind, named):
    texts = np.array(["cat", "ape", "cat", "ape", "ape", "cat"], kind)
    trainer = Trainer(torch.nn.Linear(3, 2), SGD)
    with pytest.raises(
        DtypeError,
        match=rf"batch\[1\] is an array of {named}.*np\.unique\(texts, return",
    ):
        trainer.fit((SAMPLES[0], texts))
    labels = np.unique(texts.astype(str), return_inverse=True)[1]
    assert labels.tolist() == [1, 0, 1, 0, 0, 1]
    assert len(trainer.fit((SAMPLES[0], labels)).losses) == 1


def test_an_error_of_type_within_a_loss_stays_as_it_is():
    def loss(network, x, target):
        return len(3)

    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        fit(torch.nn.Linear(3, 2), losses=loss)


@pytest.mark.parametrize(
    "make", [torch.nn.Linear, chainer.links.Linear], ids=["torch", "chainer"]
)
def test_a_loss_that_is_a_number_of_python_is_refused(make):
    with pytest.raises(
        ArgumentError, match=r"gave 1\.5, a float, of which no .*\.item\(\)"
    ):
        fit(make(3, 2), losses={"loss": lambda *arrays: 1.5})
