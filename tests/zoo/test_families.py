"""Each family computes what its source says: against the same formulas written with PyTorch's or
NumPy's functions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from deliralike import zoo
from deliralike.errors import SettingError, ShapeError
from deliralike.zoo.classification.resnet import Subsample


def scrambled(name, **settings):
    """A network on PyTorch in evaluation mode, with every number in its state away from its start
    value."""
    net = zoo.build(name, backend="torch", dtype="float64", seed=2, **settings).eval()
    generator = np.random.default_rng(1)
    state = net.neutral_state()
    for key, value in state.items():
        if key.endswith(("bias", "running_mean")):
            state[key] = 0.1 * generator.standard_normal(value.shape)
        elif value.ndim == 1:
            state[key] = generator.uniform(0.5, 1.5, value.shape)
    net.load_neutral_state(state)
    return net, {key: torch.from_numpy(np.asarray(value)) for key, value in state.items()}


def batch_norm(x, state, at):
    names = ("running_mean", "running_var", "weight", "bias")
    return F.batch_norm(x, *(state[f"{at}.{name}"] for name in names), False, 0.0, 1e-5)


SAMPLE = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 65, 47)))


def test_the_small_residual_network_computes_what_the_paper_says():
    net, state = scrambled("resnet20")
    x = F.relu(batch_norm(F.conv2d(SAMPLE, state["conv1.weight"], None, 1, 1), state, "bn1"))
    for stage in (1, 2, 3):
        for block in range(3):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = F.relu(
                batch_norm(
                    F.conv2d(x, state[f"{at}.conv1.weight"], None, stride, 1), state, f"{at}.bn1"
                )
            )
            y = batch_norm(F.conv2d(y, state[f"{at}.conv2.weight"], None, 1, 1), state, f"{at}.bn2")
            shortcut = x if stride == 1 else torch.zeros_like(y)
            if stride == 2:
                extra = y.shape[1] - x.shape[1]
                shortcut[:, extra // 2 : extra // 2 + x.shape[1]] = x[:, :, ::2, ::2]
            x = F.relu(y + shortcut)
    expected = F.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])
    torch.testing.assert_close(net(SAMPLE).detach(), expected, rtol=1e-10, atol=1e-10)


def test_the_shortcut_without_parameters_subsamples_and_adds_zeros(backend):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 4))
    layer = Subsample.on(backend, dtype="float64")(3, 6, 2, before=1)
    y = backend.numpy(layer(backend.array(x)))
    np.testing.assert_array_equal(y[:, 1:4], x[:, :, ::2, ::2])
    np.testing.assert_array_equal(y[:, [0, 4, 5]], 0.0)
    assert y.shape == (2, 6, 3, 2)


def two_convolutions(x, state, at, conv, norm):
    for i in (0, 1):
        x = conv(
            x, state[f"{at}.conv_{i}.conv.weight"], state[f"{at}.conv_{i}.conv.bias"], padding=1
        )
        x = F.leaky_relu(norm(x, state, f"{at}.conv_{i}.adn.N"), 0.1)
    return x


def instance_norm(x, state, at):
    return F.instance_norm(x, None, None, state[f"{at}.weight"], state[f"{at}.bias"])


def group_norm(x, state, at):
    return F.group_norm(x, 4, state[f"{at}.weight"], state[f"{at}.bias"])


NORMS = {"instance": instance_norm, "batch": batch_norm, "group": group_norm, None: lambda x, *_: x}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("upsample", ["deconv", "nontrainable"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_unet_computes_what_monais_does(dims, upsample, norm):
    net, state = scrambled(
        "unet", dims=dims, features=(4, 8, 12, 8), upsample=upsample, norm=norm, num_groups=4
    )
    conv = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    mode = ("linear", "bilinear", "trilinear")[dims - 1]
    sample = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 1, *(11, 13, 9)[:dims])))
    skips = [two_convolutions(sample, state, "conv_0", conv, NORMS[norm])]
    for level in (1, 2):
        skips.append(
            two_convolutions(pool(skips[-1], 2), state, f"down_{level}.convs", conv, NORMS[norm])
        )
    x = skips.pop()
    for level in (2, 1):
        at, skip = f"upcat_{level}", skips.pop()
        if upsample == "deconv":
            x = transposed(
                x,
                state[f"{at}.upsample.deconv.weight"],
                state[f"{at}.upsample.deconv.bias"],
                stride=2,
            )
        else:
            x = conv(
                x, state[f"{at}.upsample.preconv.weight"], state[f"{at}.upsample.preconv.bias"]
            )
            x = F.interpolate(x, scale_factor=2, mode=mode, align_corners=True)
        pads = [
            n
            for axis in reversed(range(2, dims + 2))
            for n in (0, skip.shape[axis] - x.shape[axis])
        ]
        x = two_convolutions(
            torch.cat([skip, F.pad(x, pads, "replicate")], 1),
            state,
            f"{at}.convs",
            conv,
            NORMS[norm],
        )
    expected = conv(x, state["final_conv.weight"], state["final_conv.bias"])
    torch.testing.assert_close(net(sample).detach(), expected, rtol=1e-10, atol=1e-10)


def test_the_perceptron_flattens_images():
    net = zoo.build("mlp", backend="torch", in_features=12, out_features=2)
    x = torch.randn(3, 1, 3, 4)
    torch.testing.assert_close(net(x), net(x.reshape(3, 12)))


def test_a_perceptron_without_hidden_layers_is_linear():
    net = zoo.build("mlp", backend="torch", in_features=4, out_features=2, hidden=())
    assert list(net.neutral_state()) == ["layers.0.weight", "layers.0.bias"]


def spread(name, **settings):
    """The standard deviation of each start value."""
    return {
        key: value.std()
        for key, value in zoo.build(name, backend="torch", **settings).neutral_state().items()
    }


def test_convolutions_of_residual_networks_start_he_normal_by_fan_out():
    std = spread("resnet50")
    assert std["conv1.weight"] == pytest.approx((2 / (64 * 49)) ** 0.5, rel=0.05)
    assert std["layer1.0.downsample.0.weight"] == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert std["layer3.2.conv2.weight"] == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.05)


def test_a_deep_stem_and_gates_start_he_normal_by_fan_out():
    std = spread("seresnext26d_32x4d", layers=(1, 1, 1, 1))
    for name, fan_out in {
        "conv1.3": 32 * 9,
        "layer2.0.downsample.1": 512,
        "layer4.0.se.fc1": 128,
        "layer4.0.conv2": 1024 * 9,
    }.items():
        assert std[f"{name}.weight"] == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
    assert std["layer3.0.bn3.weight"] == 0.0


def test_the_last_linear_layer_starts_as_pytorchs():
    weight = zoo.build("resnet18", backend="torch").neutral_state()["fc.weight"]
    bound = 512**-0.5
    assert np.abs(weight).max() <= bound
    assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.02)


def test_small_residual_networks_start_he_normal_by_fan_in():
    std = spread("resnet20", shortcut="B")
    assert std["layer2.0.conv1.weight"] == pytest.approx((2 / (16 * 9)) ** 0.5, rel=0.05)
    assert std["layer2.0.downsample.0.weight"] == pytest.approx((2 / 16) ** 0.5, rel=0.1)


@pytest.mark.parametrize(
    ("name", "last", "other"), [("resnet18", "bn2", "bn1"), ("resnet50", "bn3", "bn2")]
)
def test_zero_init_residual_silences_the_last_normalisation_alone(name, last, other, backend):
    state = zoo.build(
        name, backend=backend, zero_init_residual=True, layers=(1, 1, 1, 1)
    ).neutral_state()
    for stage in (1, 2, 3, 4):
        np.testing.assert_array_equal(state[f"layer{stage}.0.{last}.weight"], 0.0)
        np.testing.assert_array_equal(state[f"layer{stage}.0.{other}.weight"], 1.0)
    np.testing.assert_array_equal(state["bn1.weight"], 1.0)
    np.testing.assert_array_equal(state["layer2.0.downsample.1.weight"], 1.0)


NONSENSE = {
    "no classes": (
        "resnet18",
        {"num_classes": -1},
        "num_classes must be a whole number of at least 1, not -1",
    ),
    "fractional classes": ("resnet20", {"num_classes": 2.5}, "num_classes"),
    "no channels": ("resnet18", {"in_channels": 0}, "in_channels"),
    "no input channels": ("resnet8", {"in_channels": 0}, "in_channels"),
    "no unet channels": ("unet", {"in_channels": 0}, "in_channels"),
    "no lenet channels": ("lenet", {"in_channels": 0}, "in_channels"),
    "no features": ("mlp", {"in_features": 0}, "in_features"),
    "no out features": ("mlp", {"out_features": 0}, "out_features"),
    "four dims": ("resnet18", {"dims": 4}, "dims=4; wanted 1, 2 or 3"),
    "unknown block": ("resnet18", {"block": "basics"}, "no block='basics'. Did you mean 'basic'"),
    "three stages": ("resnet18", {"layers": (2, 2, 2)}, "numbers, exactly 4"),
    "empty stage": ("resnet18", {"layers": (2, 2, 2, 0)}, "layers must be a whole number"),
    "groups in basic": ("resnet18", {"groups": 2}, "block='bottleneck' does"),
    "dilated basic": (
        "resnet18",
        {"replace_stride_with_dilation": (True, True, True)},
        "block='bottleneck' does",
    ),
    "one dilation": (
        "resnet50",
        {"replace_stride_with_dilation": True},
        "three times True or False",
    ),
    "stem": ("resnet50d", {"stem_type": "dep"}, "no stem_type='dep'. Did you mean 'deep'"),
    "stem width": ("resnet50d", {"stem_width": 0}, "stem_width must be"),
    "averages of dilated stages": ("resnet50d", {"output_stride": 16}, "avg_down=True takes no"),
    "averages without a convolution": ("resnet50d", {"shortcut": "A"}, "takes shortcut='B'"),
    "shortcut of a large one": ("resnet50", {"shortcut": "a"}, "shortcut='a'; wanted 'A' or 'B'"),
    "stride of the stem": ("resnet50", {"stem_stride": 0}, "stem_stride must be"),
    "groups that do not divide": ("resnet50", {"groups": 0}, "groups must be"),
    "depth": ("resnet20", {"depth": 21}, "wanted 6n \\+ 2"),
    "shortcut": ("resnet20", {"shortcut": "C"}, "wanted 'A' or 'B'"),
    "small dims": ("resnet20", {"dims": 0}, "dims=0"),
    "activation": ("mlp", {"activation": "rellu"}, "no activation='rellu'. Did you mean 'relu'"),
    "hidden": ("mlp", {"hidden": (4, 0)}, "hidden must be"),
    "dropout": ("mlp", {"dropout": 1.5}, "probability"),
    "tiny images": ("lenet", {"image_size": 11}, "at least 12"),
    "norm": ("unet", {"norm": "instanse"}, "no norm='instanse'. Did you mean 'instance'"),
    "groups": ("unet", {"norm": "group", "num_groups": 5}, "num_channels.*num_groups"),
    "upsample": ("unet", {"upsample": "deconvolution"}, "Did you mean 'deconv'"),
    "levels": ("unet", {"features": (8, 8)}, "numbers, at least 3"),
    "widths": ("unet", {"features": 8}, "numbers, at least 3"),
    "no outputs": ("unet", {"out_channels": 0}, "out_channels must be"),
    "unet dims": ("unet", {"dims": 4}, "dims=4; wanted 1, 2 or 3"),
}


@pytest.mark.parametrize("label", NONSENSE)
def test_settings_that_make_no_sense_are_refused(label):
    name, settings, message = NONSENSE[label]
    with pytest.raises(SettingError, match=message):
        zoo.build(name, backend="torch", **settings)


def whole(net):
    """The network's call; on JAX one program: what runs before a layer refuses would be compiled
    bit by bit."""
    if net.backend.name != "jax":
        return net
    from flax import nnx

    return lambda x: nnx.jit(lambda net, x: net(x))(net, x)


UNFIT = {
    "channels": ("resnet18", (2, 1, 33, 33), "Conv2d at 'conv1'.*wanted \\(batch, 3"),
    "axes": ("resnet18", (2, 3, 33), "Conv2d at 'conv1'"),
    "width": ("mlp", (2, 5), "Linear at 'layers.0'.*784"),
    "size": ("lenet", (2, 1, 33, 33), "Linear at 'fc1'"),
    "unet channels": ("unet", (2, 2, 33, 33), "Conv2d at 'conv_0.conv_0.conv'"),
    "unet axes": ("unet", (2, 1, 33), "Conv2d at 'conv_0.conv_0.conv'"),
    "unet size": ("unet", (2, 1, 15, 33), r"the stage 'down_4': it needs at least 16 elements"),
    "one value": ("unet", (2, 1, 16, 16), "'down_4.convs.conv_0.adn.N'"),
    "one value in training": (
        "resnet18",
        (1, 3, 32, 32),
        "BatchNorm2d at 'layer4.0.bn1'.*more than one value",
    ),
}


@pytest.mark.parametrize("label", UNFIT)
def test_inputs_that_do_not_fit_are_refused_by_the_layer(label, backend):
    name, shape, message = UNFIT[label]
    net = zoo.build(name, backend=backend)
    with pytest.raises(ShapeError, match=message):
        whole(net)(backend.array(np.zeros(shape, np.float32)))


def test_a_residual_network_evaluates_a_single_small_image(backend):
    net = zoo.build("resnet18", backend=backend, num_classes=3, layers=(1, 1, 1, 1)).eval()
    assert backend.numpy(whole(net)(backend.array(np.zeros((1, 3, 5, 7), np.float32)))).shape == (
        1,
        3,
    )
