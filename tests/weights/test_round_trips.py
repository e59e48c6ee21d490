"""What we wrote is read exactly, whatever its names are; what others wrote is guessed, reported,
and kept whole."""

import importlib
import json
import logging
import re

import numpy as np
import pytest

from deliralike import backends, weights, zoo
from deliralike.backends.outline import BACKEND
from deliralike.errors import StateError, WeightFileError
from tests.conftest import BACKENDS

SUFFIXES = [".safetensors", ".npz"]
SUFFIXES += [".pth"] if "torch" in BACKENDS else []
needs_torch = pytest.mark.skipif(
    "torch" not in BACKENDS, reason="reads PyTorch's own files"
)
needs_jax = pytest.mark.skipif("jax" not in BACKENDS, reason="reads flax's own files")


@pytest.fixture(params=SUFFIXES)
def suffix(request):
    return request.param


def stand_ins(shapes):
    """Small arrays by name, no two alike, of as many axes as those that they stand for."""
    state = {}
    for number, (name, axes) in enumerate(shapes.items()):
        shape = (3, 2, 1, 2, 1)[:axes]
        state[name] = (
            (np.arange(np.prod(shape, dtype=int)) + 100.0 * number)
            .astype(np.float32)
            .reshape(shape)
        )
    return state


def assert_comes_back(path, state):
    weights.write(path, state)
    read = weights.read(path)
    assert list(read) == list(state), path
    for name, array in state.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape), (
            path,
            name,
        )
        assert read[name].tobytes() == array.tobytes(), (path, name)


def zoo_states():
    """A state for the first and the last network of each class in the zoo."""
    seen = set()
    classes = {}
    for name in zoo.list():
        first, _ = classes.get(zoo.find(name).network, (name, name))
        classes[zoo.find(name).network] = (first, name)
    for name in dict.fromkeys(sum(classes.values(), ())):
        series = {}  # names that differ in their numbers alone are one
        for slot, held in zoo.find(name).on(BACKEND)().neutral_slots().items():
            series.setdefault(re.sub(r"\d+", "#", slot), (slot, len(held.shape)))
        if frozenset(series) not in seen:
            seen.add(frozenset(series))
            yield name, stand_ins(dict(series.values()))


def test_every_name_of_the_zoo_comes_back_from_every_format(tmp_path):
    whole, some = {}, {}
    for network, state in zoo_states():
        named = {f"{network}.{name}": array for name, array in state.items()}
        whole |= named
        some |= dict(list(named.items())[:4])
    for suffix in SUFFIXES:
        merged = some if suffix == ".pth" else whole  # this one takes a while
        assert_comes_back(tmp_path / f"all{suffix}", merged)


HOSTILE = {
    "wrappers": ["model.weight", "model.bias", "head.weight", "head.bias"],
    "a single wrapper": ["state_dict.fc.weight", "state_dict.fc.bias"],
    "collections": ["params.a.weight", "batch_stats.b.weight", "a.weight"],
    "averages": ["ema.fc.weight", "params.fc.weight", "ema_params.fc.weight"],
    "keys of dropout": ["rngs.weight", "a.rngs.count", "a.weight"],
    "Chainer's": ["W", "b", "gamma", "beta", "N", "avg_mean"],
    "Chainer's paths": ["a/W", "a/b", "updater/model:main/c/W"],
    "TensorFlow's": [
        "a.gamma",
        "a.beta",
        "b.scale",
        "c.embeddings",
        "d.depthwise_kernel",
        "e.kernel",
    ],
    "held values": ["a.value", "a.raw_value", "value"],
    "DataParallel's": ["module.weight", "module.bias"],
    "lists": ["0.weight", "1.weight", "10.weight", "2.weight"],
    "mixed order": ["z.weight", "a.weight", "z.bias", "a.bias"],
    "other alphabets": ["größe.weight", "层.权重", "a b.c\td", "🎉"],
    "paths of files": [
        "../a.weight",
        "/a.weight",
        "a\\b.weight",
        "a.npy",
        "a/.zarray",
        "c:d",
    ],
    "empty parts": ["a..b", "..c", "d."],
    "no name": [""],
    "orders of the mark": [
        "deliralike weights 1",
        "deliralike.order",
        "deliralike.json",
    ],
}


AXES = [(suffix, axes) for suffix in SUFFIXES for axes in (1, 2, 4)]


