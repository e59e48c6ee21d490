"""flax's own files: networks of nnx, saved by flax and Orbax, give the same outputs from our
networks."""

import os

import numpy as np
import pytest

from deliralike import backends, weights, zoo
from deliralike.errors import BackendUnavailable, StateError, WeightFileError
from deliralike.network import Network
from tests.conftest import BACKENDS

if "jax" not in BACKENDS:
    pytest.skip("reads and writes flax's own files", allow_module_level=True)
backends.get("jax")

import jax  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from flax import nnx, serialization  # noqa: E402

WEIGHTS = nnx.Any(nnx.Param, nnx.BatchStat)


class OfFlax(nnx.Module):
    """A residual network in miniature, on flax's own layers, with channels last."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv1 = nnx.Conv(3, 8, (3, 3), padding=1, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(8, momentum=0.9, epsilon=1e-5, rngs=rngs)
        self.depthwise = nnx.Conv(
            8, 16, (3, 3), padding=1, feature_group_count=8, rngs=rngs
        )
        self.layers = nnx.List(
            [nnx.Linear(16, 16, rngs=rngs), nnx.Linear(16, 16, rngs=rngs)]
        )
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.LayerNorm(16, epsilon=1e-5, rngs=rngs)
        self.fc = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x):
        x = self.depthwise(nnx.relu(self.bn1(self.conv1(x)))).mean((1, 2))
        for layer in self.layers:
            x = x + nnx.gelu(layer(x), approximate=False)
        return self.fc(self.norm(self.dropout(x)))


class Ours(Network):
    """The same, written once."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
        self.norm = nn.LayerNorm(16)
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.nn.mean(self.depthwise(self.nn.relu(self.bn1(self.conv1(x)))), (2, 3))
        for layer in self.layers:
            x = x + self.nn.gelu(layer(x))
        return self.fc(self.norm(x))


@nnx.jit
def run(network, x):
    """As one program: operation by operation, each is compiled."""
    return network(x)


@pytest.fixture(scope="module")
def module():
    made = OfFlax()
    made.train()
    run(
        made,
        jax.numpy.asarray(
            np.random.default_rng(1).standard_normal((4, 7, 9, 3)), "float32"
        ),
    )
    made.eval()
    return made


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)


@pytest.fixture(scope="module")
def wanted(module, x):
    return np.asarray(run(module, jax.numpy.asarray(x.transpose(0, 2, 3, 1))))


def save_msgpack(path, tree):
    path.write_bytes(serialization.to_bytes(tree))
    return path


def save_orbax(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


SAVED = {
    "msgpack": lambda path, state: save_msgpack(path / "x", nnx.to_pure_dict(state)),
    "msgpack of a training state": lambda path, state: save_msgpack(
        path / "x",
        {"params": nnx.to_pure_dict(state), "step": 3, "opt_state": {"0": {}}},
    ),
    "Orbax": lambda path, state: save_orbax(path / "x", nnx.to_pure_dict(state)),
    "Orbax of a state": lambda path, state: save_orbax(path / "x", state),
}


@pytest.mark.parametrize("label", SAVED)
def test_a_network_that_flax_saved_gives_its_outputs_from_ours(
    tmp_path, module, x, wanted, label
):
    path = SAVED[label](tmp_path, nnx.state(module, WEIGHTS))
    network = Ours.on("torch", seed=5)()
    report = zoo.load(network, path)
    assert set(report.loaded) == {
        name for name in network.neutral_slots() if not name.endswith("tracked")
    }
    with network.training_mode(False), network.backend.evaluating():
        got = network.backend.numpy(network(network.backend.array(x)))
    np.testing.assert_allclose(got, wanted, atol=2e-6)


def test_the_keys_of_dropout_are_no_weights(tmp_path, module):
    path = save_msgpack(
        tmp_path / "x",
        {
            "fc": nnx.to_pure_dict(nnx.state(module.fc)),
            "rngs": {"dropout": {"count": np.zeros((), np.uint32)}},
        },
    )
    assert set(weights.read(path)) == {"fc.weight", "fc.bias"}


def test_linens_collections_are_one_state(tmp_path):
    tree = {
        "params": {
            "bn": {"scale": np.ones(3), "bias": np.zeros(3)},
            "emb": {"embedding": np.ones((5, 3))},
        },
        "batch_stats": {"bn": {"mean": np.full(3, 2.0), "var": np.ones(3)}},
    }
    read = weights.read(save_msgpack(tmp_path / "x", tree))
    assert set(read) == {
        "bn.weight",
        "bn.bias",
        "bn.running_mean",
        "bn.running_var",
        "emb.weight",
    }
    assert read["emb.weight"].shape == (5, 3)


def test_averaged_parameters_are_a_state_of_their_own(tmp_path):
    tree = {
        "params": {"fc": {"kernel": np.ones((2, 3))}},
        "ema_params": {"fc": {"kernel": np.zeros((2, 3))}},
        "step": 1,
    }
    found = weights.contents(save_msgpack(tmp_path / "x", tree))
    assert list(found.states) == ["params", "ema_params"]
    assert found.states["ema_params"]["fc.weight"].shape == (3, 2)


@pytest.mark.parametrize("suffix", [".msgpack", ".orbax"])
def test_formats_of_flax_are_not_written(tmp_path, suffix):
    with pytest.raises(WeightFileError, match="no weight format has the suffix"):
        weights.write(tmp_path / f"x{suffix}", {"a.weight": np.ones((2, 3))})


@pytest.mark.parametrize("damage", ["_METADATA", "manifest.ocdbt", "d"])
def test_a_damaged_folder_of_orbax_is_named(tmp_path, damage):
    path = save_orbax(tmp_path / "x", {"a": {"kernel": np.ones((2, 3), np.float32)}})
    found = [path / damage] if damage != "d" else list((path / "d").iterdir())
    for file in found:
        file.write_bytes(b"")
    with pytest.raises(WeightFileError, match=r"damaged.* copy the whole folder again"):
        weights.read(path)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"kernel": "text"}}, r"'a\.kernel' is a str, no array"),
        ({"a": {"kernel": 3.0}}, r"'a\.kernel' is a float, no array"),
        (
            {"a": {"weight": np.ones(2), "scale": np.ones(2)}},
            r"two arrays are called 'a\.weight'",
        ),
        ({"a": {}}, "holds no arrays"),
    ],
    ids=["text", "number", "twice", "empty"],
)
def test_what_is_no_tree_of_arrays_is_refused(tmp_path, tree, message):
    with pytest.raises(WeightFileError, match=message):
        weights.read(save_msgpack(tmp_path / "x", tree))


