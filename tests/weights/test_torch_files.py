"""PyTorch's files: nothing in them is called, and no claim is believed before it is checked."""

import resource
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from deliralike import backends, weights, zoo
from deliralike.errors import StateError, WeightFileError
from tests.conftest import BACKENDS
from tests.fuzz.pickle_writing import (
    called,
    checkpoint,
    dtype,
    many,
    named,
    number,
    raw,
    storage,
    table,
    tensor,
    text,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    "torch" not in BACKENDS, reason="reads PyTorch's own files"
)

SCALAR = named("numpy._core.multiarray", "scalar")


def nested(depth):
    """A tuple of itself twice, again and again: comparing or hashing it takes for ever."""
    return b")" + b"q\x00h\x00\x86" * depth


HOSTILE = {
    "bytes from nothing": (
        table(w=called(named("builtins", "bytearray"), number(2**31 - 1))),
        {},
        "bytearray",
    ),
    "a tensor from nothing": (
        table(w=called(named("torch", "FloatTensor"), number(2**31 - 1))),
        {},
        "FloatTensor",
    ),
    "forged flags": (
        table(w=called(SCALAR, dtype("f8", flags=63), raw(b"A" * 8))),
        {},
        "no.*tensors by name",
    ),
    "system": (
        table(w=called(named("os", "system"), text("true"))),
        {},
        "GLOBAL os.system",
    ),
    "getattr": (
        table(w=called(named("builtins", "getattr"), text("a"), text("b"))),
        {},
        "GLOBAL builtins.getattr",
    ),
    "3 bytes for 16": (
        table(w=tensor()),
        {"0": b"abc"},
        "has 3 bytes, and 4 elements of float32 take 16",
    ),
    "no record": (table(w=tensor()), {}, "no item named 'archive/data/0'"),
    "negative stride": (
        table(w=tensor(offset=3, strides=(-1,))),
        None,
        "wanted a whole number from 0",
    ),
    "beyond the end": (
        table(w=tensor(offset=1)),
        None,
        "ends outside of its storage '0', after element 5 of 4",
    ),
    "huge stride": (
        table(w=tensor(shape=(2,), strides=(2**61,))),
        None,
        "ends outside of its storage",
    ),
    "huge storage": (
        table(w=tensor(storage(2**40), shape=(2**40,))),
        None,
        "claims to hold 4,398,046,511,104 bytes",
    ),
    "more axes than strides": (
        table(w=tensor(shape=(2, 2))),
        None,
        "do not fit each other",
    ),
    "many axes": (
        table(w=tensor(shape=(1,) * 70, strides=(1,) * 70)),
        None,
        "a tensor of 70 axes",
    ),
    "unfolded": (
        table(w=tensor(shape=(2**20, 2**20), strides=(0, 0))),
        None,
        "claims to hold 4,398,046,511,104 bytes",
    ),
    "two types of one storage": (
        table(v=tensor(), w=tensor(storage(2, "0", "DoubleStorage"), shape=(2,))),
        None,
        "in two ways",
    ),
    "a quantised storage": (
        table(w=tensor(storage(4, "0", "QInt8Storage"))),
        {"0": bytes(4)},
        "NumPy cannot hold",
    ),
    "an unknown storage": (
        table(w=tensor(storage(4, "0", "SevenStorage"))),
        None,
        "GLOBAL torch.SevenStorage",
    ),
    "a path as key": (
        table(w=tensor(storage(4, "../../../etc/passwd"))),
        None,
        "no item named",
    ),
    "a dict in itself": (
        b"}q\x00X\x05\x00\x00\x00modelh\x00s",
        None,
        "in place of tensors by name",
    ),
    "a key that takes for ever": (
        b"}" + nested(60) + tensor() + b"s",
        None,
        "not tensors by name",
    ),
    "a shape that takes for ever": (
        table(w=tensor(shape=(nested(60),))),
        None,
        "a tuple for a size, stride or place",
    ),
    "a module that takes for ever": (
        nested(60) + text("x") + b"\x93",
        None,
        "requires str",
    ),
    "a call of a call": (
        called(called(named("builtins", "set"), b"]"), text("x")),
        None,
        "'Other' object is not callable",
    ),
    "an order of bytes": (table(w=tensor()), None, "refuses"),
    "nothing on the stack": (b"R", None, "damaged"),
    "a memo that is empty": (b"h\x07", None, "damaged"),
    "a tensor of a text": (table(w=tensor(text("storage"))), None, "damaged"),
    "a reference to no storage": (
        table(w=tensor(storage().replace(text("storage"), text("module")))),
        None,
        "no plain storage",
    ),
    "a list repeated": (
        b"]("
        + called(
            named("collections", "OrderedDict"),
            b"]q\x00(" + many(number(1), b"N") * 99 + b"e",
        )
        + called(named("collections", "OrderedDict"), b"h\x00") * 99
        + b"e",
        None,
        "repeats itself",
    ),
    "reading another file": (
        table(w=called(named("numpy", "fromfile"), text("/etc/passwd"))),
        {},
        "GLOBAL numpy.from",
    ),
}


