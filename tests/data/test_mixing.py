"""Mixup and CutMix: their formulas, the same for any number of processes and replicas, and trained
on with the cross-entropy of probabilities."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import DataParallel, Network, rules
from deliralike.data import CutMix, Loader, Mixup
from deliralike.data.transforms import Compose
from deliralike.errors import BatchError, SettingError
from deliralike.training import Trainer
from tests.parallel.networks import devices

RNG = np.random.default_rng(4)
PICTURES = RNG.random((11, 2, 7, 5))
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 0])


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("alpha", [0.2, 3.0])
def test_mixup_is_its_formula(alpha):
    """Each sample is a weighted sum of itself and one other, and its label is the same one."""
    x, y = Mixup(3, alpha=alpha)((PICTURES, LABELS), rng())
    generator = rng()
    others = generator.permutation(11)
    shares = generator.beta(alpha, alpha, 11)
    for i, (j, s) in enumerate(zip(others, shares, strict=True)):
        assert_allclose(x[i], s * PICTURES[i] + (1 - s) * PICTURES[j], rtol=1e-12)
        wanted = np.zeros(3)
        wanted[LABELS[i]] += s
        wanted[LABELS[j]] += 1 - s
        assert_allclose(y[i], wanted, rtol=1e-12)


@pytest.mark.parametrize("shape", [(9,), (7, 5), (4, 7, 5)], ids=str)
def test_cutmix_pastes_a_box_whose_share_is_that_of_the_label(shape):
    """Pictures of one number each tell where an element comes from."""
    pictures = np.broadcast_to(
        np.arange(11.0).reshape(11, 1, *[1] * len(shape)), (11, 2, *shape)
    ).astype(np.float32)
    x, y = CutMix(11)((pictures, np.arange(11)), rng(1))
    assert (x.dtype, y.dtype, x.shape) == (np.float32, np.float32, pictures.shape)
    pasted = 0
    for i in range(11):
        values = {int(value) for value in np.unique(x[i])}
        assert len(values) <= 2
        for other in range(11):
            assert y[i, other] == pytest.approx((x[i] == other).mean(), abs=1e-6)
        places = np.argwhere(x[i, 0] != i)
        if len(places):
            sides = places.max(0) - places.min(0) + 1
            assert len(places) == sides.prod()  # a box without holes
            pasted += len(places) < pictures[0, 0].size
    assert pasted > 3


def test_a_box_has_the_share_that_is_drawn_and_the_proportions_of_the_picture():
    """With shares of one half, those that lie within have sides of the root of a half."""
    pictures = np.broadcast_to(np.arange(60.0).reshape(60, 1, 1, 1), (60, 1, 100, 60))
    x, _ = CutMix(60, alpha=1e9)((pictures, np.arange(60)), rng())
    boxes = [np.argwhere(each[0] != i) for i, each in enumerate(x)]
    sides = [np.ptp(box, axis=0) + 1 for box in boxes if len(box)]
    assert np.max(sides, axis=0).tolist() == [70, 42]


@pytest.mark.parametrize(
    "mixing",
    [Mixup(3), Compose([CutMix(3)])],
    ids=lambda each: type(each).__name__,
)
def test_processes_have_their_shares_of_the_same_batches(mixing):
    loader = Loader((PICTURES, LABELS), 4, seed=1, batch_transform=mixing)
    for epoch in (0, 1):
        whole = list(loader.batches(epoch))
        for count in (2, 3):
            shares = [
                list(loader.shared(rank, count).batches(epoch)) for rank in range(count)
            ]
            for number, batch in enumerate(whole):
                for place, array in enumerate(batch):
                    of_processes = [share[number][place] for share in shares]
                    assert_array_equal(np.concatenate(of_processes), array)
        resumed = list(loader.batches(epoch, 1))
        assert_array_equal(resumed[0][0], whole[1][0])


class Scores(Network):
    """A linear map of pictures."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(70, 3)

    def forward(self, x):
        return self.fc(self.nn.flatten(x, 1))


