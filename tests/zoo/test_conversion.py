"""Conversion with an architecture in mind: Chainer's files, other layouts, the check of
outputs, the reports."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from deliralike import backends, weights, zoo
from deliralike.cli import app
from deliralike.errors import (
    ProofFailed,
    SettingError,
    StateError,
    UnknownName,
    WeightFileError,
)
from tests.conftest import BACKENDS
from tests.references import Later

torchvision = Later("torchvision")

SMALL = {"layers": (1, 1, 1, 1), "num_classes": 5, "width_per_group": 16}
needs_chainer = pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer's files")


@pytest.fixture
def file(tmp_path):
    """A file of torchvision's, as data-parallel training saves it."""
    state = {
        f"module.{name}": value for name, value in torchs_own().state_dict().items()
    }
    torch.save({"model": state, "epoch": 5}, tmp_path / "x.pth")
    return tmp_path / "x.pth"


# Chainer's files
# -----------------------------------------------------------------------------


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
    report = zoo.convert(file, tmp_path / "y.npz", "resnet50", to="chainer", **SMALL)
    read = weights.read(tmp_path / "y.npz")
    assert set(read) == set(
        zoo.build("resnet50", backend="torch", **SMALL).neutral_state()
    )
    assert "layer1/0/conv1/W" in np.load(tmp_path / "y.npz")
    assert (report.kind, report.renamed) == ("a PyTorch checkpoint", len(read))
    first, second, third = str(report).splitlines()
    assert first.endswith("MB")
    assert second.strip() == (
        f"under 'model', without 'module.'; written as chainer: {len(read)} renamed"
    )
    assert third.strip().startswith("note: not checked")


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
    module = timm.models.VisionTransformer(
        img_size=32, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2, num_classes=5
    )
    report = zoo.convert(
        tmp_path / "x.safetensors",
        tmp_path / "y.pth",
        "vit_b_16",
        to="timm",
        check=module,
        **settings,
    )
    module.load_state_dict(torch.load(tmp_path / "y.pth", weights_only=True))
    x = torch.randn(2, 3, 32, 32)
    with network.training_mode(False), torch.no_grad():
        torch.testing.assert_close(module.eval()(x), network(x), rtol=1e-4, atol=1e-5)
    assert report.largest_difference < 1e-13


def test_a_conversion_says_that_nothing_was_checked(tmp_path, file):
    report = zoo.convert(file, tmp_path / "y.npz", "resnet50", dry_run=True, **SMALL)
    assert report.largest_difference is None
    assert (
        "note: not checked: no outputs were compared with those of the network"
        in str(report)
    )


def torchs_own(**settings):
    block = torchvision.models.resnet.Bottleneck
    return torchvision.models.ResNet(
        block, [1, 1, 1, 1], 5, width_per_group=16, **settings
    )


MLP = {"in_features": 4, "hidden": (3,), "out_features": 2}


class Mlp(torch.nn.Module):
    def __init__(self, activation="relu", outputs=2):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)]
        )
        self.activation = getattr(torch.nn.functional, activation)
        self.outputs = outputs

    def forward(self, x):
        return self.layers[1](self.activation(self.layers[0](x)))[:, : self.outputs]


def sigmoid():
    return Mlp("sigmoid")


@pytest.fixture
def of_mlp(tmp_path):
    torch.save(Mlp().state_dict(), tmp_path / "mlp.pth")
    return tmp_path / "mlp.pth"


def test_a_check_of_a_dry_run_leaves_no_file(of_mlp, tmp_path):
    report = zoo.convert(
        of_mlp, tmp_path / "y.npz", "mlp", dry_run=True, check=Mlp(), **MLP
    )
    assert (report.written, report.largest_difference < 1e-15) == (False, True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mlp.pth"]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            sigmoid(),
            r"nothing was written: outputs differ from those of Mlp by \d\.\d+ of",
        ),
        (
            Mlp(outputs=1),
            r"Mlp does not give outputs of shapes \(2, 2\) to compare with",
        ),
    ],
    ids=["another activation", "fewer outputs"],
)
def test_a_check_that_finds_other_outputs_writes_nothing(
    check, message, of_mlp, tmp_path
):
    with pytest.raises(ProofFailed, match=message):
        zoo.convert(of_mlp, tmp_path / "y.npz", "mlp", check=check, **MLP)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mlp.pth"]


