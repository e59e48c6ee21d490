"""Checkpoints as folders: exact, whole at any moment, and never believed when they are not what was
written."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from xxhash import xxh3_128_hexdigest

from deliralike import weights, zoo
from deliralike.errors import CheckpointError, CheckpointMissing
from deliralike.training import checkpoint

OLD = {"network": {"a": np.arange(7.0)}, "run": {"step": 1}}
NEW = {"network": {"a": np.arange(7.0) + 1}, "run": {"step": 2}}


def same_bits(first, second):
    """Equal in structure, type and every bit."""
    if isinstance(first, np.ndarray):
        same_kind = isinstance(second, np.ndarray) and (first.dtype, first.shape) == (
            second.dtype,
            second.shape,
        )
        return same_kind and first.tobytes() == second.tobytes()
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(
            same_bits(first[key], second[key]) for key in first
        )
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same_bits, first, second))
    return repr(first) == repr(second)  # tells -0.0 from 0.0, and NaN is NaN


def there_and_back(folder, value):
    checkpoint.write(folder / "c", {"part": value})
    return checkpoint.read(folder / "c")["part"]


# Exactness
# -----------------------------------------------------------------------------

VALUES = {
    "texts": {
        "": "",
        "ä/ö\n\x00": "\ud800 \U0001f600",
        "$array": "x",
        "$$": {"$tuple": [1]},
        "a.b": None,
    },
    "numbers": [
        0,
        -1,
        2**64,
        2**200,
        -(2**1000),
        0.1,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        True,
        False,
    ],
    "not finite": [math.nan, math.inf, -math.inf],
    "tuples": (1, (2.0, ()), [({"x": (3,)},)]),
    "empty": [{}, [], (), ""],
    "a dict that looks like an array": {"$array": "c"},
    "nothing": None,
}
ARRAYS = {
    "0-d": np.array(-0.0),
    "empty": np.empty((3, 0, 2), np.float32),
    "flags": np.array([[True, False, True]]),
    "int64": np.array([-(2**63), 2**63 - 1]),
    "uint64": np.array([2**64 - 1], np.uint64),
    "int8": np.arange(-3, 4, dtype=np.int8),
    "half": np.array([65504, 6e-8, np.nan], np.float16),
    "complex64": np.array([1 + 2j], np.complex64),
    "payload": np.array([0x7FF0000000000001, 0xFFF8000000000000], np.uint64).view(
        np.float64
    ),
    "strided": np.arange(35.0).reshape(7, 5)[::2, ::-1],
    "fortran": np.asfortranarray(np.arange(35.0).reshape(7, 5)),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_values_come_back_exactly(tmp_path, value):
    assert same_bits(there_and_back(tmp_path, value), value)


def test_arrays_come_back_exactly_and_may_be_changed(tmp_path):
    nest = {
        "deep": [ARRAYS, (np.ones(3), {"x/y": np.zeros(2), "x": {"y": np.ones(1)}})],
        "__metadata__": np.ones(2),
    }
    found = there_and_back(tmp_path, nest)
    assert same_bits(found, nest)
    found["deep"][0]["int8"][0] = 9


def test_an_array_alone_is_a_part(tmp_path):
    assert same_bits(there_and_back(tmp_path, ARRAYS["int64"]), ARRAYS["int64"])


def test_arrays_in_another_byte_order_keep_their_values(tmp_path):
    assert same_bits(
        there_and_back(tmp_path, np.arange(3, dtype=">i4")),
        np.arange(3, dtype=np.int32),
    )


def test_bfloat16_comes_back_as_float32_with_the_same_values(tmp_path):
    values = np.array([1.0, -2.5, 3.3895314e38, np.inf], ml_dtypes.bfloat16)
    found = there_and_back(tmp_path, values)
    assert found.dtype == np.float32
    assert (found == values.astype(np.float32)).all()


def test_numpys_scalars_come_back_as_pythons(tmp_path):
    found = there_and_back(
        tmp_path,
        [np.float64(0.1), np.int32(3), np.bool_(True), np.str_("x"), np.float32(0.1)],
    )
    assert same_bits(found, [0.1, 3, True, "x", float(np.float32(0.1))])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [object()]}, r"part\['a'\]\['0'\] is a object, wanted a number"),
        ({"a": {1, 2}}, r"part\['a'\] is a set"),
        ({"a": b"x"}, r"part\['a'\] is a bytes"),
        ({3: 1}, "part has the key 3, wanted texts as keys"),
        (1j, "part is a complex"),
        (np.array(["x"]), "'part' has the type <U1, wanted an array of numbers"),
        (np.array([None]), "'part' has the type object"),
        (
            np.zeros(2, np.complex128),
            "part has the type complex128, which safetensors files lack",
        ),
        (np.ma.array([1, 2], mask=[0, 1]), "part has masked elements"),
        ({"x": np.datetime64("2020-01-01")}, r"part\['x'\] is a date"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused_and_nothing_is_written(
    tmp_path, value, message
):
    with pytest.raises(CheckpointError, match=message):
        checkpoint.write(tmp_path / "c", {"part": value})
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_holds_itself_is_refused(tmp_path):
    state = {}
    state["again"] = state
    with pytest.raises(CheckpointError, match="the state holds itself"):
        checkpoint.write(tmp_path / "c", {"part": state})


# Files
# -----------------------------------------------------------------------------


def test_the_files_are_those_of_the_safetensors_library(tmp_path):
    arrays = {
        name: array for name, array in ARRAYS.items() if name != "complex64"
    }  # which the library does not read
    there_and_back(tmp_path, arrays)
    found = safetensors.numpy.load_file(tmp_path / "c" / "part.safetensors")
    assert all(
        same_bits(found[name], np.array(array, order="C"))
        for name, array in arrays.items()
    )
    assert found.keys() == arrays.keys()


@pytest.mark.parametrize("architecture", ["lenet", "mlp"])
def test_the_network_file_is_a_weight_file(tmp_path, architecture):
    settings = {
        "lenet": {"image_size": 16},
        "mlp": {"in_features": 7, "out_features": 5},
    }[architecture]
    network = zoo.build(architecture, backend="chainer", **settings)
    checkpoint.write(tmp_path / "c", {"network": network.neutral_state(), "run": {}})
    assert same_bits(
        weights.read(tmp_path / "c" / "network.safetensors"), network.neutral_state()
    )
    other = zoo.build(architecture, backend="chainer", seed=1, **settings)
    assert weights.load(other, tmp_path / "c" / "network.safetensors").complete
    weights.convert(tmp_path / "c" / "network.safetensors", tmp_path / "x.npz")


def test_parts_have_files_of_their_own_and_the_rest_is_readable(tmp_path):
    path = checkpoint.write(
        tmp_path / "c",
        {"network": {"a": np.ones(2)}, "../x/y": [np.ones(1)], "run": {"step": 3}},
    )
    assert sorted(file.name for file in path.iterdir()) == [
        "..%2Fx%2Fy.safetensors",
        "network.safetensors",
        "state.json",
    ]
    assert json.loads((path / "state.json").read_text())["state"]["run"] == {"step": 3}


def test_a_second_write_replaces_the_first(tmp_path):
    for state in (OLD, NEW):
        checkpoint.write(tmp_path / "c", state)
        assert same_bits(checkpoint.read(tmp_path / "c"), state)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


# What is not a checkpoint
# -----------------------------------------------------------------------------


def edited(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flipped(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def linked(folder):
    (folder / "network.safetensors").rename(folder.parent / "elsewhere")
    (folder / "network.safetensors").symlink_to(folder.parent / "elsewhere")


def exchanged(folder):
    other = checkpoint.write(folder.parent / "other", NEW)
    (other / "network.safetensors").replace(folder / "network.safetensors")


DAMAGES = {
    "a file cut short": (
        lambda c: os.truncate(c / "network.safetensors", 90),
        "has 90 bytes, and [0-9]+ were written",
    ),
    "a bit in the arrays": (
        lambda c: flipped(c / "network.safetensors", -3),
        "is damaged or was changed",
    ),
    "a missing part": (
        lambda c: (c / "network.safetensors").unlink(),
        "network.safetensors cannot be read: No such",
    ),
    "a file of another checkpoint": (exchanged, "is damaged or was changed"),
    "a link in the place of a file": (
        linked,
        "network.safetensors is a link, wanted an ordinary file",
    ),
    "a folder in the place of a file": (
        lambda c: (
            (c / "network.safetensors").unlink(),
            (c / "network.safetensors").mkdir(),
        ),
        "is no file, wanted an ordinary file",
    ),
    "a pipe in the place of a file": (
        lambda c: ((c / "state.json").unlink(), os.mkfifo(c / "state.json")),
        "is no file, wanted an ordinary file",
    ),
    "a state cut short": (
        lambda c: os.truncate(c / "state.json", 60),
        "state.json is damaged or cut short",
    ),
    "a changed number": (
        lambda c: (c / "state.json").write_text(
            (c / "state.json").read_text().replace('"step": 1', '"step": 9')
        ),
        "state.json is damaged or was changed",
    ),
    "a newer version": (
        lambda c: edited(c / "state.json", version=6),
        "has version 6 of the format, .* reads version 5",
    ),
    "another format": (
        lambda c: edited(c / "state.json", format="x"),
        "was not written by deliralike",
    ),
    "another kind of JSON": (
        lambda c: (c / "state.json").write_text("[1]"),
        "was not written by deliralike",
    ),
    "no state": (
        lambda c: (c / "state.json").unlink(),
        "is no checkpoint: there is no state.json in it",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_not_as_it_was_written_is_refused(tmp_path, damage, message):
    damage(checkpoint.write(tmp_path / "c", OLD))
    with pytest.raises(CheckpointError, match=message):
        checkpoint.read(tmp_path / "c")


def forged(folder, state):
    """A folder whose sums are right, and whose claims are not."""
    import zlib

    file = folder / "network.safetensors"
    checksum = xxh3_128_hexdigest(file.read_bytes())
    files = {"network": {"bytes": file.stat().st_size, "xxh3_128": checksum}}
    text = json.dumps(
        {"format": checkpoint.FORMAT, "version": 5, "files": files, "state": state},
        indent=1,
    )[:-2]
    (folder / "state.json").write_text(
        f'{text},\n "crc32": {zlib.crc32(text.encode())}\n}}\n'
    )


def test_the_checksum_of_a_file_is_that_of_all_its_bytes(tmp_path):
    folder = checkpoint.write(tmp_path / "c", OLD)
    described = json.loads((folder / "state.json").read_text())["files"]
    file = folder / "network.safetensors"
    wanted = {
        "bytes": file.stat().st_size,
        "xxh3_128": xxh3_128_hexdigest(file.read_bytes()),
    }
    assert described["network"] == wanted


@pytest.mark.parametrize("state", [{"network": {"$array": "b"}}, [1], None])
def test_a_state_that_names_what_is_not_there_is_refused(tmp_path, state):
    folder = checkpoint.write(tmp_path / "c", OLD)
    forged(folder, state)
    with pytest.raises(CheckpointError, match="does not say what a checkpoint says"):
        checkpoint.read(folder)


def test_there_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointMissing, match="there is no checkpoint '.*nowhere'"):
        checkpoint.read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        CheckpointError, match="is a file, wanted the folder of a checkpoint"
    ):
        checkpoint.read(tmp_path / "file")
    assert not checkpoint.exists(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        CheckpointError, match="is no checkpoint: there is no state.json in it"
    ):
        checkpoint.read(tmp_path / "empty")


@pytest.mark.parametrize(
    "act", [lambda path: checkpoint.write(path, OLD), checkpoint.remove]
)
def test_what_is_no_checkpoint_is_never_overwritten_or_removed(tmp_path, act):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        CheckpointError,
        match="mine holds something else than a checkpoint, and was left as it was",
    ):
        act(tmp_path / "mine")
    with pytest.raises(CheckpointError, match="file is a file, and was left as it was"):
        act(tmp_path / "file")
    assert (
        (tmp_path / "mine" / "thesis.txt").read_text()
        == (tmp_path / "file").read_text()
        == "mine"
    )


def test_an_empty_folder_may_become_a_checkpoint(tmp_path):
    (tmp_path / "c").mkdir()
    checkpoint.write(tmp_path / "c", OLD)
    assert same_bits(checkpoint.read(tmp_path / "c"), OLD)


# Failures of the disk
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["fsync", "replace", "mkdir"])
@pytest.mark.parametrize("call", range(5))
def test_a_disk_that_refuses_leaves_the_old_one(tmp_path, monkeypatch, function, call):
    checkpoint.write(tmp_path / "c", OLD)
    calls, real = iter(range(99)), getattr(os, function)

    def refuse(*arguments, **options):
        if next(calls) == call:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(os, function, refuse)
    try:
        checkpoint.write(tmp_path / "c", NEW)
        assert same_bits(checkpoint.read(tmp_path / "c"), NEW)
    except CheckpointError as error:
        assert "No space left on device" in str(error)
        assert same_bits(checkpoint.read(tmp_path / "c"), OLD)
        assert [path.name for path in tmp_path.iterdir()] == ["c"]


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from deliralike.training import checkpoint

WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}

def kill_at(number):
    state = {"left": number}
    def count(event):
        state["left"] -= 1
        if state["left"] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def torn_fsync(descriptor):
        size = os.fstat(descriptor).st_size
        if state["left"] == 0 and os.path.isfile(f"/proc/self/fd/{descriptor}"):
            os.truncate(f"/proc/self/fd/{descriptor}", size // 2)
        count("torn"), count("whole")
    sys.addaudithook(lambda event, arguments: count(event) if event in WATCHED else None)
    os.fsync = torn_fsync

os.fsync = lambda descriptor: None  # a process that is killed loses nothing of what it has written

def child(work, number=None):
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == 0
    try:
        if number is not None:
            kill_at(number)
        work()
    finally:
        os._exit(0)

def state(step):
    return {
        "network": {"a": np.full(7, float(step))},
        "optimizer.default": [np.arange(step)],
        "run": {"step": step},
    }

def step_in(folder):
    found = checkpoint.read(folder)
    step = found["run"]["step"]
    assert (found["network"]["a"] == step).all() and len(found["optimizer.default"][0]) == step
    return step

base, stride = Path(sys.argv[1]), int(sys.argv[2])
for work in ("first", "second", "remove"):
    for number in range(0, 200, stride):
        folder = base / work / str(number) / "c"
        folder.parent.mkdir(parents=True)
        if work != "first":
            child(lambda: checkpoint.write(folder, state(1)))
        if work == "remove":
            finished = child(lambda: checkpoint.remove(folder), number)
        else:
            finished = child(lambda: checkpoint.write(folder, state(2)), number)
        try:
            found = step_in(folder)
        except checkpoint.CheckpointMissing:
            found = 0
        left = sorted(path.name for path in folder.parent.iterdir())
        child(lambda: checkpoint.write(folder, state(3)))  # goes on, and cleans up
        after = step_in(folder)
        remaining = [path.name for path in folder.parent.iterdir()]
        assert remaining == ["c"], remaining
        print(work, number, int(finished), found, after, *left)
        if finished:
            break
"""


