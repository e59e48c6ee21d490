"""Weight files: formats are read as they were written, hostile files refused, and failures leave no
trace."""

import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from deliralike import backends, weights
from deliralike.errors import (
    BackendUnavailable,
    StateError,
    WeightFileError,
    WeightFileMissing,
)
from deliralike.network import Network
from tests.conftest import BACKENDS

SUFFIXES = (".safetensors", ".npz", ".pth", ".pt")
needs_torch = pytest.mark.skipif(
    "torch" not in BACKENDS, reason="reads and writes PyTorch's own files"
)
NEEDS = {".pth": needs_torch, ".pt": needs_torch}


@pytest.fixture(
    params=[pytest.param(suffix, marks=NEEDS.get(suffix, ())) for suffix in SUFFIXES]
)
def suffix(request):
    return request.param


@pytest.fixture
def state():
    rng = np.random.default_rng(3)
    return {
        "z.weight": rng.standard_normal((5, 3, 2)).astype(np.float32),
        "z.running_mean": rng.standard_normal(7),
        "z.num_batches_tracked": np.array(12_345_678_901),
        "a.weight": rng.standard_normal((3, 1)).astype(np.float16),
        "a.mask": np.array([True, False, True]),
        "a.empty": np.zeros((0, 4), np.float32),
        "a.index": np.arange(5, dtype=np.int32),
        "a.bytes": np.arange(3, dtype=np.uint8),
        "a.phase": np.array([1 + 2j], np.complex64),
    }


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        assert got[name].tobytes() == array.tobytes(), name


# Writing and reading
# -----------------------------------------------------------------------------


def test_every_format_brings_back_names_order_types_shapes_and_bits(
    tmp_path, suffix, state
):
    weights.write(tmp_path / f"x{suffix}", state)
    assert_same(weights.read(tmp_path / f"x{suffix}"), state)


def test_the_arrays_that_were_read_can_be_written_to(tmp_path, suffix, state):
    weights.write(tmp_path / f"x{suffix}", state)
    for array in weights.read(tmp_path / f"x{suffix}").values():
        array[...] = 0
    assert_same(weights.read(tmp_path / f"x{suffix}"), state)


def test_arrays_in_any_memory_order_are_written_by_value(tmp_path, suffix):
    grid = np.arange(24.0).reshape(4, 6)
    state = {
        "turned": grid.T,
        "every_other": grid[::2, ::3],
        "swapped": grid.astype(">f8"),
        "backwards": grid[:, ::-1],
    }
    weights.write(tmp_path / f"x{suffix}", state)
    read = weights.read(tmp_path / f"x{suffix}")
    for name, array in state.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == np.float64


def test_arrays_that_may_not_be_written_to_can_be_saved(tmp_path, suffix):
    array = np.arange(3.0)
    array.flags.writeable = False
    weights.write(tmp_path / f"x{suffix}", {"w": array})
    assert_same(weights.read(tmp_path / f"x{suffix}"), {"w": array})


def test_an_npz_in_fortran_order_is_read_by_value(tmp_path):
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez_compressed(tmp_path / "x.npz", w=array)
    np.testing.assert_array_equal(weights.read(tmp_path / "x.npz")["w"], array)


def test_other_libraries_read_what_is_written(tmp_path, state):
    weights.write(tmp_path / "x.safetensors", state)
    other = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert_same({name: other[name] for name in state}, state)
    weights.write(tmp_path / "x.npz", state)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as other:
        assert_same(dict(other), state)


def test_safetensors_of_other_libraries_are_read(tmp_path, state):
    safetensors.numpy.save_file(state, tmp_path / "x", metadata={"format": "pt"})
    read = weights.read(tmp_path / "x")
    assert_same({name: read[name] for name in state}, state)


@pytest.mark.parametrize("order", ["{}", "[1]", '["b", "b", "gone"]', "null"])
def test_a_wrong_order_in_the_metadata_loses_no_name(tmp_path, order):
    state = {"a": np.ones(1), "b": np.zeros(2)}
    safetensors.numpy.save_file(
        state, tmp_path / "x", metadata={"deliralike.order": order}
    )
    assert set(weights.read(tmp_path / "x")) == {"a", "b"}


