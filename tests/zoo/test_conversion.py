"""Conversion with an architecture in mind: Chainer's own networks, other layouts, the check of
outputs, the reports."""

import numpy as np
import pytest
import torch

from deliralike import backends, weights, zoo
from deliralike.errors import SettingError, StateError, UnknownName, WeightFileError
from deliralike.zoo import chainer_links
from deliralike.zoo.loading import load
from tests.conftest import BACKENDS
from tests.references import Later

torchvision = Later("torchvision")

SMALL = {"layers": (1, 1, 1, 1), "num_classes": 5, "width_per_group": 16}
needs_chainer = pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer's own networks")


@pytest.fixture
def file(tmp_path):
    """A file of torchvision's, as data-parallel training saves it."""
    module = torchvision.models.ResNet(
        torchvision.models.resnet.Bottleneck, [1, 1, 1, 1], 5, width_per_group=16
    )
    state = {f"module.{name}": value for name, value in module.state_dict().items()}
    torch.save({"model": state, "epoch": 5}, tmp_path / "x.pth")
    return tmp_path / "x.pth"


# Chainer's own networks
# -----------------------------------------------------------------------------


def randomised(link):
    """Fills every parameter and statistic of a link with numbers that keep its activations
    moderate."""
    generator = np.random.default_rng(0)
    for _, parameter in sorted(link.namedparams()):
        if parameter.ndim == 1:
            parameter.array[...] = generator.uniform(0.5, 1.0, parameter.shape)
    for path, child in sorted(link.namedlinks()):
        if hasattr(child, "avg_mean"):
            child.avg_mean[...] = generator.standard_normal(child.avg_mean.shape)
            child.avg_var[...] = generator.uniform(0.5, 1.5, child.avg_var.shape)
    return link