def test_without_jax_the_error_says_so(tmp_path, monkeypatch):
    path = save_msgpack(tmp_path / "x", {"a": {"kernel": np.ones((2, 3))}})
    entry = backends.Entry(
        "absent:BACKEND",
        ("no_such_package",),
        "pip install it",
        backends.known()["jax"].weight_files,
    )
    monkeypatch.setitem(backends._SHIPPED, "jax", entry)
    with pytest.raises(
        BackendUnavailable,
        match="is a flax checkpoint .*: backend 'jax' needs the package",
    ):
        weights.read(path)


def test_a_tree_with_other_names_is_fitted_where_its_series_tell(tmp_path):
    """Numbered layers of flax's linen, whose order is known by their numbers, past ten."""
    generator = np.random.default_rng(0)
    sizes = [3, *[6] * 11, 2]
    kernels = [
        generator.standard_normal(shape).astype(np.float32)
        for shape in zip(sizes, sizes[1:], strict=False)
    ]
    tree = {
        f"Dense_{i}": {"kernel": kernel, "bias": kernel[0]}
        for i, kernel in enumerate(kernels)
    }
    path = save_msgpack(tmp_path / "x.msgpack", {"params": tree})
    settings = {"in_features": 3, "out_features": 2, "hidden": (6,) * 11}
    report = zoo.convert(path, tmp_path / "y.npz", "mlp", **settings)
    assert report.layout.startswith("matched by names, shapes and order")
    read = weights.read(tmp_path / "y.npz")
    assert all(
        (read[f"layers.{i}.weight"] == kernel.T).all()
        for i, kernel in enumerate(kernels)
    )


def test_a_tree_whose_order_is_unknown_is_refused(tmp_path):
    tree = {
        name: {"kernel": np.ones((6, 6)), "bias": np.ones(6)}
        for name in ("query", "key", "value")
    }
    path = save_msgpack(tmp_path / "x.msgpack", tree)
    settings = {"in_features": 6, "out_features": 6, "hidden": (6, 6)}
    with pytest.raises(
        StateError,
        match=r"(?s)not certain: layers.0.weight is query.weight, or key.weight, or value.weight",
    ):
        zoo.convert(path, tmp_path / "y.npz", "mlp", **settings)
    with pytest.raises(StateError, match="order of names in such a file says nothing"):
        zoo.convert(path, tmp_path / "y.npz", "mlp", guess=True, **settings)
    assert not (tmp_path / "y.npz").exists()


@pytest.mark.parametrize("name", ["_METADATA", "manifest.ocdbt"])
def test_a_folder_of_orbax_with_a_pipe_in_it_is_refused(tmp_path, name):
    path = save_orbax(tmp_path / "x", {"fc": {"kernel": np.ones((2, 3), np.float32)}})
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(
        WeightFileError, match=f"{name} is a device or pipe, wanted an ordinary"
    ):
        weights.read(path)