def test_a_write_that_is_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    command = [sys.executable, "-c", KILLED, tmp_path, "3"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    seen = [line.split() for line in run.stdout.splitlines()]
    found = {
        work: {int(line[3]) for line in seen if line[0] == work}
        for work in ("first", "second", "remove")
    }
    assert found == {"first": {0, 2}, "second": {1, 2}, "remove": {0, 1}}
    assert {line[4] for line in seen} == {"3"}
    assert [line[2] for line in seen].count("1") == 3
    assert len(seen) > 13


def test_a_checkpoint_below_a_link_is_written_where_it_leads(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    checkpoint.write(tmp_path / "runs" / "c", OLD)
    assert same_bits(checkpoint.read(tmp_path / "disk" / "c"), OLD)
    assert Path(tmp_path / "runs").is_symlink()


def test_the_folder_of_checkpoints_is_told_from_a_checkpoint(tmp_path):
    for name in ("step-1", "step-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / checkpoint.STATE).write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"no state.json in it, but checkpoints: .* step-2$"
    ):
        checkpoint.read(tmp_path)


def test_a_folder_of_checkpoints_that_becomes_a_file_is_one_error(tmp_path):
    folder = tmp_path / "checkpoints"
    with (
        pytest.raises(CheckpointError, match="was not written"),
        checkpoint.folder_of_run(folder),
    ):
        shutil.rmtree(folder)
        folder.write_text("")
        checkpoint.write(folder / "step-1", {"run": {"step": 1}})
