"""Weights of other libraries and trainers: real files of torch.save, under their wrappers, prefixes
and names."""

import logging
import re
import warnings
from argparse import Namespace
from collections import OrderedDict

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import zoo
from deliralike.errors import StateError, WeightFileError, WeightFileMissing
from deliralike.network import Network
from deliralike.zoo import KeyMap, Model
from deliralike.zoo.keymaps import by_patterns
from tests.references import Later

torchvision = Later("torchvision")

SETTINGS = {"layers": (1, 1, 1, 1), "num_classes": 5}
BOTTLENECKS = SETTINGS | {"width_per_group": 16}


def theirs(**settings):
    """A small ResNet of torchvision's, with statistics away from their start."""
    torch.manual_seed(0)
    block = torchvision.models.resnet.Bottleneck
    module = torchvision.models.ResNet(
        block, [1, 1, 1, 1], **{"num_classes": 5, "width_per_group": 16} | settings
    )
    module(torch.randn(2, 3, 33, 33))
    return module.eval()


def ours(backend, seed=7, **settings):
    return zoo.build(
        "resnet50",
        backend=backend,
        dtype="float64",
        seed=seed,
        **BOTTLENECKS | settings,
    )


def output(network, x):
    with network.training_mode(False), network.backend.evaluating():
        return network.backend.numpy(network(network.backend.array(x, "float64")))


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((2, 3, 33, 35))


@pytest.fixture
def file(tmp_path):
    """Saves something with torch.save and gives the path."""

    def save(content):
        torch.save(content, tmp_path / "x.pth")
        return tmp_path / "x.pth"

    return save


# Wrappers and prefixes
# -----------------------------------------------------------------------------

WRAPPED = {
    "plain": (lambda state: state, "names as they are"),
    "state_dict": (
        lambda state: {"state_dict": state, "epoch": 3},
        "under 'state_dict'",
    ),
    "model": (
        lambda state: {"model": state, "optimizer": {"state": {}, "lr": 1}},
        "under 'model'",
    ),
    "model_state_dict": (
        lambda state: {"model_state_dict": state},
        "under 'model_state_dict'",
    ),
    "nnU-Net": (
        lambda state: {"network_weights": state, "loss": np.float64(0.5)},
        "under 'network_weights'",
    ),
    "timm's trainer": (
        lambda state: {"state_dict": state, "args": Namespace(lr=0.1)},
        "under 'state_dict'",
    ),
    "averaged": (lambda state: {"state_dict_ema": state}, "under 'state_dict_ema'"),
    "parallel": (lambda state: prefixed(state, "module."), "without 'module.'"),
    "compiled": (lambda state: prefixed(state, "_orig_mod."), "without '_orig_mod.'"),
    "both": (
        lambda state: prefixed(state, "module._orig_mod."),
        "without 'module.', without '_orig_mod.'",
    ),
    "Lightning": (
        lambda state: {"state_dict": prefixed(state, "model.")},
        "under 'state_dict', without 'model.'",
    ),
    "a backbone": (
        lambda state: {"model": prefixed(state, "backbone.")},
        "under 'model', without 'backbone.'",
    ),
}


def prefixed(state, prefix):
    return OrderedDict((f"{prefix}{name}", value) for name, value in state.items())


@pytest.mark.parametrize("label", WRAPPED)
def test_torchvisions_file_is_found_in_its_wrapper_and_gives_torchvisions_outputs(
    file, label, x
):
    wrap, words = WRAPPED[label]
    module = theirs()
    network = ours("torch")
    report = zoo.load(network, file(wrap(module.state_dict())))
    assert report.layout == words
    assert report.complete
    assert report.loaded == tuple(network.neutral_slots())
    wanted = module.double()(torch.from_numpy(x)).detach().numpy()
    assert_allclose(output(network, x), wanted, atol=1e-12)