@pytest.mark.parametrize("label", HOSTILE)
def test_a_hostile_checkpoint_is_refused_and_takes_no_memory(tmp_path, label):
    value, records, message = HOSTILE[label]
    order = b"middle" if label == "an order of bytes" else b"little"
    backends.get("torch")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WeightFileError, match=message):
        weights.read(checkpoint(tmp_path / "x.pth", value, records, order=order))
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024
    )  # in KiB


def test_a_wrong_checksum_is_refused(tmp_path):
    checkpoint(tmp_path / "x.pth", table(w=tensor()), {"0": b"0123456789abcdef"})
    content = (tmp_path / "x.pth").read_bytes()
    (tmp_path / "x.pth").write_bytes(content.replace(b"0123456789", b"1123456789"))
    with pytest.raises(WeightFileError, match="Bad CRC-32 for file 'archive/data/0'"):
        weights.read(tmp_path / "x.pth")


def test_members_of_one_name_are_refused(tmp_path):
    checkpoint(tmp_path / "x.pth", table(w=tensor()))
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(tmp_path / "x.pth", "a") as archive,
    ):
        archive.writestr("archive/data/0", b"A" * 16)
    with pytest.raises(WeightFileError, match="two members of one name"):
        weights.read(tmp_path / "x.pth")


def test_members_that_overlap_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", bytes(2000))
        archive.writestr("b.npy", bytes(20))
        archive.infolist()[0].compress_size = 3000
    with pytest.raises(
        WeightFileError, match=r"the members 'a\.npy' and 'b\.npy', which overlap"
    ):
        weights.read(tmp_path / "x.npz")


def test_a_member_packed_in_another_way_is_refused(tmp_path):
    checkpoint(tmp_path / "x.pth", table(w=tensor()), compression=zipfile.ZIP_LZMA)
    with pytest.raises(WeightFileError, match="packed in a way that weights never are"):
        weights.read(tmp_path / "x.pth")


def test_an_old_file_that_claims_more_than_it_has_is_refused(tmp_path):
    torch.save(
        {"w": torch.arange(4.0)},
        tmp_path / "x.pth",
        _use_new_zipfile_serialization=False,
    )
    content = (tmp_path / "x.pth").read_bytes()
    (tmp_path / "x.pth").write_bytes(content[:-4])
    with pytest.raises(
        WeightFileError,
        match="has 4 elements and 12 bytes are left, wanted 4 of float32",
    ):
        weights.read(tmp_path / "x.pth")
    (tmp_path / "x.pth").write_bytes(
        content[:-24] + (2**40).to_bytes(8, "little") + content[-16:]
    )
    with pytest.raises(
        WeightFileError, match="has 1,099,511,627,776 elements and 16 bytes are left"
    ):
        weights.read(tmp_path / "x.pth")


def test_keys_of_an_old_file_that_take_for_ever_are_refused(tmp_path):
    begin = (
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
        + b"\x80\x02M\xe9\x03."
        + b"\x80\x02}."
    )
    pickles = b"\x80\x02" + table(w=tensor()) + b".\x80\x02]" + nested(60) + b"a."
    (tmp_path / "x.pth").write_bytes(begin + pickles + bytes(24))
    with pytest.raises(WeightFileError, match="its list of storages is not that"):
        weights.read(tmp_path / "x.pth")