@pytest.mark.parametrize(("name", "code"), [("sigmoid", 1), ("Mlp", 0)])
def test_a_check_on_the_command_line_ends_with_1_where_outputs_differ(
    name, code, of_mlp
):
    target = of_mlp.with_suffix(".npz")
    settings = (
        "--set",
        "in_features=4",
        "--set",
        "hidden=(3,)",
        "--set",
        "out_features=2",
    )
    words = (
        "convert",
        of_mlp,
        target,
        "--model",
        "mlp",
        "--check",
        f"{__name__}:{name}",
    )
    result = CliRunner().invoke(app, [*map(str, words), *settings])
    assert (result.exit_code, target.exists()) == (code, not code), result.output


def lenet_of_flax(nnx):
    """LeNet on flax's own layers, with the channels last and the pixels flattened before them."""

    class LeNet(nnx.Module):
        def __init__(self, rngs):
            self.conv1 = nnx.Conv(1, 6, (5, 5), padding=2, rngs=rngs)
            self.conv2 = nnx.Conv(6, 16, (5, 5), padding="VALID", rngs=rngs)
            self.fc1 = nnx.Linear(64, 120, rngs=rngs)
            self.fc2 = nnx.Linear(120, 84, rngs=rngs)
            self.fc3 = nnx.Linear(84, 10, rngs=rngs)

        def __call__(self, x):
            for conv in (self.conv1, self.conv2):
                x = nnx.max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
            x = nnx.relu(self.fc1(x.reshape(len(x), -1)))
            return self.fc3(nnx.relu(self.fc2(x)))

    return LeNet(nnx.Rngs(3))


@pytest.mark.skipif("jax" not in BACKENDS, reason="flax's own network")
def test_a_check_against_flax_finds_a_guess_right(tmp_path):
    backends.get("jax")
    from flax import nnx, serialization

    theirs = lenet_of_flax(nnx)
    tree = nnx.to_pure_dict(nnx.state(theirs, nnx.Param))
    path = tmp_path / "x.msgpack"
    path.write_bytes(serialization.to_bytes(tree))
    given = {"image_size": 16, "check": lenet_of_flax(nnx), "guess": True}
    report = zoo.convert(path, tmp_path / "y.npz", "lenet", **given)
    assert report.largest_difference < 1e-13


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
        "resnet50 has no layout 'keras'. Known: chainer, torchvision",
    ),
    "no such architecture": ({"model": "resnet51"}, UnknownName, "Did you mean"),
    "a layout without an architecture": (
        {"model": None, "to": "timm"},
        SettingError,
        "model=",
    ),
    "a check without an architecture": (
        {"model": None, "check": "a:b"},
        SettingError,
        "model=",
    ),
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


def test_a_checkpoint_is_not_replaced_by_its_own_weights(file):
    """What is no weight in it would be lost, here the epoch."""
    before = file.read_bytes()
    with pytest.raises(WeightFileError, match="is the source itself"):
        weights.convert(file, file.parent / "." / file.name)
    assert file.read_bytes() == before


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
            some = {
                ours: slots[ours].shape
                for ours in table
                if np.prod(slots[ours].shape) < 1e6
            }
            generator = np.random.default_rng(0)
            state = {
                ours: generator.standard_normal(shape).astype("float32")
                for ours, shape in some.items()
            }
            if not table or keymap.complete:
                continue
            back = keymap.from_layout(keymap.to_layout(state), slots)
            assert set(back) == set(state), (name, keymap.name)
            assert all((back[ours] == state[ours]).all() for ours in state), (
                name,
                keymap.name,
            )


def test_an_unknown_suffix_fails_before_anything_is_read(tmp_path):
    with pytest.raises(WeightFileError, match="no weight format has the suffix"):
        zoo.convert(tmp_path / "gone.pth", tmp_path / "x.h5", "resnet18")