@needs_chainer
def test_chainers_own_resnet_gives_its_outputs_from_ours(tmp_path):
    """With the stride, the pooling and the epsilon that differ set to ours; `link` itself computes
    what is wanted."""
    backends.get("chainer")
    import chainer
    import chainer.functions as F
    from chainer.links.model.vision.resnet import ResNet50Layers

    class Link(ResNet50Layers):
        @property
        def functions(self):
            found = super().functions
            found["pool1"] = [lambda x: F.max_pooling_2d(x, 3, 2, 1, cover_all=False)]
            return found

    link = randomised(Link(pretrained_model=None, downsample_fb=True))
    for child in link.links():
        if hasattr(child, "eps"):
            child.eps = 1e-5
    chainer.serializers.save_npz(tmp_path / "x.npz", link, compression=False)
    x = np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype(np.float32)
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        wanted = link(x, layers=["fc6"])["fc6"].array
    network = zoo.build("resnet50", backend="torch")
    report = load(network, tmp_path / "x.npz")
    assert report.layout == "in the layout 'chainer.links'"
    assert any("stride" in note for note in report.notes)
    assert any("BGR" in note for note in report.notes)
    with network.training_mode(False), torch.no_grad():
        got = network(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@needs_chainer
def test_our_resnet_gives_its_outputs_from_chainers_own(tmp_path):
    backends.get("chainer")
    import chainer
    from chainer.links.model.vision.resnet import ResNet50Layers

    torch.manual_seed(0)
    torch.save(torchvision.models.resnet50().state_dict(), tmp_path / "x.pth")
    report = zoo.convert(tmp_path / "x.pth", tmp_path / "y.npz", "resnet50", to="chainer.links")
    link = ResNet50Layers(pretrained_model=None)
    chainer.serializers.load_npz(tmp_path / "y.npz", link)  # strict: every name is there
    module = torchvision.models.resnet50()
    module.load_state_dict(torch.load(tmp_path / "x.pth"))
    np.testing.assert_array_equal(
        link.res3.b2.conv1.W.array, module.layer2[2].conv1.weight.detach()
    )
    np.testing.assert_array_equal(
        link.res4.a.bn4.gamma.array, module.layer3[0].downsample[1].weight.detach()
    )
    np.testing.assert_array_equal(link.fc6.W.array, module.fc.weight.detach())
    assert (link.conv1.b.array == 0).all()
    assert report.renamed == 320 + 1
    assert "stride" in str(report)


@needs_chainer
def test_chainers_own_vgg_gives_its_outputs_from_ours(tmp_path):
    """The convolutions run in Chainer's order; the linear layers are too large to be worth more
    than their names."""
    backends.get("chainer")
    import chainer
    from chainer.links.model.vision.vgg import VGG16Layers

    link = VGG16Layers(pretrained_model=None)
    names = [name.strip("/").replace("/", ".") for name, _ in link.namedparams()]
    network = zoo.find("vgg16").on(
        backends.importlib.import_module("deliralike.backends.outline").BACKEND
    )()
    table = chainer_links.VGG.table(network.neutral_slots())
    theirs = {
        ours: name.replace(".weight", ".W").replace(".bias", ".b") for ours, name in table.items()
    }
    assert sorted(theirs.values()) == sorted(names)
    shapes = {
        name.strip("/").replace("/", "."): parameter.shape for name, parameter in link.namedparams()
    }
    assert all(shapes[theirs[name]] == slot.shape for name, slot in network.neutral_slots().items())
    x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    module = torchvision.models.vgg16().features.eval()
    for ours, name in table.items():
        if ours.startswith("features."):
            layer, leaf = name.split(".")
            value = getattr(link[layer], {"weight": "W", "bias": "b"}[leaf]).array
            module.state_dict()[ours.removeprefix("features.")].copy_(torch.from_numpy(value))
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        wanted = link(x, layers=["pool5"])["pool5"].array
    with torch.no_grad():
        np.testing.assert_allclose(
            module(torch.from_numpy(x)), wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max()
        )


@needs_chainer
def test_the_check_tells_how_far_chainers_own_network_is(tmp_path):
    """Its stride, its pooling and its epsilon are others."""
    zoo_network = zoo.build("resnet50", backend="torch")
    weights.write(tmp_path / "x.safetensors", zoo_network)
    report = zoo.convert(
        tmp_path / "x.safetensors",
        tmp_path / "y.npz",
        "resnet50",
        to="chainer.links",
        check=True,
        dry_run=True,
    )
    assert report.largest_difference == 0
    (note,) = [
        note
        for note in report.notes
        if note.startswith("chainer.links.ResNet50Layers itself differs by")
    ]
    assert float(note.split()[-1]) > 1e-3


def test_a_bias_before_the_stems_norm_goes_into_its_mean():
    state = {
        "conv1.weight": np.ones((2, 1, 1, 1)),
        "conv1.bias": np.array([1.0, 2.0]),
        "bn1.running_mean": np.ones(2),
    }
    mended = chainer_links.RESNET.mend(state)
    assert "conv1.bias" not in mended
    np.testing.assert_array_equal(mended["bn1.running_mean"], [0, -1])


@needs_chainer
def test_a_file_for_chainers_links_is_loaded_by_chainer(tmp_path, file):
    backends.get("chainer")
    import chainer
    import chainer.links as L

    weights.write(
        tmp_path / "a.npz",
        {"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.zeros(2, np.float32)},
    )
    zoo.convert(tmp_path / "a.npz", tmp_path / "b.npz", to="chainer")
    chain = chainer.Chain(fc=L.Linear(3, 2))
    chainer.serializers.load_npz(tmp_path / "b.npz", chain)
    assert (chain.fc.W.array == 1).all()


# Layouts, reports, the check
# -----------------------------------------------------------------------------


def test_the_report_counts_what_was_done(tmp_path, file):
    report = zoo.convert(file, tmp_path / "y.npz", "resnet50", to="chainer", check=True, **SMALL)
    read = weights.read(tmp_path / "y.npz")
    assert set(read) == set(zoo.build("resnet50", backend="torch", **SMALL).neutral_state())
    assert "layer1/0/conv1/W" in np.load(tmp_path / "y.npz")
    assert (report.kind, report.renamed, report.reshaped) == ("a PyTorch checkpoint", len(read), ())
    assert report.largest_difference == 0
    first, second, third = str(report).splitlines()
    assert first.endswith("MB")
    assert second.strip() == (
        f"under 'model', without 'module.'; written as chainer: {len(read)} renamed, 0 in another "
        "layout"
    )
    assert third.strip() == "largest difference of the outputs in float64: 0"


def test_timms_layout_is_timms(tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import timm
    settings = {
        "num_layers": 2,
        "hidden_dim": 24,
        "num_heads": 3,
        "mlp_dim": 48,
        "num_classes": 5,
        "image_size": 32,
    }
    network = zoo.build("vit_b_16", backend="torch", seed=3, **settings)
    weights.write(tmp_path / "x.safetensors", network)
    report = zoo.convert(
        tmp_path / "x.safetensors",
        tmp_path / "y.pth",
        "vit_b_16",
        to="timm",
        check=True,
        **settings,
    )
    module = timm.models.VisionTransformer(
        img_size=32, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2, num_classes=5
    )
    module.load_state_dict(torch.load(tmp_path / "y.pth", weights_only=True))
    x = torch.randn(2, 3, 32, 32)
    with network.training_mode(False), torch.no_grad():
        torch.testing.assert_close(module.eval()(x), network(x), rtol=1e-4, atol=1e-5)
    assert report.largest_difference == 0


def test_a_check_of_a_dry_run_leaves_no_file(tmp_path, file):
    report = zoo.convert(
        file, tmp_path / "y.safetensors", "resnet50", check=True, dry_run=True, **SMALL
    )
    assert (report.written, report.largest_difference, report.target) == (
        False,
        0,
        tmp_path / "y.safetensors",
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.pth"]


def test_the_check_sees_a_layout_that_does_not_come_back(tmp_path, file, monkeypatch):
    from deliralike.zoo import conversion

    def wrong(state):
        return {
            name.replace(".", "/"): value + (1e-3 if name == "fc.bias" else 0)
            for name, value in state.items()
        }

    monkeypatch.setattr(conversion.chainer_names, "renamed", wrong)
    report = zoo.convert(
        file, tmp_path / "y.npz", "resnet50", to="chainer", check=True, dry_run=True, **SMALL
    )
    assert report.largest_difference == pytest.approx(1e-3)


BAD = {
    "another architecture": (
        {"model": "vgg11"},
        StateError,
        "the weights do not fit vgg11 with these settings",
    ),
    "other classes": ({"num_classes": 7}, StateError, "7"),
    "other channels": ({"in_channels": 1}, StateError, r"adapted: conv1\.weight"),
    "no such layout": (
        {"to": "keras"},
        UnknownName,
        "resnet50 has no layout 'keras'. Known: chainer, chainer.links",
    ),
    "no such architecture": ({"model": "resnet51"}, UnknownName, "Did you mean"),
    "a layout without an architecture": ({"model": None, "to": "timm"}, SettingError, "model="),
    "a check without an architecture": ({"model": None, "check": True}, SettingError, "model="),
}


@pytest.mark.parametrize("label", BAD)
def test_what_cannot_be_is_one_error_and_nothing_is_written(tmp_path, file, label):
    settings, error, message = BAD[label]
    settings = {"model": "resnet50", **settings}
    if settings["model"] == "resnet50":
        settings = SMALL | settings
    with pytest.raises(error, match=message):
        zoo.convert(file, tmp_path / "y.npz", **settings)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.pth"]


def test_every_key_map_of_the_zoo_goes_there_and_back():
    """On the shapes of every family that has one: names are one to one, arrays come back."""
    outline = backends.importlib.import_module("deliralike.backends.outline").BACKEND
    families = {}
    for name in zoo.list():
        architecture = zoo.find(name)
        if getattr(architecture.network, "keymaps", ()):
            families.setdefault(architecture.network, name)
    assert len(families) >= 3
    for name in families.values():
        network = zoo.find(name).on(outline)()
        slots = network.neutral_slots()
        for keymap in network.keymaps:
            table = keymap.table(slots)
            assert set(table) <= set(slots), (name, keymap.name)
            some = {ours: slots[ours].shape for ours in table if np.prod(slots[ours].shape) < 1e6}
            generator = np.random.default_rng(0)
            state = {
                ours: generator.standard_normal(shape).astype("float32")
                for ours, shape in some.items()
            }
            if not table or keymap.complete:
                continue
            back = keymap.to_ours(keymap.to_theirs(state), slots)
            assert set(back) == set(state), (name, keymap.name)
            assert all((back[ours] == state[ours]).all() for ours in state), (name, keymap.name)


def test_an_unknown_suffix_fails_before_anything_is_read(tmp_path):
    with pytest.raises(WeightFileError, match="no weight format has the suffix"):
        zoo.convert(tmp_path / "gone.pth", tmp_path / "x.h5", "resnet18")