@pytest.mark.parametrize("new_format", [True, False])
def test_numpy_values_beside_the_weights_are_passed_over(tmp_path, new_format):
    state = {"fc.weight": torch.arange(6.0).reshape(2, 3).T, "fc.bias": torch.arange(2)}
    beside = {
        "best": np.float64(0.5),
        "history": np.arange(5),
        "classes": {"a", "b"},
        "rng": torch.Generator().get_state(),
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "size": torch.Size([3]),
        "z": 1j,
        "raw": b"\xff",
        "numpy": np.dtype(">f4"),
        (1, 2): "key",
    }
    torch.save(
        {"state_dict": state, **beside},
        tmp_path / "x",
        _use_new_zipfile_serialization=new_format,
    )
    read = weights.read(tmp_path / "x")
    for name, value in state.items():
        assert_array_equal(read[name], value.numpy(), strict=True)


@pytest.mark.parametrize(
    "dtype",
    [
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "complex128",
        "complex64",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    ],
)
def test_every_type_that_numpy_holds_is_read_as_pytorch_reads_it(tmp_path, dtype):
    made = torch.arange(-3, 9).abs().reshape(3, 4).to(getattr(torch, dtype))
    saved = {
        "w": made[:, 1:].t(),
        "scalar": made[0, 0],
        "empty": made[:0],
        "same": made[2],
        "p": made[None].expand(2, 3, 4),
    }
    torch.save(saved, tmp_path / "x.pth")
    wanted = torch.load(tmp_path / "x.pth", weights_only=True)
    read = weights.read(tmp_path / "x.pth")
    for name, value in wanted.items():
        value = value.float() if dtype == "bfloat16" else value
        assert_array_equal(read[name], value.numpy(), strict=True)
        assert read[name].flags.owndata
        assert read[name].flags.writeable


def test_numbers_in_the_other_order_of_bytes_are_turned(tmp_path):
    content = np.arange(4, dtype=">f4").tobytes()
    checkpoint(tmp_path / "x.pth", table(w=tensor()), {"0": content}, order=b"big")
    assert_array_equal(
        weights.read(tmp_path / "x.pth")["w"],
        np.arange(4, dtype=np.float32),
        strict=True,
    )


def test_a_later_protocol_of_pickles_is_read(tmp_path):
    torch.save({"w": torch.arange(3)}, tmp_path / "x.pth", pickle_protocol=4)
    assert_array_equal(weights.read(tmp_path / "x.pth")["w"], [0, 1, 2])


def test_a_storage_that_is_shared_is_read_once(tmp_path, monkeypatch):
    base = torch.arange(12.0)
    torch.save(
        {"a": base, "b": base[3:], "c": torch.nn.Parameter(base)}, tmp_path / "x.pth"
    )
    opened = []
    read = zipfile.ZipFile.read
    monkeypatch.setattr(
        zipfile.ZipFile,
        "read",
        lambda self, info, *more: opened.append(info) or read(self, info, *more),
    )
    assert list(weights.read(tmp_path / "x.pth")) == ["a", "b", "c"]
    assert len([info for info in opened if "/data/" in info.filename]) == 1


def test_no_state_of_a_checkpoint_is_left_out_in_silence(tmp_path, caplog):
    """Two parts that were saved side by side, beside an optimizer, a counter and a tensor of its
    own."""
    parts = {"model": torch.nn.Linear(3, 2), "head": torch.nn.Linear(2, 1)}
    checkpoint = {name: part.state_dict() for name, part in parts.items()}
    checkpoint |= {
        "optimizer": torch.optim.Adam(parts["head"].parameters()).state_dict(),
        "scale": torch.ones(2),
    }
    torch.save(checkpoint | {"epoch": 3, "seen": torch.tensor(7)}, tmp_path / "x.pth")
    found = weights.contents(tmp_path / "x.pth").states
    assert {key: list(state) for key, state in found.items()} == {
        "model": ["weight", "bias"],
        "head": ["weight", "bias"],
        "(top level)": ["scale"],
    }
    assert_array_equal(found["head"]["weight"], parts["head"].weight.detach())
    weights.read(tmp_path / "x.pth")
    assert (
        "the weights under 'model' were taken; there are others under 'head', '(top level)'"
        in caplog.text
    )