@pytest.mark.parametrize(("suffix", "axes"), AXES)
def test_hostile_names_come_back(tmp_path, suffix, axes, subtests):
    for number, (label, names) in enumerate(HOSTILE.items()):
        with subtests.test(label=label):
            assert_comes_back(
                tmp_path / f"{number}{suffix}", stand_ins(dict.fromkeys(names, axes))
            )


def test_names_that_files_cannot_hold_are_refused_before_anything_is_written(
    tmp_path, suffix, subtests
):
    for name in ("a\0b", "a\ud800", "x" * 70_000):
        with subtests.test(name=ascii(name)[:20]):
            with pytest.raises(
                WeightFileError,
                match=r"cannot hold weights by the name .*; rename the layer or the par",
            ):
                weights.write(
                    tmp_path / f"x{suffix}", {"fine": np.ones(2), name: np.ones(3)}
                )
            assert not list(tmp_path.iterdir())


def test_the_name_of_the_metadata_in_safetensors_is_refused(tmp_path):
    with pytest.raises(WeightFileError, match="and for safetensors not '__metadata__'"):
        weights.write(tmp_path / "x.safetensors", {"__metadata__": np.ones(2)})


@needs_torch
def test_an_archive_that_is_marked_is_read_by_those_who_do_not_know_of_it(tmp_path):
    import torch

    state = stand_ins({"module.weight": 2, "module.bias": 1})
    weights.write(tmp_path / "x.pth", state)
    weights.write(tmp_path / "x.npz", state)
    for mmap in (False, True):
        theirs = torch.load(tmp_path / "x.pth", weights_only=True, mmap=mmap)
        assert {name: tensor.numpy().tobytes() for name, tensor in theirs.items()} == {
            name: array.tobytes() for name, array in state.items()
        }
    with np.load(tmp_path / "x.npz", allow_pickle=False) as theirs:
        assert {name: theirs[name].tobytes() for name in theirs} == {
            name: a.tobytes() for name, a in state.items()
        }


# Files of others
# -----------------------------------------------------------------------------


@needs_jax
@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        (
            {"model": {"kernel": 2}, "head": {"kernel": 2}},
            {"model.weight", "head.weight"},
        ),
        (
            {"ema": {"fc": {"bias": 1}}, "logit_scale": 0},
            {"ema.fc.bias", "logit_scale"},
        ),
        (
            {"params": {"fc": {"bias": 1}}, "spectral": {"u": 1}},
            {"fc.bias", "spectral.u"},
        ),
        ({"rngs": {"scale": 1}, "fc": {"bias": 1}}, {"rngs.weight", "fc.bias"}),
    ],
)
def test_nothing_that_may_be_weights_is_left_out_of_flaxs_trees(
    tmp_path, caplog, tree, wanted
):
    import jax
    from flax import serialization

    arrays = jax.tree.map(lambda axes: np.ones((3, 2)[:axes], np.float32), tree)
    (tmp_path / "x").write_bytes(serialization.to_bytes(arrays))
    with caplog.at_level(logging.WARNING, logger="deliralike"):
        assert set(weights.read(tmp_path / "x")) == wanted
    assert "names and layouts taken for flax's" in caplog.text


@needs_jax
def test_what_is_left_aside_is_reported(tmp_path, caplog):
    from flax import serialization

    state = {
        "params": {"fc": {"bias": np.ones(2)}},
        "step": 3,
        "opt_state": {"mu": np.ones(2)},
        "ema_params": {"fc": {"bias": np.zeros(2)}},
    }
    (tmp_path / "x").write_bytes(serialization.to_bytes(state))
    assert set(weights.read(tmp_path / "x")) == {"fc.bias"}
    assert "read as a training state; 'step', 'opt_state' left aside" in caplog.text
    assert (
        "the weights under 'params' were taken; there are others under 'ema_params'"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("names", "wanted", "report"),
    [
        (
            ["W", "b", "gamma", "beta", "N", "avg_mean"],
            ["W", "b", "gamma", "beta", "N", "avg_mean"],
            "",
        ),
        (
            ["fc/W", "fc/b"],
            ["fc.weight", "fc.bias"],
            "names taken for Chainer's, such as 'fc/W' for 'fc.weight'",
        ),
        (
            ["updater/model:main/a/W", "extra"],
            ["updater.model:main.a.weight", "extra"],
            "names taken for Chainer's",
        ),
        (
            ["updater/model:main/a/W", "updater/t"],
            ["a.weight"],
            "and 1 other entries left aside",
        ),
        (
            ["module.a", "module.b"],
            ["a", "b"],
            "the prefix 'module.' was taken off all names",
        ),
    ],
)
def test_names_of_an_npz_of_others_are_guessed_aloud(
    tmp_path, caplog, names, wanted, report
):
    arrays = {name: np.full(2, number) for number, name in enumerate(names)}
    np.savez(tmp_path / "x.npz", **arrays)
    read = weights.read(tmp_path / "x.npz")
    assert list(read) == wanted
    assert [array[0] for array in read.values()] == list(range(len(wanted)))
    assert report in caplog.text if report else not caplog.text


