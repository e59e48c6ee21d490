"""Keras's HDF5 files, written with h5py as Keras lays them out."""

import importlib
import importlib.util
import time
import zipfile

import numpy as np
import pytest
import torch

from deliralike import weights, zoo
from deliralike.errors import BackendUnavailable, StateError, WeightFileError

h5py = pytest.importorskip("h5py")

GENERATOR = np.random.default_rng(0)
FIRST, SECOND = (
    GENERATOR.standard_normal((3, 3, 1, 4)),
    GENERATOR.standard_normal((3, 3, 4, 6)),
)  # (h, w, in, out)
NORMS = [
    GENERATOR.uniform(0.5, 1.5, (4, 4)),
    GENERATOR.uniform(0.5, 1.5, (4, 6)),
]  # gamma, beta, mean, variance
DENSE = GENERATOR.standard_normal((6, 5))


def keras_3(path, layers):
    """As ``save_weights("x.weights.h5")`` of Keras 3: groups by class, numbered; arrays numbered
    within ``vars``."""
    with h5py.File(path, "w") as file:
        for group, (name, arrays) in layers.items():
            variables = file.create_group(f"layers/{group}/vars")
            variables.attrs["name"] = name
            for number, array in enumerate(arrays):
                variables[str(number)] = array
        file.create_group("vars")
    return path


def keras_2(path, layers, root=""):
    """As ``save_weights("x.h5")``: layers in order in ``layer_names``, each with its
    ``weight_names``."""
    with h5py.File(path, "w") as file:
        base = file.create_group(root) if root else file
        base.attrs["layer_names"] = [name.encode() for name in layers]
        for name, arrays in layers.items():
            group = base.create_group(name)
            group.attrs["weight_names"] = [
                f"{name}/{leaf}:0".encode() for leaf in arrays
            ]
            for leaf, array in arrays.items():
                group[f"{name}/{leaf}:0"] = array
    return path


NEW = {
    "batch_normalization": ("norm_b", NORMS[0]),
    "batch_normalization_1": ("norm_a", NORMS[1]),
    "conv2d": ("conv_z", [FIRST]),
    "conv2d_1": ("conv_y", [SECOND, np.arange(6.0)]),
    "dense": ("last", [DENSE, np.arange(5.0)]),
    "global_average_pooling2d": ("pool", []),
}
WORDS = ("gamma", "beta", "moving_mean", "moving_variance")
OLD = {
    "conv_z": {"kernel": FIRST},
    "norm_b": dict(zip(WORDS, NORMS[0], strict=True)),
    "pool": {},
    "conv_y": {"kernel": SECOND, "bias": np.arange(6.0)},
    "norm_a": dict(zip(WORDS, NORMS[1], strict=True)),
    "last": {"kernel": DENSE, "bias": np.arange(5.0)},
}


def pytorchs():
    """The same network with its arrays put where PyTorch has them, by hand."""
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 6, 3),
        nn.BatchNorm2d(6),
        nn.Linear(6, 5),
    ).double()
    with torch.no_grad():
        for at, kernel in ((0, FIRST), (2, SECOND)):
            for place in np.ndindex(*kernel.shape):
                module[at].weight[place[3], place[2], place[0], place[1]] = kernel[
                    place
                ]
        module[2].bias[:], module[4].bias[:] = torch.arange(6.0), torch.arange(5.0)
        module[4].weight[:] = torch.from_numpy(DENSE).T
        for at, (gamma, beta, mean, variance) in zip((1, 3), NORMS, strict=True):
            values = {
                "weight": gamma,
                "bias": beta,
                "running_mean": mean,
                "running_var": variance,
            }
            module[at].load_state_dict(
                {name: torch.from_numpy(value) for name, value in values.items()},
                strict=False,
            )
    return module


@pytest.fixture(params=["Keras 3", "Keras 2", "Keras 2, a whole model"])
def file(request, tmp_path):
    if request.param == "Keras 3":
        return keras_3(tmp_path / "x.weights.h5", NEW)
    return keras_2(
        tmp_path / "x.h5", OLD, "model_weights" if "whole" in request.param else ""
    )


def test_layers_have_their_own_names_and_pytorchs_layouts(file):
    read, module = weights.read(file), pytorchs()
    wanted = {
        f"{name}.{leaf}": value
        for name, layer in zip(
            ("conv_z", "norm_b", "conv_y", "norm_a", "last"), module, strict=True
        )
        for leaf, value in layer.state_dict().items()
        if leaf != "num_batches_tracked"
    }
    assert set(read) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(read[name], value)
        assert read[name].flags.writeable


def _like_keras():
    from deliralike.network import Network

    class Like(Network):
        def __init__(self):
            super().__init__()
            nn = self.nn
            self.body = nn.Sequential(
                nn.Conv2d(1, 4, 3, bias=False),
                nn.BatchNorm2d(4),
                nn.Conv2d(4, 6, 3),
                nn.BatchNorm2d(6),
            )
            self.head = nn.Linear(6, 5)

        def forward(self, x):
            return self.head(self.nn.mean(self.body(x), (2, 3)))

    return Like()


