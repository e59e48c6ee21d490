"""Links and files that the bridge corrects."""

import chainer
import numpy as np
import pytest
from chainer import serializers

pytestmark = pytest.mark.filterwarnings("error")


def test_hdf5_strings_are_read_as_strings(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "file", "w") as file:
        file["name"] = "Grüße"
        reader = serializers.HDF5Deserializer(file)
        assert reader("name", "") == "Grüße"
        assert reader("name", None) == np.array("Grüße", dtype=object)


def test_hdf5_keeps_none_numbers_and_every_float(tmp_path):
    h5py = pytest.importorskip("h5py")
    values = {
        "none": None,
        "int": 3,
        "float": 0.1,
        "half": np.float16([0.1]),
        "double": np.float64([0.1, 2]),
    }
    with h5py.File(tmp_path / "file", "w") as file:
        writer, reader = serializers.HDF5Serializer(file), serializers.HDF5Deserializer(file)
        for key, value in values.items():
            writer(key, value)
        assert (reader("none", 1), reader("int", 0), reader("float", 0.0)) == (None, 3, 0.1)
        for key in ("half", "double"):
            read = reader(key, np.zeros_like(values[key]))
            assert read.dtype == values[key].dtype and (read == values[key]).all()


def test_debug_print_calls_the_device_cpu():
    assert "- device: CPU" in chainer.Variable(np.ones(2, "float32")).debug_print()
