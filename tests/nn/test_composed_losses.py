"""Deep supervision and perceptual losses beside the same sums in PyTorch."""

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.errors import ArgumentError, SettingError, ShapeError
from tests.nn.agreement import (
    FunctionCase,
    agree_all,
    agree_function,
    agree_twice,
    hold,
    normal,
)

F = torch.nn.functional
LEVELS = [normal(0, 2, 3, 8, 5), normal(1, 2, 3, 4, 3), normal(2, 2, 3, 2, 2)]
LABELS = np.random.default_rng(0).integers(0, 3, (2, 8, 5))


def nearest(labels, size):
    return F.interpolate(labels[:, None].double(), size, mode="nearest")[:, 0].long()


def supervised(weights):
    def by_pytorch(fine, middle, coarse, labels):
        losses = [
            F.cross_entropy(x, nearest(labels, x.shape[2:]))
            for x in (fine, middle, coarse)
        ]
        return sum(
            w * loss
            for w, loss in zip(weights or [4 / 7, 2 / 7, 1 / 7], losses, strict=True)
        )

    return (
        lambda nn, *xs: nn.deep_supervision(nn.cross_entropy, xs[:3], xs[3], weights),
        by_pytorch,
        [*LEVELS, LABELS],
    )


def test_labels_are_resized_and_the_levels_are_halved(name):
    agree_twice(
        name,
        {f"{weights=}": supervised(weights) for weights in (None, [0.7, 0.3, 0.0])},
    )


def test_targets_with_channels_are_resized(name):
    def by_pytorch(fine, middle, target):
        resized = F.interpolate(target, middle.shape[2:], mode="nearest")
        return (
            2 / 3 * (fine - target).square().mean()
            + 1 / 3 * (middle - resized).square().mean()
        )

    agree_function(
        name,
        lambda nn, fine, middle, target: nn.deep_supervision(
            nn.mse_loss, [fine, middle], target
        ),
        by_pytorch,
        [*LEVELS[:2], normal(3, 2, 3, 8, 5)],
    )


def test_a_target_for_each_level_is_taken_as_it_is(name):
    targets = [normal(9 + level, *x.shape) for level, x in enumerate(LEVELS[:2])]
    agree_function(
        name,
        lambda nn, a, b, c, d: nn.deep_supervision(
            nn.l1_loss, [a, b], [c, d], [1.0, 0.5]
        ),
        lambda a, b, c, d: F.l1_loss(a, c) + 0.5 * F.l1_loss(b, d),
        [*LEVELS[:2], *targets],
    )


def test_levels_that_do_not_fit_are_refused(network):
    nn = network.nn
    x, y, labels = network.backend.prepare((*LEVELS[:2], LABELS), network)
    with pytest.raises(ArgumentError, match="2 predictions, 2 targets and 1 weights"):
        nn.deep_supervision(nn.cross_entropy, [x, y], labels, [1.0])
    with pytest.raises(ArgumentError, match="0 predictions"):
        nn.deep_supervision(nn.cross_entropy, [], labels)
    with pytest.raises(
        ShapeError,
        match=r"a target of shape \(1, 8, 5\) does not fit a prediction of shape",
    ):
        nn.deep_supervision(nn.cross_entropy, [x, y], labels[:1])


SMALL = {"layers": (1, 1, 1, 1), "num_classes": 2}


def test_perceptual_losses_agree_with_torchvisions_network(backend):
    import torchvision

    torch.manual_seed(0)
    oracle = (
        torchvision.models.resnet.ResNet(
            torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], 2
        )
        .double()
        .eval()
    )
    judge = zoo.build("resnet18", backend=backend.name, dtype="float64", **SMALL).train(
        False
    )
    judge.load_neutral_state(
        {key: value.numpy() for key, value in oracle.state_dict().items()}
    )
    x, y = normal(0, 2, 3, 17, 16), normal(1, 2, 3, 17, 16)

    def stages(pictures):
        stem = oracle.relu(oracle.bn1(oracle.conv1(pictures)))
        return {
            "stem": stem,
            "layer2": oracle.layer2(oracle.layer1(oracle.maxpool(stem))),
        }

    def case(weights):
        def by_pytorch(a, b):
            share = (
                weights if isinstance(weights, dict) else dict.fromkeys(weights, 1.0)
            )
            found, wanted = stages(a), stages(b)
            return sum(
                w * F.l1_loss(found[stage], wanted[stage]) for stage, w in share.items()
            )

        return FunctionCase(
            lambda nn, a, b: nn.perceptual_loss(judge, a, b, weights, nn.l1_loss),
            by_pytorch,
            [x, y],
        )

    agree_all(
        backend.name,
        {
            "weighted": case({"stem": 0.25, "layer2": 2.0}),
            "plain": case(("stem", "layer2")),
        },
    )


def test_a_perceptual_loss_wants_a_frozen_network_and_stages_that_it_has(backend):
    judge = zoo.build("resnet18", backend=backend.name, dtype="float64", **SMALL)
    network = hold(backend.name)
    x = backend.prepare(normal(0, 2, 3, 33, 33), network)
    with pytest.raises(
        SettingError, match="perceptual_loss: the network is in training mode"
    ):
        network.nn.perceptual_loss(judge.train(), x, x, ["stem"])
    with pytest.raises(
        SettingError, match="perceptual_loss: no stage 'layer5'. Did you mean 'layer"
    ):
        network.nn.perceptual_loss(judge.train(False), x, x, ["stem", "layer5"])
    assert (
        float(backend.numpy(network.nn.perceptual_loss(judge, x, x, ["stem"]))) == 0.0
    )