def test_bfloat16_is_stored_as_such_and_read_exactly_as_float32(tmp_path):
    halves = np.array([[1.0, -3.140625], [1e-38, np.inf]], ml_dtypes.bfloat16)
    weights.write(
        tmp_path / "x.safetensors", {"odd": np.ones(3, np.uint8), "w": halves}
    )
    read = weights.read(tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").read_bytes().count(halves.tobytes()) == 1
    assert_same(read, {"odd": np.ones(3, np.uint8), "w": halves.astype(np.float32)})


def test_a_type_that_numpy_lacks_is_named(tmp_path):
    safetensors.numpy.save_file(
        {"w": np.ones(3, ml_dtypes.float8_e4m3fn)}, tmp_path / "x"
    )
    with pytest.raises(
        WeightFileError, match="'w' has the type F8_E4M3, which NumPy lacks"
    ):
        weights.read(tmp_path / "x")


# Nothing half written
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()],
    ids=repr,
)
def test_a_failure_while_writing_leaves_the_old_file_and_no_other(
    tmp_path, suffix, monkeypatch, failure
):
    path = tmp_path / f"x{suffix}"
    weights.write(path, {"w": np.arange(3.0)})
    before = path.read_bytes()

    def fail(descriptor):
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    wanted = (
        KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else WeightFileError
    )
    with pytest.raises(wanted):
        weights.write(path, {"w": np.arange(4.0)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_failure_while_taking_the_old_files_place_leaves_it(tmp_path, monkeypatch):
    weights.write(tmp_path / "x.npz", {"w": np.arange(3.0)})
    before = (tmp_path / "x.npz").read_bytes()

    def fail(path, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(WeightFileError, match="Operation not permitted"):
        weights.write(tmp_path / "x.npz", {"w": np.arange(4.0)})
    assert (tmp_path / "x.npz").read_bytes() == before


def test_the_error_of_a_failed_write_says_why_and_that_nothing_changed(tmp_path):
    with pytest.raises(
        WeightFileError,
        match=r"x\.npz was not written, and .* left as it was: No such file",
    ):
        weights.write(tmp_path / "gone" / "x.npz", {"w": np.ones(1)})


def test_a_directory_is_not_overwritten(tmp_path):
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(WeightFileError, match="Is a directory"):
        weights.write(tmp_path / "x.npz", {"w": np.ones(1)})
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]


def test_a_link_stays_a_link(tmp_path):
    weights.write(tmp_path / "real.npz", {"w": np.ones(1)})
    (tmp_path / "x.npz").symlink_to(tmp_path / "real.npz")
    weights.write(tmp_path / "x.npz", {"w": np.zeros(2)})
    assert (tmp_path / "x.npz").is_symlink()
    assert weights.read(tmp_path / "real.npz")["w"].shape == (2,)


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path, suffix):
    weights.write(tmp_path / f"x{suffix}", {"w": np.ones(1)})
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / f"x{suffix}").stat().st_mode == (
        tmp_path / "plain"
    ).stat().st_mode


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([None]), "'w' has the type object, wanted an array of numbers"),
        ("text", "'w' has the type <U4"),
        ([[1], [1, 2]], "'w' is a list that is no array on the host"),
    ],
    ids=["objects", "text", "ragged"],
)
def test_what_no_file_can_hold_is_refused_by_name(tmp_path, suffix, value, message):
    with pytest.raises(WeightFileError, match=message):
        weights.write(tmp_path / f"x{suffix}", {"fine": np.ones(1), "w": value})
    assert not list(tmp_path.iterdir())


def test_a_type_that_safetensors_lack_is_named(tmp_path):
    with pytest.raises(WeightFileError, match="'a' has the type complex128, which"):
        weights.write(tmp_path / "a.safetensors", {"a": np.ones(2, complex)})


def test_an_empty_state_is_not_written(tmp_path):
    with pytest.raises(WeightFileError, match="there are no weights to write"):
        weights.write(tmp_path / "x.npz", {})


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(
        WeightFileError,
        match=r"the suffix '\.hdf5' of .*: wanted one of \.safetensors, \.npz, \.pth, \.pt",
    ):
        weights.write(tmp_path / "x.hdf5", {"w": np.ones(1)})