def test_every_backend_takes_the_same_file(backend, file):
    module = theirs()
    path = file({"model": prefixed(module.state_dict(), "module.")})
    network = zoo.build(
        "resnet50", backend=backend, dtype="float64", weights=path, **BOTTLENECKS
    )
    state = network.neutral_state()
    assert all(
        (state[name] == value.numpy()).all()
        for name, value in module.state_dict().items()
    )


def test_of_two_states_the_one_that_fits_is_taken(file):
    module = theirs()
    report = zoo.load(
        ours("torch"),
        file({"model": {"a.weight": torch.ones(3)}, "ema": module.state_dict()}),
    )
    assert report.layout == "under 'ema'"


@pytest.mark.parametrize("classes", [5, 4])
def test_of_two_states_that_fit_the_trained_one_is_taken_and_named(file, classes):
    module, averaged = (
        theirs(),
        {name: 0 * value for name, value in theirs().state_dict().items()},
    )
    network = ours("torch", num_classes=classes)
    report = zoo.load(
        network, file({"model_ema": averaged, "model": module.state_dict()})
    )
    assert report.layout == "under 'model'"
    assert_array_equal(
        network.neutral_state()["conv1.weight"], module.conv1.weight.detach().numpy()
    )


def test_replicas_take_their_models_layouts():
    from deliralike import backends

    network = backends.DataParallel(ours("torch", in_channels=1), ["cpu", "cpu"])
    report = zoo.load(network, prefixed(theirs().state_dict(), "module."))
    assert [entry.name for entry in report.adapted] == ["conv1.weight"]


class Whole(Network):
    """A network with an encoder, as in segmentation."""

    def __init__(self):
        super().__init__()
        self.encoder = self.nn.Sequential(self.nn.Linear(3, 4), self.nn.Linear(4, 4))
        self.last = self.nn.Linear(4, 2)


def test_an_encoders_file_goes_into_the_whole_and_the_rest_stays():
    network = Whole.on("torch", seed=1)()
    before = network.neutral_state()
    state = {
        name.removeprefix("encoder."): value + 1
        for name, value in before.items()
        if name.startswith("encoder.")
    }
    with pytest.raises(
        StateError, match=r"with 'encoder\.'.*missing: last\.weight, last\.bias"
    ):
        _raise_flat(lambda: zoo.load(network, state))
    report = zoo.load(network, state, strict=False)
    assert report.missing == ("last.weight", "last.bias")
    after = network.neutral_state()
    assert_array_equal(after["encoder.1.weight"], before["encoder.1.weight"] + 1)
    assert_array_equal(after["last.weight"], before["last.weight"])


def _raise_flat(run):
    try:
        run()
    except StateError as error:
        raise StateError(" ".join(str(error).split())) from None