def test_a_state_under_a_scripts_own_key_is_read(tmp_path, caplog):
    state = torch.nn.Linear(3, 2).state_dict()
    beside = {
        "acc": 91.5,
        "epoch": 7,
        "loss": torch.tensor(0.3),
        "optimizer": {"state": {}},
    }
    torch.save({"net": state, **beside}, tmp_path / "x.pth")
    read = weights.read(tmp_path / "x.pth")
    assert list(read) == ["weight", "bias"]
    assert_array_equal(read["weight"], state["weight"].numpy())
    assert not caplog.records
    other = torch.nn.Linear(3, 2).state_dict()
    torch.save({"generator": state, "critic": other}, tmp_path / "y.pth")
    assert_array_equal(weights.read(tmp_path / "y.pth")["bias"], state["bias"].numpy())
    assert (
        "under 'generator' were taken; there are others under 'critic'" in caplog.text
    )


def test_a_dict_beside_tensors_is_no_state_under_a_key(tmp_path):
    torch.save({"w": torch.ones(2), "net": {"v": torch.ones(3)}}, tmp_path / "x.pth")
    with pytest.raises(
        WeightFileError, match=r"not tensors by name, such as 'net' \(a dict\)"
    ):
        weights.read(tmp_path / "x.pth")


def test_the_prefixes_of_wrappers_are_taken_off_in_any_order(tmp_path, caplog):
    compiled = torch.compile(
        torch.nn.DataParallel(torch.nn.Linear(3, 2)), backend="eager"
    )
    for model, prefix in (
        (compiled, "_orig_mod.module."),
        (
            torch.nn.DataParallel(
                torch.compile(torch.nn.Linear(3, 2), backend="eager")
            ),
            "module._orig_mod.",
        ),
    ):
        state = model.state_dict()
        assert [*state] == [f"{prefix}weight", f"{prefix}bias"]
        torch.save(state, tmp_path / "x.pth")
        assert [*weights.read(tmp_path / "x.pth")] == ["weight", "bias"]
        assert f"the prefix {prefix!r} was taken off all names" in caplog.text
        layer = backends.get("torch").wrap(torch.nn.Linear(3, 2))
        weights.load(layer, tmp_path / "x.pth")
        assert_array_equal(
            layer.neutral_state()["weight"], state[f"{prefix}weight"].numpy()
        )


@pytest.mark.parametrize("load", [weights.load, zoo.load], ids=["load", "zoo"])
def test_the_averages_of_pytorchs_averaged_model_are_loaded(tmp_path, load):
    network = zoo.build("lenet", backend="torch", seed=1)
    averaged = torch.optim.swa_utils.AveragedModel(network)
    averaged.update_parameters(zoo.build("lenet", backend="torch", seed=2))
    torch.save(averaged.state_dict(), tmp_path / "ema.pth")
    loaded = zoo.build("lenet", backend="torch")
    report = load(loaded, tmp_path / "ema.pth")
    assert report.unexpected == ("n_averaged",)
    wanted = averaged.module.state_dict()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, wanted[name]), name


def test_a_counter_of_averages_alone_has_no_prefix(tmp_path):
    torch.save({"n_averaged": torch.tensor(3)}, tmp_path / "x.pth")
    assert [*weights.read(tmp_path / "x.pth")] == ["n_averaged"]


def test_names_of_a_trainer_are_told_where_to_be_loaded(tmp_path):
    layer = backends.get("torch").wrap(torch.nn.Linear(3, 2))
    state = {
        f"model.{name}": tensor
        for name, tensor in torch.nn.Linear(3, 2).state_dict().items()
    }
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "x.ckpt")
    with pytest.raises(
        StateError, match=r"0 of 2 names loaded.*\n  deliralike\.zoo\.load\("
    ):
        weights.load(layer, tmp_path / "x.ckpt")
    zoo.load(layer, tmp_path / "x.ckpt")
    assert_array_equal(layer.neutral_state()["bias"], state["model.bias"].numpy())