def soft(network, x, y):
    nn = network.nn
    weight = nn.constant(np.array([1.0, 0.5, 2.0]), like=x)
    return nn.cross_entropy(network(x), y, weight=weight, label_smoothing=0.1)


def test_cross_entropy_of_mixed_labels_is_that_of_pytorch(backend):
    """With class weights and label smoothing; in two replicas as in one."""
    x, y = Mixup(3, alpha=1.0)((PICTURES, LABELS), rng())
    network = Scores.on(backend, dtype="float64", seed=1)()
    state = network.neutral_state()
    layer = torch.nn.Linear(70, 3).double()
    layer.load_state_dict(
        {key[3:]: torch.tensor(value) for key, value in state.items()}
    )
    target, weight = torch.tensor(y), torch.tensor([1.0, 0.5, 2.0]).double()
    scores = layer(torch.tensor(x).flatten(1))
    wanted = torch.nn.functional.cross_entropy(
        scores, target, weight, label_smoothing=0.1
    )
    wanted.backward()
    found = backend.gradients(soft, network, x, y)
    assert found.loss == pytest.approx(wanted.item(), rel=1e-12)
    for name, each in found.parameters.items():
        wanted_gradient = getattr(layer, name[3:]).grad.numpy()
        assert_allclose(each, wanted_gradient, rtol=1e-11, atol=1e-14)
    replicated = DataParallel(network, devices(backend, 2))
    optimizer = backend.optimizer(rules.rule("sgd", lr=0.5), replicated)
    optimizer.update(soft, x, y)
    moved = replicated.neutral_state()["fc.weight"]
    wanted_weight = state["fc.weight"] - 0.5 * layer.weight.grad.numpy()
    assert_allclose(moved, wanted_weight, rtol=1e-11, atol=1e-13)


def test_the_default_loss_refuses_mixed_labels(backend):
    """It would be the mean squared error."""
    loader = Loader((PICTURES, LABELS), 4, batch_transform=Mixup(3))
    trainer = Trainer(Scores.on(backend)(), rules.rule("sgd", lr=0.1))
    with pytest.raises(
        BatchError, match="rows of probabilities, as mixup .* name the loss"
    ):
        trainer.fit(loader)


BAD = {
    "bytes": (((PICTURES * 255).astype(np.uint8), LABELS), r"batch\[0\] is .*uint8"),
    "masks": ((PICTURES, np.zeros((11, 7, 5), int)), "0 of classes; batch.1. is"),
    "names": ((PICTURES, LABELS, ["a"] * 11), r"batch\[2\]\[0\] is"),
    "no labels": ((PICTURES,), "1 arrays of floats and 0 of classes"),
    "a large class": (
        (PICTURES, LABELS + 1),
        "class 3 is out of range, .* from 0 to 2",
    ),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("mixing", [Mixup(3), CutMix(3)], ids=["mixup", "cutmix"])
def test_a_batch_that_cannot_be_mixed_is_an_error(mixing, bad):
    batch, message = BAD[bad]
    with pytest.raises(BatchError, match=message):
        mixing(batch, rng())


def test_what_makes_no_sense_is_refused():
    with pytest.raises(
        BatchError, match=r"CutMix wants pictures of one size.*\(11, 4\)"
    ):
        CutMix(3)((np.zeros((11, 4)), LABELS), rng())
    with pytest.raises(
        SettingError, match="Mixup: num_classes=1 must be a whole number of at"
    ):
        Mixup(1)
    with pytest.raises(
        SettingError, match="CutMix: alpha=0.0 must be a finite number above 0"
    ):
        CutMix(3, alpha=0.0)
    with pytest.raises(
        SettingError, match="Mixup: alpha=inf must be a finite number above 0"
    ):
        Mixup(3, alpha=np.inf)