def test_what_is_written_for_chainer_is_read_as_chainers(tmp_path):
    state = stand_ins({"conv.weight": 4, "norm.weight": 1, "norm.running_var": 1})
    weights.write(tmp_path / "x.safetensors", state)
    zoo.convert(tmp_path / "x.safetensors", tmp_path / "y.npz", to="chainer")
    with np.load(tmp_path / "y.npz") as theirs:
        assert set(theirs) == {"conv/W", "norm/gamma", "norm/avg_var"}
    assert set(weights.read(tmp_path / "y.npz")) == set(state)


@pytest.mark.skipif("chainer" not in BACKENDS, reason="Chainer's own names are wanted")
def test_links_of_chainer_have_the_names_under_which_chainer_saves_them(tmp_path):
    """A PReLU has one vector, as a norm without a shift."""
    backend = backends.get("chainer")
    links = importlib.import_module("chainer.links")
    serializers = importlib.import_module("chainer.serializers")
    chain = importlib.import_module("chainer").Chain(
        linear=links.Linear(3, 4),
        prelu=links.PReLU((4,)),
        layer_norm=links.LayerNormalization(4),
        batch_norm=links.BatchNormalization(4, use_beta=False),
        shift=links.BatchNormalization(4, use_gamma=False),
    )
    weights.write(tmp_path / "x.safetensors", backend.wrap(chain))
    zoo.convert(tmp_path / "x.safetensors", tmp_path / "y.npz", to="chainer")
    serializers.save_npz(tmp_path / "z.npz", chain)
    with np.load(tmp_path / "y.npz") as found, np.load(tmp_path / "z.npz") as wanted:
        assert set(found) == set(wanted)


def test_two_names_that_chainer_would_not_tell_apart_are_refused(tmp_path):
    weights.write(tmp_path / "x.npz", stand_ins({"a.weight": 2, "a.W": 2}))
    with pytest.raises(
        StateError,
        match=r"'a\.weight' and 'a\.W' would both be 'a/W' under Chainer's names",
    ):
        zoo.convert(tmp_path / "x.npz", tmp_path / "y.npz", to="chainer")


def test_a_conversion_keeps_hostile_names(tmp_path, suffix):
    state = stand_ins(dict.fromkeys(HOSTILE["wrappers"] + HOSTILE["TensorFlow's"], 2))
    weights.write(tmp_path / f"x{suffix}", state)
    for target in SUFFIXES:
        weights.convert(tmp_path / f"x{suffix}", tmp_path / f"from{suffix}{target}")
        assert list(weights.read(tmp_path / f"from{suffix}{target}")) == list(state)


@needs_torch
def test_a_network_with_children_of_those_names_is_loaded_from_every_format(
    tmp_path, suffix
):
    from torch import nn

    def wrapped():
        return backends.get("torch").wrap(
            nn.ModuleDict({"model": nn.Linear(3, 2), "head": nn.Linear(2, 5)})
        )

    first, second = wrapped(), wrapped()
    weights.write(tmp_path / f"x{suffix}", first)
    assert weights.load(second, tmp_path / f"x{suffix}").complete
    assert all(
        (array == second.neutral_state()[name]).all()
        for name, array in first.neutral_state().items()
    )


def test_the_metadata_of_safetensors_hold_the_mark(tmp_path):
    weights.write(tmp_path / "x.safetensors", stand_ins({"module.w": 1}))
    content = (tmp_path / "x.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["deliralike.order"]) == ["module.w"]


def test_a_path_with_a_nul_is_refused():
    for use in (
        weights.read,
        lambda path: weights.write(path, {"w": np.ones(1)}),
    ):
        with pytest.raises(
            WeightFileError, match=r"'a\\x00b\.npz' has a NUL character in it"
        ):
            use("a\0b.npz")