def test_what_has_no_weights_is_refused(tmp_path):
    with pytest.raises(
        WeightFileError, match=r"a list has no neutral state: .*wrap\(network\)"
    ):
        weights.write(tmp_path / "x.npz", [np.ones(1)])


# PyTorch's files
# -----------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def module(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(5, 2)
    ).double()


@needs_torch
@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize(
    "nest",
    [
        lambda state: state,
        lambda state: {
            "state_dict": state,
            "epoch": 3,
            "optimizer": {"state": {}, "param_groups": []},
        },
        lambda state: {"model": {"state_dict": state}},
        lambda state: {"model_state_dict": state, "loss": 0.5},
        lambda state: OrderedDict(
            (f"module.{name}", tensor) for name, tensor in state.items()
        ),
        lambda state: {
            "state_dict": {f"module.{name}": tensor for name, tensor in state.items()}
        },
    ],
    ids=[
        "plain",
        "state_dict",
        "model and state_dict",
        "model_state_dict",
        "parallel",
        "parallel in state_dict",
    ],
)
def test_state_dicts_and_checkpoints_are_read(
    torch, module, tmp_path, new_format, nest
):
    torch.save(
        nest(module.state_dict()),
        tmp_path / "x",
        _use_new_zipfile_serialization=new_format,
    )
    assert_same(
        weights.read(tmp_path / "x"),
        {name: t.numpy() for name, t in module.state_dict().items()},
    )


@needs_torch
def test_torch_reads_what_is_written_with_its_safe_loader(torch, module, tmp_path):
    weights.write(tmp_path / "x.pth", backends.get("torch").wrap(module))
    loaded = torch.load(tmp_path / "x.pth", weights_only=True)
    assert type(loaded) is dict
    copy = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(5, 2)
    ).double()
    copy.load_state_dict(loaded)
    for name, tensor in module.state_dict().items():
        assert torch.equal(copy.state_dict()[name], tensor)


@needs_torch
def test_bfloat16_views_and_parameters_are_read_by_value(torch, tmp_path):
    grid = torch.arange(6.0).reshape(2, 3)
    state = {
        "half": grid.bfloat16(),
        "turned": grid.T,
        "part": grid[1],
        "all": torch.nn.Parameter(grid),
    }
    torch.save(state, tmp_path / "x.pt")
    read = weights.read(tmp_path / "x.pt")
    assert read["half"].dtype == np.float32
    for name, wanted in {
        "half": grid,
        "turned": grid.T,
        "part": grid[1],
        "all": grid,
    }.items():
        np.testing.assert_array_equal(read[name], wanted.numpy())
    read["part"][...] = 0  # shares no memory with the others, as it did in the file
    np.testing.assert_array_equal(read["all"], grid.numpy())