# Other channels, other classes
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_a_stem_for_other_channels_is_timms(channels):
    """timm's own function is the answer; for one channel it gives the same sum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what timm uses
        from timm.models._manipulate import adapt_input_conv

    module = theirs()
    network = ours("torch", in_channels=channels)
    report = zoo.load(network, module.state_dict())
    wanted = adapt_input_conv(channels, module.conv1.weight.detach())
    assert_allclose(
        network.neutral_state()["conv1.weight"], wanted, rtol=1e-6, atol=1e-7
    )
    (entry,) = report.adapted
    assert (entry.name, entry.came, entry.wanted) == (
        "conv1.weight",
        (64, 3, 7, 7),
        (64, channels, 7, 7),
    )


def test_other_classes_leave_the_head_and_say_so(caplog):
    network = ours("torch", num_classes=4)
    before = network.neutral_state()
    with caplog.at_level(logging.INFO, "deliralike"):
        report = zoo.load(network, theirs().state_dict())
    assert dict(report.skipped) == dict.fromkeys(
        ("fc.weight", "fc.bias"),
        "5 outputs came, the network has 4; the start values stay",
    )
    assert_array_equal(network.neutral_state()["fc.weight"], before["fc.weight"])
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, str(report))
    assert "left alone: fc.weight, fc.bias: 5 outputs came" in str(report)


def test_a_network_without_a_head_leaves_the_files(x):
    module = theirs()
    network = ours("torch", num_classes=0)
    report = zoo.load(network, module.state_dict())
    assert dict(report.skipped) == dict.fromkeys(
        ("fc.weight", "fc.bias"), "the network was built without a head"
    )
    module.fc = torch.nn.Identity()
    assert_allclose(
        output(network, x),
        module.double()(torch.from_numpy(x)).detach().numpy(),
        atol=1e-9,
    )


def test_a_file_without_a_head_leaves_the_networks():
    state = {
        name: value
        for name, value in theirs().state_dict().items()
        if not name.startswith("fc.")
    }
    report = zoo.load(ours("torch"), state)
    assert {why for _, why in report.skipped} == {
        "the file has no such head; the start values stay"
    }


def test_half_a_head_is_an_error():
    state = {
        name: value
        for name, value in theirs().state_dict().items()
        if name != "fc.bias"
    }
    with pytest.raises(StateError, match=r"missing: fc\.bias"):
        zoo.load(ours("torch"), state)


class Grouped(Model):
    stem_paths = ("conv",)

    def __init__(self, in_channels):
        super().__init__()
        self.conv = self.nn.Conv2d(in_channels, 8, 3, groups=2)


def test_a_stem_in_groups_is_not_adapted(backend):
    source = Grouped.on(backend)(4)
    with pytest.raises(
        StateError, match=r"conv\.weight: came as \(8, 2, 3, 3\), wanted \(8, 3, 3, 3\)"
    ):
        zoo.load(Grouped.on(backend)(6), source.neutral_state())


def test_half_precision_is_summed_in_single():
    state = dict(theirs().state_dict())
    channels = torch.tensor([2048.0, 2050.0, 2050.0]).half()
    state["conv1.weight"] = channels[None, :, None, None].expand(64, 3, 7, 7)
    network = ours("torch", in_channels=1)
    zoo.load(network, state)
    assert_array_equal(
        network.neutral_state()["conv1.weight"], 6148.0
    )  # in half 2048 + 2050 is 4096


# Hooks, layouts, ties
# -----------------------------------------------------------------------------


class Hooked(Model):
    """Has another layout, a table that can be cut, a tied weight and a computed buffer."""

    keymaps = (
        KeyMap(
            "other",
            by_patterns(
                {
                    r"fc\.(\w+)": r"dense.\1",
                    r"tied\.weight": "twin.weight",
                    "table": "grid",
                }
            ),
            {"fc.weight": (np.transpose, np.transpose)},
        ),
    )

    def __init__(self, length=3):
        super().__init__()
        self.fc = self.nn.Linear(3, 4)
        self.tied = self.nn.Linear(3, 4, bias=False)
        self.tied.weight = self.fc.weight
        self.table = self.nn.Buffer(np.arange(length, dtype=np.float32))

    def adapt_weight(self, name, value, shape):
        return value[: shape[0]] if name == "table" else None

    def adapt_state(self, state):
        return {name: value for name, value in state.items() if name != "old"}


def test_a_key_map_its_shapes_and_the_networks_own_hooks_are_used():
    network = Hooked.on("torch")()
    weight = np.arange(12.0).reshape(3, 4)
    state = {
        "dense.weight": weight,
        "dense.bias": np.ones(4),
        "grid": np.arange(5.0) + 1,
        "old": np.ones(1),
    }
    report = zoo.load(network, state)
    assert report.layout == "in the layout 'other'"
    assert [(entry.name, entry.how) for entry in report.adapted] == [
        ("table", "by the network itself")
    ]
    after = network.neutral_state()
    assert_array_equal(after["fc.weight"], weight.T)
    assert_array_equal(after["table"], [1, 2, 3])


def test_a_tied_weight_may_come_under_its_other_name():
    network = Hooked.on("torch")()
    zoo.load(
        network,
        {
            "tied.weight": np.full((4, 3), 5.0),
            "fc.bias": np.ones(4),
            "table": np.zeros(3),
        },
    )
    assert (network.neutral_state()["fc.weight"] == 5).all()


def test_a_tied_weight_that_comes_with_two_values_is_refused():
    state = {
        "fc.weight": np.ones((4, 3)),
        "tied.weight": np.zeros((4, 3)),
        "fc.bias": np.ones(4),
        "table": np.zeros(3),
    }
    with pytest.raises(StateError, match="come with different values"):
        zoo.load(Hooked.on("torch")(), state)


def test_counters_may_be_missing():
    state = {
        name: value
        for name, value in theirs().state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    assert zoo.load(ours("torch"), state).unexpected == ()


# What does not fit
# -----------------------------------------------------------------------------

BAD = {
    "another network": (
        lambda state: torchvision.models.squeezenet1_1(num_classes=2).state_dict(),
        "there is nothing for it",
    ),
    "another depth": (
        lambda state: torchvision.models.resnet18(num_classes=5).state_dict(),
        "came as",
    ),
    "a name less": (
        lambda state: without(state, "layer1.0.conv2.weight"),
        r"missing: layer1\.0\.conv2\.weight",
    ),
    "a name more": (
        lambda state: state | {"extra.weight": torch.ones(2)},
        r"unexpected: extra\.weight",
    ),
    "another kernel": (
        lambda state: state | {"conv1.weight": torch.ones(64, 3, 5, 5)},
        r"came as \(64, 3, 5, 5\)",
    ),
    "a wider head": (
        lambda state: state | {"fc.weight": torch.ones(5, 99)},
        r"fc\.weight: came as \(5, 99\)",
    ),
    "NaN for a name": (
        lambda state: {float("nan"): torch.ones(2)},
        "not tensors by name, such as nan",
    ),
    "nothing": (lambda state: {}, "an empty dict"),
    "a list": (
        lambda state: [torch.ones(2)],
        "holds a list in place of tensors by name",
    ),
}


def without(state, *names):
    return {name: value for name, value in state.items() if name not in names}


@pytest.mark.parametrize("label", BAD)
def test_what_does_not_fit_is_one_clear_error_and_changes_nothing(label, file):
    make, message = BAD[label]
    network = ours("torch")
    before = network.neutral_state()
    with pytest.raises((StateError, WeightFileError), match=message) as caught:
        zoo.load(network, file(make(dict(theirs().state_dict()))))
    assert str(caught.value).count("\n") < 12
    after = network.neutral_state()
    assert all((after[name] == before[name]).all() for name in before)


@pytest.mark.parametrize(
    "label",
    ["another depth", "a name less", "a name more", "another kernel", "a wider head"],
)
def test_on_request_the_rest_is_taken_over(label):
    state = BAD[label][0](dict(theirs().state_dict()))
    network = ours("torch")
    report = zoo.load(network, state, strict=False)
    assert not report.complete
    taken = network.neutral_state()
    assert all((taken[name] == state[name].numpy()).all() for name in report.loaded)


def test_nothing_at_all_is_an_error_on_request_too():
    with pytest.raises(
        StateError,
        match=r"there is nothing for it; the network's names are like conv1\.weight",
    ):
        zoo.load(ours("torch"), {"a.weight": np.ones(3)}, strict=False)
    with pytest.raises(StateError, match="the mapping is empty"):
        zoo.load(ours("torch"), {}, strict=False)


def test_a_missing_or_cut_file_is_an_error_of_files(tmp_path, file):
    with pytest.raises(WeightFileMissing, match="there is no file"):
        zoo.build(
            "resnet50", backend="torch", weights=tmp_path / "gone.pth", **BOTTLENECKS
        )
    path = file(theirs().state_dict())
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(WeightFileError, match=re.escape(str(path))):
        zoo.load(ours("torch"), path)