@pytest.fixture(scope="module", autouse=True)
def registered():
    zoo.register(
        _like_keras, name="like_keras", dims=(2,), source="a test", shape=(1, 9, 9)
    )
    yield
    zoo.registry._architectures.pop("like_keras", None)


def test_layers_are_fitted_by_their_order_and_shapes(file, tmp_path):
    report = zoo.convert(file, tmp_path / "y.safetensors", "like_keras")
    assert (report.kind, report.largest_difference) == ("an HDF5 file of Keras", None)
    network = zoo.build(
        "like_keras",
        backend="torch",
        dtype="float64",
        weights=tmp_path / "y.safetensors",
    )
    x, module = (
        torch.from_numpy(GENERATOR.standard_normal((2, 1, 9, 9))),
        pytorchs().eval(),
    )
    wanted = module[4](module[:4](x).mean((2, 3)))
    with network.training_mode(False):
        torch.testing.assert_close(network(x), wanted, rtol=1e-12, atol=1e-12)


def test_a_whole_model_of_keras_3_holds_the_same_file(tmp_path):
    inner = keras_3(tmp_path / "x.weights.h5", NEW)
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.write(inner, "model.weights.h5")
    read, wanted = weights.read(tmp_path / "x.keras"), weights.read(inner)
    assert list(read) == list(wanted)
    assert all((read[name] == wanted[name]).all() for name in wanted)


def test_a_depthwise_kernel_becomes_one_in_groups(tmp_path):
    kernel = GENERATOR.standard_normal((3, 3, 4, 2))  # (h, w, in, multiplier)
    read = weights.read(
        keras_3(tmp_path / "x.h5", {"depthwise_conv2d": ("d", [kernel])})
    )["d.weight"]
    x = GENERATOR.standard_normal((1, 4, 3, 3))
    got = torch.nn.functional.conv2d(
        torch.from_numpy(x), torch.from_numpy(read), groups=4
    )[0, :, 0, 0]
    wanted = np.einsum("chw,hwcm->cm", x[0], kernel).reshape(
        -1
    )  # Keras: output channel c * multiplier + m
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    old = weights.read(keras_2(tmp_path / "y.h5", {"d": {"depthwise_kernel": kernel}}))[
        "d.weight"
    ]
    np.testing.assert_array_equal(old, read)


def test_a_transposed_kernel_is_pytorchs(tmp_path):
    kernel = GENERATOR.standard_normal((2, 2, 3, 4))  # (h, w, out, in)
    read = weights.read(
        keras_3(tmp_path / "x.h5", {"conv2d_transpose": ("t", [kernel])})
    )["t.weight"]
    x = GENERATOR.standard_normal((1, 4, 1, 1))
    got = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(x), torch.from_numpy(read), stride=2
    )
    np.testing.assert_allclose(
        got[0], np.einsum("i,hwoi->ohw", x[0, :, 0, 0], kernel), atol=1e-12
    )


def test_layers_past_ten_keep_their_order(tmp_path):
    layers = {
        f"dense{f'_{i}' if i else ''}": (
            f"n{i}",
            [np.full((3, 3), float(i)), np.zeros(3)],
        )
        for i in range(12)
    }
    path = keras_3(tmp_path / "x.h5", layers)
    zoo.convert(
        path, tmp_path / "y.npz", "mlp", in_features=3, out_features=3, hidden=(3,) * 11
    )
    read = weights.read(tmp_path / "y.npz")
    assert [read[f"layers.{i}.weight"][0, 0] for i in range(12)] == list(range(12))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            {"lstm": ("l", [np.ones((3, 8)), np.ones((2, 8)), np.ones(8)])},
            "the layer 'lstm' .* has no counterpart here",
        ),
        (
            {"batch_normalization": ("b", [np.ones(3)] * 3)},
            "the layer 'batch_normalization' .* has no counterpart",
        ),
        ({}, "an HDF5 file without arrays"),
        ({"dense": ("x", [np.array([[b"a"]])])}, "no array of numbers"),
    ],
    ids=["recurrent", "a norm without scale", "nothing", "text"],
)
def test_what_has_no_counterpart_is_refused(tmp_path, layers, message):
    with pytest.raises(WeightFileError, match=message):
        weights.read(keras_3(tmp_path / "x.h5", layers))


def test_layers_of_one_name_go_by_their_places(tmp_path):
    layers = {
        "dense": ("x", [np.ones((2, 3))]),
        "block/layers/dense": ("x", [np.zeros((2, 3))]),
    }
    read = weights.read(keras_3(tmp_path / "x.h5", layers))
    assert {name: array.max() for name, array in read.items()} == {
        "dense.weight": 1,
        "block.dense.weight": 0,
    }