class Payload:
    """Runs a command when it is unpickled by an ordinary loader."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


@pytest.fixture
def payload(tmp_path):
    marker = tmp_path / "executed"
    yield Payload(marker)
    assert not marker.exists()


def test_the_payload_would_run_if_an_ordinary_loader_read_it(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "proof")))
    assert (tmp_path / "proof").exists()


@needs_torch
@pytest.mark.parametrize("name", ["x.pth", "x.safetensors", "x.npz", "x"])
@pytest.mark.parametrize("new_format", [True, False])
def test_a_malicious_checkpoint_runs_nothing(
    torch, tmp_path, payload, name, new_format
):
    torch.save(
        {"w": torch.ones(1), "p": payload},
        tmp_path / name,
        _use_new_zipfile_serialization=new_format,
    )
    with pytest.raises(
        WeightFileError, match="safe loader refuses it: .*GLOBAL posix.system"
    ) as caught:
        weights.read(tmp_path / name)
    assert "add_safe_globals" not in str(caught.value)
    assert "weights_only" not in str(caught.value)


@needs_torch
@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_malicious_pickle_runs_nothing(tmp_path, payload, protocol):
    (tmp_path / "x.pt").write_bytes(pickle.dumps(payload, protocol))
    with pytest.raises(WeightFileError, match="the safe loader refuses it"):
        weights.read(tmp_path / "x.pt")


@needs_torch
def test_a_pickle_with_a_brace_where_a_header_begins_is_still_a_pickle(tmp_path):
    (tmp_path / "x").write_bytes(
        b"\x80\x02X\x04\x00\x00\x00a{bcq\x00."
    )  # the text 'a{bc'
    with pytest.raises(WeightFileError, match="looks like a PyTorch checkpoint, but"):
        weights.read(tmp_path / "x")


def test_a_malicious_text_pickle_runs_nothing(tmp_path, payload):
    (tmp_path / "x.pt").write_bytes(pickle.dumps(payload, 0))
    with pytest.raises(WeightFileError, match="found a file that begins with b'cposix"):
        weights.read(tmp_path / "x.pt")


def test_a_malicious_npz_runs_nothing(tmp_path, payload):
    np.savez(tmp_path / "x.npz", fine=np.ones(2), w=np.array([payload], object))
    with pytest.raises(
        WeightFileError,
        match="'w' holds Python objects, which only unsafe reading brings back",
    ):
        weights.read(tmp_path / "x.npz")


@needs_torch
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda torch: torch.ones(3),
            "holds a Tensor in place of tensors by name; wanted what torch.save",
        ),
        (lambda torch: {}, "holds an empty dict in place"),
        (lambda torch: {"state_dict": {}}, "holds an empty dict in place"),
        (
            lambda torch: {"w": torch.ones(1), "epoch": 3},
            r"not tensors by name, such as 'epoch' \(a int\)",
        ),
        (
            lambda torch: {0: torch.ones(1)},
            r"not tensors by name, such as 0 \(a Tensor\)",
        ),
        (
            lambda torch: {"w": torch.ones(2).to_sparse()},
            "'w' is a tensor that NumPy cannot hold",
        ),
    ],
    ids=["a tensor", "empty", "empty inside", "an epoch", "numbered", "sparse"],
)
def test_a_checkpoint_without_a_state_dict_is_refused(torch, tmp_path, make, message):
    torch.save(make(torch), tmp_path / "x.pth")
    with pytest.raises(WeightFileError, match=message):
        weights.read(tmp_path / "x.pth")


@needs_torch
def test_a_whole_pickled_module_is_refused(torch, module, tmp_path):
    torch.save(module, tmp_path / "x.pth")
    with pytest.raises(
        WeightFileError,
        match=r"Unsupported global.*wanted what torch\.save\(model\.state_dict\(\)",
    ):
        weights.read(tmp_path / "x.pth")


@needs_torch
def test_a_checkpoint_that_was_packed_again_is_read_by_value(torch, module, tmp_path):
    torch.save(module.state_dict(), tmp_path / "x.pth")
    with (
        zipfile.ZipFile(tmp_path / "x.pth") as old,
        zipfile.ZipFile(tmp_path / "y.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert_same(weights.read(tmp_path / "y.pth"), weights.read(tmp_path / "x.pth"))


@needs_torch
@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.99])
def test_a_truncated_checkpoint_is_refused(torch, module, tmp_path, new_format, kept):
    torch.save(
        module.state_dict(),
        tmp_path / "x.pth",
        _use_new_zipfile_serialization=new_format,
    )
    whole = (tmp_path / "x.pth").read_bytes()
    (tmp_path / "x.pth").write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(
        WeightFileError,
        match=r"x\.pth (begins as a zip archive, and its end is missing|looks like a PyTorch)",
    ):
        weights.read(tmp_path / "x.pth")


def test_without_torch_the_error_says_what_the_file_is_and_what_to_install(
    tmp_path, monkeypatch
):
    (tmp_path / "x.pth").write_bytes(pickle.dumps({}, 2))
    missing = backends.Entry(
        "deliralike.none:BACKEND",
        ("no_such_package",),
        "pip install it",
        backends.known()["torch"].weight_files,
    )
    monkeypatch.setitem(backends._SHIPPED, "torch", missing)
    with pytest.raises(
        BackendUnavailable,
        match=r"x\.pth is a PyTorch checkpoint: .*'no_such_package'.*pip install it",
    ):
        weights.read(tmp_path / "x.pth")
    with pytest.raises(
        BackendUnavailable, match=r"y\.pth is to be a PyTorch checkpoint: "
    ):
        weights.write(tmp_path / "y.pth", {"w": np.ones(1)})


# NumPy's archives and Chainer's names
# -----------------------------------------------------------------------------


CHAINER_STATE = {
    "/conv1/W": np.ones((4, 3, 3, 3)),
    "conv1/b": np.ones(4),
    "blocks/0/bn/gamma": np.ones(4),
    "blocks/0/bn/beta": np.ones(4),
    "blocks/0/bn/avg_mean": np.ones(4),
    "blocks/0/bn/avg_var": np.ones(4),
    "blocks/0/bn/N": np.array(0),
    "own": np.ones(2),
}
NEUTRAL_NAMES = [
    "conv1.weight",
    "conv1.bias",
    "blocks.0.bn.weight",
    "blocks.0.bn.bias",
    "blocks.0.bn.running_mean",
    "blocks.0.bn.running_var",
    "blocks.0.bn.num_batches_tracked",
    "own",
]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_chainers_names_become_neutral(tmp_path, save):
    save(tmp_path / "x.npz", **CHAINER_STATE)
    assert list(weights.read(tmp_path / "x.npz")) == NEUTRAL_NAMES


def test_of_a_trainers_snapshot_only_the_model_is_read(tmp_path):
    snapshot = {
        f"updater/model:main/{name.strip('/')}": array
        for name, array in CHAINER_STATE.items()
    }
    others = {
        "updater/iteration": np.array(7),
        "updater/optimizer:main/t": np.array([None]),
        "_log": np.array("[]"),
    }
    np.savez_compressed(tmp_path / "snapshot_iter_7", **(others | snapshot))
    assert list(weights.read(tmp_path / "snapshot_iter_7.npz")) == NEUTRAL_NAMES


def test_neutral_names_in_an_npz_stay_as_they_are(tmp_path):
    state = {"fc.W": np.ones(1), "heads.a/b.weight": np.ones(2)}
    weights.write(tmp_path / "x.npz", state)
    assert_same(weights.read(tmp_path / "x.npz"), state)


def npz(tmp_path, header, data, compression=zipfile.ZIP_STORED):
    """An npz with one array whose header may lie."""
    text = (repr(header) + "\n").encode()
    with zipfile.ZipFile(tmp_path / "x.npz", "w", compression) as archive:
        archive.writestr(
            "w.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data
        )
    return tmp_path / "x.npz"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            {"descr": "<f4", "fortran_order": False, "shape": (2**40,)},
            r"claims the shape \(1099511627776,\) of float32, but 16",
        ),
        (
            {"descr": "<f4", "fortran_order": False, "shape": (3,)},
            r"claims the shape \(3,\) of float32, but 16 bytes follow",
        ),
        ({"descr": "<f4", "fortran_order": False, "shape": (-4,)}, "claims the shape"),
        (
            {"descr": "|V4", "fortran_order": False, "shape": (4,)},
            "'w' holds the type |V4",
        ),
        (
            {"descr": "<U1", "fortran_order": False, "shape": (4,)},
            "'w' holds the type <U1",
        ),
        (
            {"descr": "|O", "fortran_order": False, "shape": (4,)},
            "'w' holds Python objects",
        ),
        (
            {"descr": "nonsense", "fortran_order": False, "shape": (4,)},
            "looks like a zip archive but cannot be read",
        ),
    ],
    ids=["absurd", "short", "negative", "void", "text", "objects", "nonsense"],
)
def test_an_npz_whose_header_lies_is_refused(tmp_path, header, message):
    with pytest.raises(WeightFileError, match=message):
        weights.read(npz(tmp_path, header, bytes(16)))


def test_an_npz_with_a_flipped_bit_is_refused(tmp_path):
    path = npz(
        tmp_path,
        {"descr": "<f4", "fortran_order": False, "shape": (4,)},
        b"0123456789abcdef",
    )
    path.write_bytes(path.read_bytes().replace(b"0123", b"1123"))
    with pytest.raises(WeightFileError, match="Bad CRC-32"):
        weights.read(path)


def test_a_small_file_may_hold_much_more_than_its_size(tmp_path):
    """A network of a megabyte that starts at zero; it hardly takes memory."""
    np.savez_compressed(tmp_path / "x.npz", w=np.zeros(2**18, np.float32))
    assert (tmp_path / "x.npz").stat().st_size < 2**20 / 200
    assert not weights.read(tmp_path / "x.npz")["w"].any()


@pytest.mark.parametrize("name", ["w.npy", "archive/data/0"])
def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, name):
    with (
        zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w") as member,
    ):
        for _ in range(80):
            member.write(bytes(2**20))
    with pytest.raises(
        WeightFileError, match="claims to hold 83,886,080 bytes of arrays"
    ):
        weights.read(tmp_path / "x")


# Anything else
# -----------------------------------------------------------------------------


def header(described, data=b""):
    text = json.dumps(described).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 90_000_001) + b'{"w":',
        header(
            {"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]}}, bytes(8)
        ),
        header({"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
        header(
            {
                "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "v": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            bytes(12),
        ),
        b"\xff" * 8 + b"{" + b"\xff" * 20,
    ],
    ids=[
        "absurd length",
        "long length",
        "large shape",
        "type",
        "overlap",
        "no text",
    ],
)
def test_a_damaged_or_hostile_safetensors_file_is_refused(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(
        WeightFileError, match="looks like a safetensors file but cannot be read"
    ):
        weights.read(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    "length", [range(start, start + 64) for start in (0, 64, 128)], ids=str
)
def test_a_safetensors_header_of_any_length_is_recognised(tmp_path, length):
    for size in length:  # 128 looks like a pickle, byte by byte
        weights.write(tmp_path / "x.safetensors", {"w" * (size + 1): np.ones(1)})
        assert list(weights.read(tmp_path / "x.safetensors")) == ["w" * (size + 1)]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found an empty file"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            r"found a Git LFS pointer .*'git lfs pull'",
        ),
        (b"\n<!DOCTYPE html><html>", "found a web page"),
        (b"\x1f\x8b\x08", r"found a gzip archive \(unpack it first\)"),
        (b"\x89HDF\r\n", r"found an HDF5 file .*chainer.serializers.load_hdf5"),
        (b"\x93NUMPY\x01\x00", "found a single NumPy array without a name"),
        (b"PK\x05\x06" + bytes(18), "found an empty archive"),
        (b"hello world", r"found a file that begins with b'hello world'"),
    ],
    ids=["empty", "lfs", "html", "gzip", "hdf5", "npy", "empty zip", "text"],
)
def test_a_foreign_file_is_named_for_what_it_is(tmp_path, content, found):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(
        WeightFileError,
        match=f"{found}.*, wanted a safetensors file or .* or a PyTorch checkpoint",
    ):
        weights.read(tmp_path / "x")


def test_a_missing_file_is_both_kinds_of_error(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"there is no file '.*gone\.pth': wanted a safetensors file or",
    ) as caught:
        weights.read(tmp_path / "gone.pth")
    assert isinstance(caught.value, WeightFileMissing)
    assert isinstance(caught.value, WeightFileError)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(
        WeightFileError, match="is a directory, wanted a safetensors file"
    ):
        weights.read(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x")
    with pytest.raises(WeightFileError, match="is a device or pipe"):
        weights.read(tmp_path / "x")


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"")

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(tmp_path / "x"))

    monkeypatch.setattr(
        Path, "open", denied
    )  # the tests may run as root, who may read everything
    with pytest.raises(
        WeightFileError, match=r"x cannot be opened \(Permission denied\)"
    ):
        weights.read(tmp_path / "x")


# Converting and loading
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [".safetensors", ".npz", pytest.param(".pth", marks=needs_torch)]
)
def test_converting_there_and_back_changes_no_bit(tmp_path, state, source, suffix):
    weights.write(tmp_path / f"a{source}", state)
    report = weights.convert(tmp_path / f"a{source}", tmp_path / f"b{suffix}")
    weights.convert(tmp_path / f"b{suffix}", tmp_path / f"c{source}")
    assert_same(weights.read(tmp_path / f"c{source}"), state)
    assert report.names == tuple(state)
    assert report.bytes == sum(array.nbytes for array in state.values())


def test_the_report_of_a_conversion_says_what_it_did(tmp_path):
    weights.write(
        tmp_path / "a.npz",
        {
            "w": np.ones((500, 1000), np.float32),
            "b": np.ones(500, np.float32),
            "n": np.array(1),
        },
    )
    report = weights.convert(str(tmp_path / "a.npz"), str(tmp_path / "b.safetensors"))
    assert report.dtypes == {"float32": 2, "int64": 1}
    assert str(report).endswith("b.safetensors: 3 arrays (2 float32, 1 int64), 2.0 MB")


def test_a_dry_run_writes_nothing(tmp_path, suffix):
    weights.write(tmp_path / "a.npz", {"w": np.ones(3)})
    report = weights.convert(tmp_path / "a.npz", tmp_path / f"b{suffix}", dry_run=True)
    assert (report.written, report.names) == (False, ("w",))
    assert "dry run" in str(report)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_conversion_that_fails_leaves_the_target_as_it_was(tmp_path, dry_run):
    (tmp_path / "a.pth").write_bytes(b"not weights")
    weights.write(tmp_path / "b.safetensors", {"w": np.ones(3)})
    before = (tmp_path / "b.safetensors").read_bytes()
    with pytest.raises(WeightFileError, match=r"a\.pth is not a weight file"):
        weights.convert(tmp_path / "a.pth", tmp_path / "b.safetensors", dry_run=dry_run)
    assert (tmp_path / "b.safetensors").read_bytes() == before


def test_a_conversion_to_an_unknown_format_fails_before_reading(tmp_path):
    with pytest.raises(
        WeightFileError, match=r"no weight format has the suffix '\.txt'"
    ):
        weights.convert(tmp_path / "gone.pth", tmp_path / "b.txt")


class Small(Network):
    def __init__(self, features):
        super().__init__()
        self.fc = self.nn.Linear(features, 2)


class Parallel(Network):
    def __init__(self):
        super().__init__()
        self.module = Small(3)


def test_a_network_is_written_and_loaded(backend, suffix, tmp_path):
    network = Small.on(backend, seed=1)(3)
    weights.write(tmp_path / f"x{suffix}", network)
    other = Small.on(backend, seed=2)(3)
    report = weights.load(other, tmp_path / f"x{suffix}")
    assert report.loaded == ("fc.weight", "fc.bias")
    assert_same(other.neutral_state(), network.neutral_state())


def test_weights_that_do_not_fit_are_refused_with_the_files_name(backend, tmp_path):
    weights.write(tmp_path / "x.npz", Small.on(backend)(3))
    network = Small.on(backend)(4)
    reason = r"fc\.weight has shape \(2, 3\), wanted \(2, 4\)"
    with pytest.raises(
        StateError, match=rf"x\.npz: the weights do not fit Small.*{reason}"
    ):
        weights.load(network, tmp_path / "x.npz")


def test_the_prefix_of_parallel_training_is_taken_off(backend, tmp_path):
    network = Parallel.on(backend)()
    weights.write(tmp_path / "x.npz", network)
    inner = Small.on(backend, seed=9)(3)
    weights.load(inner, tmp_path / "x.npz")
    np.testing.assert_array_equal(
        inner.neutral_state()["fc.weight"], network.neutral_state()["module.fc.weight"]
    )


def test_a_network_with_a_block_called_module_keeps_its_names(backend, tmp_path):
    network = Parallel.on(backend)()
    weights.write(tmp_path / "x.npz", network)
    other = Parallel.on(backend, seed=9)()
    weights.load(other, tmp_path / "x.npz")
    assert_same(other.neutral_state(), network.neutral_state())


def test_reading_from_chainers_own_serializer(tmp_path):
    if "chainer" not in BACKENDS:
        pytest.skip("writes with Chainer")
    backends.get("chainer")
    import chainer
    import chainer.links as L

    chain = chainer.Chain(
        conv=L.Convolution2D(3, 4, 3), bn=L.BatchNormalization(4), fc=L.Linear(4, 2)
    )
    chainer.serializers.save_npz(tmp_path / "x.npz", chain)
    read = weights.read(tmp_path / "x.npz")
    np.testing.assert_array_equal(read["conv.weight"], chain.conv.W.array)
    np.testing.assert_array_equal(read["bn.running_var"], chain.bn.avg_var)
    assert {"fc.weight", "fc.bias", "bn.weight", "bn.num_batches_tracked"} <= set(read)
