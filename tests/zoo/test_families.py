"""Each family computes what its source says: against the same formulas written with PyTorch's or
NumPy's functions."""

from fnmatch import fnmatch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_array_equal

from deliralike import zoo
from deliralike.errors import ShapeError
from tests.zoo.case import drawn, on_torch


def scrambled(name, **settings):
    """A network on PyTorch in evaluation mode, with every number in its state away from its start
    value."""
    net = on_torch(name, seed=2, **settings)
    generator = np.random.default_rng(1)
    state = net.neutral_state()
    for key, value in state.items():
        if key.endswith(("bias", "running_mean")):
            state[key] = 0.1 * generator.standard_normal(value.shape)
        elif value.ndim == 1:
            state[key] = generator.uniform(0.5, 1.5, value.shape)
    net.load_neutral_state(state)
    return net, {
        key: torch.from_numpy(np.asarray(value)) for key, value in state.items()
    }


def batch_norm(x, state, at):
    names = ("running_mean", "running_var", "weight", "bias")
    return F.batch_norm(x, *(state[f"{at}.{name}"] for name in names), False, 0.0, 1e-5)


SAMPLE = drawn(2, 3, 65, 47)


def test_the_small_residual_network_computes_what_the_paper_says():
    net, state = scrambled("resnet20")
    x = F.relu(
        batch_norm(F.conv2d(SAMPLE, state["conv1.weight"], None, 1, 1), state, "bn1")
    )
    for stage in (1, 2, 3):
        for block in range(3):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = F.relu(
                batch_norm(
                    F.conv2d(x, state[f"{at}.conv1.weight"], None, stride, 1),
                    state,
                    f"{at}.bn1",
                )
            )
            y = batch_norm(
                F.conv2d(y, state[f"{at}.conv2.weight"], None, 1, 1), state, f"{at}.bn2"
            )
            shortcut = x if stride == 1 else torch.zeros_like(y)
            if stride == 2:
                extra = y.shape[1] - x.shape[1]
                shortcut[:, extra // 2 : extra // 2 + x.shape[1]] = x[:, :, ::2, ::2]
            x = F.relu(y + shortcut)
    expected = F.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])
    torch.testing.assert_close(net(SAMPLE).detach(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "last", "other"), [("resnet18", "bn2", "bn1"), ("resnet50", "bn3", "bn2")]
)
def test_zero_init_residual_silences_the_last_normalisation_alone(
    name, last, other, backend
):
    state = zoo.build(
        name, backend=backend, zero_init_residual=True, layers=(1, 1, 1, 1)
    ).neutral_state()
    for stage in (1, 2, 3, 4):
        assert_array_equal(state[f"layer{stage}.0.{last}.weight"], 0.0)
        assert_array_equal(state[f"layer{stage}.0.{other}.weight"], 1.0)
    assert_array_equal(state["bn1.weight"], 1.0)
    assert_array_equal(state["layer2.0.downsample.1.weight"], 1.0)


UNFIT = {
    "axes": ("resnet18", (2, 3, 33), "Conv2d at 'conv1'"),
    "width": ("mlp", (2, 5), "Linear at 'layers.0'.*784"),
    "size": ("lenet", (2, 1, 33, 33), "Linear at 'fc1'"),
    "unet axes": ("unet", (2, 1, 33), "Conv2d at 'conv_0.conv_0.conv'"),
    "unet size": (
        "unet",
        (2, 1, 15, 33),
        r"the stage 'down_4': it needs at least 16 elements",
    ),
    "one value": ("unet", (2, 1, 16, 16), "'down_4.convs.conv_0.adn.N'"),
    "one value in training": (
        "resnet18",
        (1, 3, 32, 32),
        "BatchNorm2d at 'layer4.0.bn1'.*more than one value",
    ),
}


@pytest.mark.parametrize("label", UNFIT)
def test_inputs_that_do_not_fit_are_refused_by_the_layer(label):
    name, shape, message = UNFIT[label]
    net = zoo.build(name, backend="torch")
    with pytest.raises(ShapeError, match=message):
        net(torch.zeros(shape))


def test_the_perceptron_flattens_images_and_is_linear_without_hidden_layers():
    settings = {"in_features": 12, "out_features": 2, "hidden": ()}
    net = zoo.build("mlp", backend="torch", **settings)
    x = torch.randn(3, 1, 3, 4)
    torch.testing.assert_close(net(x), net.layers[0](x.reshape(3, 12)))


@pytest.mark.parametrize(
    ("name", "settings", "path", "std"),
    [
        ("resnet20", {"shortcut": "B"}, "layer2.0.conv1.weight", (2 / (16 * 9)) ** 0.5),
        (
            "resnet20",
            {"shortcut": "B"},
            "layer2.0.downsample.0.weight",
            (2 / 16) ** 0.5,
        ),
        ("transformer_classifier", {"vocab_size": 500}, "embedding.weight", 512**-0.5),
        ("t5_small", {"vocab_size": 99, "num_layers": 1}, "shared.weight", 1.0),
        ("t5_small", {"vocab_size": 99, "num_layers": 1}, "*.k.weight", 512**-0.5),
        ("tcn", {}, "tcn.network.0.downsample.weight", 0.01),
        ("tcn", {}, "tcn.network.1.conv1.weight_g", 0.0),
        ("inception_time", {}, "*.inception.1.convs.0.weight", (2 / (40 * 64)) ** 0.5),
        ("inception_time", {}, "*.shortcut.1.0.weight", (2 / 256) ** 0.5),
        ("inception_time", {}, "fc.bias", 0.0),
    ],
)
def test_start_values_without_a_reference_are_those_of_the_papers(
    name, settings, path, std
):
    state = zoo.build(name, backend="torch", **settings).neutral_state()
    found = next(value for name, value in state.items() if fnmatch(name, path))
    assert found.std() == pytest.approx(std, rel=0.1)