def test_another_number_of_layers_is_told(tmp_path, file):
    with pytest.raises(StateError, match=r"missing in the file: layers.0.weight"):
        zoo.convert(
            file,
            tmp_path / "y.npz",
            "mlp",
            in_features=20,
            out_features=20,
            hidden=(20,),
        )


def test_an_array_that_lies_in_another_file_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(32))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file.create_group("layers/dense/vars")
        group.create_dataset(
            "0", (2, 2), "f8", external=[(str(tmp_path / "secret"), 0, 32)]
        )
    with pytest.raises(WeightFileError, match="no array of numbers"):
        weights.read(tmp_path / "x.h5")


@pytest.mark.parametrize("kind", ["a link", "a view"])
def test_an_array_that_is_one_of_another_files_is_not_read(tmp_path, kind):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["here"] = np.ones((2, 2))
    path = keras_2(tmp_path / "x.h5", {"d": {"kernel": np.zeros((2, 2))}})
    with h5py.File(path, "a") as file:
        del file["d/d/kernel:0"]
        if kind == "a link":
            file["d/d/kernel:0"] = h5py.ExternalLink(
                str(tmp_path / "secret.h5"), "/here"
            )
        else:
            layout = h5py.VirtualLayout((2, 2), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "here", (2, 2))
            file.create_virtual_dataset("d/d/kernel:0", layout)
    with pytest.raises(WeightFileError, match="no array of numbers"):
        weights.read(path)


def test_an_array_of_nothing_but_its_size_is_not_unpacked(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("layers/dense/vars").create_dataset(
            "0", (2**20, 2**20), "f8", chunks=(1024, 1024)
        )
    with pytest.raises(WeightFileError, match="damaged or hostile"):
        weights.read(tmp_path / "x.h5")


def test_without_h5py_the_error_says_what_to_install(file, monkeypatch):
    def missing(name, *rest):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(BackendUnavailable, match=r"pip install 'deliralike\[hdf5\]'"):
        weights.read(file)


def test_keras_itself_writes_such_files(tmp_path, monkeypatch):
    """Where Keras is installed."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    if not importlib.util.find_spec("keras"):
        pytest.skip("Keras is not installed")
    import subprocess
    import sys

    code = (
        "import keras, numpy as np, sys\n"
        "L = keras.layers\n"
        "m = keras.Sequential([keras.Input((9, 9, 1)), L.Conv2D(4, 3, use_bias=False),"
        " L.BatchNormalization(epsilon=1e-5), L.Conv2D(6, 3), L.BatchNormalization(epsilon=1e-5),"
        " L.GlobalAveragePooling2D(), L.Dense(5)])\n"
        "m.set_weights("
        "[np.random.default_rng(0).uniform(0.5, 1.5, w.shape) for w in m.get_weights()])\n"
        "m.save_weights('x.weights.h5'); m.save('y.h5'); m.save('z.keras')\n"
        "x = np.random.default_rng(1).standard_normal((2, 1, 9, 9))\n"
        "np.save('out.npy', m.predict(x.transpose(0, 2, 3, 1), verbose=0))\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True
    )
    x = np.random.default_rng(1).standard_normal((2, 1, 9, 9))
    for name in ("x.weights.h5", "y.h5", "z.keras"):
        zoo.convert(tmp_path / name, tmp_path / f"{name}.npz", "like_keras")
        network = zoo.build(
            "like_keras",
            backend="torch",
            dtype="float64",
            weights=tmp_path / f"{name}.npz",
        )
        with network.training_mode(False):
            np.testing.assert_allclose(
                network(torch.from_numpy(x)).detach(),
                np.load(tmp_path / "out.npy"),
                rtol=1e-4,
            )


@pytest.mark.parametrize(
    "layers", [["dense"] * 2000, ["dense"]], ids=["layers", "arrays"]
)
def test_a_list_that_repeats_its_names_is_refused_at_once(tmp_path, layers):
    keras_2(tmp_path / "x.h5", {"dense": {"kernel": DENSE}})
    with h5py.File(tmp_path / "x.h5", "a") as file:
        file.attrs["layer_names"] = [name.encode() for name in layers]
        file["dense"].attrs["weight_names"] = [b"dense/kernel:0"] * 2000
    with pytest.raises(WeightFileError, match="has one of them twice"):
        weights.read(tmp_path / "x.h5")


def test_groups_that_are_nested_thousands_deep_are_refused_at_once(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file
        for _ in range(3000):
            group = group.create_group("a")
        group.create_group("vars")["0"] = np.ones(2)
    begin = time.process_time()
    with pytest.raises(
        WeightFileError, match=r"x\.h5.*groups are nested more than 100 deep"
    ):
        weights.read(tmp_path / "x.h5")
    assert time.process_time() - begin < 10


def test_groups_that_hold_themselves_are_read_once(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        variables = file.create_group("layers/dense/vars")
        variables["0"], variables["1"] = np.ones((3, 2)), np.ones(2)
        file["layers/dense/again"] = file["layers"]
    assert set(weights.read(tmp_path / "x.h5")) == {"dense.weight", "dense.bias"}
