"""Files that somebody made to do harm; each must be refused, quickly and in little memory."""

import io
import json
import struct
import zipfile
from collections.abc import Callable

import msgpack
import numpy as np
import safetensors.numpy
from xxhash import xxh3_128_hexdigest

from tests.fuzz.mutations import Files, with_sum
from tests.fuzz.pickle_writing import (
    called,
    checkpoint_bytes,
    named,
    table,
    tensor,
    text,
)

MEBIBYTE = 2**20


def _zip(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def _npy(header: str, data: bytes = b"") -> bytes:
    content = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(content)) + content + data


def _npz(header: str, data: bytes = b"") -> Files:
    return {"x": _zip({"w.npy": _npy(header, data)})}


def _pth(
    value: bytes,
    records: dict[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Files:
    return {"x": checkpoint_bytes(value, records, compression)}


def _legacy(value: bytes) -> Files:
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    return {
        "x": magic
        + b"\x80\x02M\xe9\x03."
        + b"\x80\x02}."
        + b"\x80\x02"
        + value
        + b"."
        + b"\x80\x02]."
    }


def _safetensors(header: bytes, data: bytes = b"") -> Files:
    return {"x.safetensors": struct.pack("<Q", len(header)) + header + data}


def _array(shape: list[int], dtype: bytes, data: bytes) -> bytes:
    return msgpack.packb({"w": msgpack.ExtType(1, msgpack.packb((shape, dtype, data)))})


def _checkpoint(
    files: dict[str, object], state: object, contents: Files | None = None
) -> Files:
    described = {
        "format": "deliralike checkpoint",
        "version": 5,
        "files": files,
        "state": state,
    }
    return {
        "state.json": with_sum(
            json.dumps(described, indent=1).removesuffix("\n}").encode()
        )
    } | (contents or {})


def _deep_checkpoint() -> Files:
    text = b'{\n "format": "deliralike checkpoint",\n "version": 5,\n "files": {},\n'
    text += b' "state": {"run": '
    return {"state.json": with_sum(text + b"[" * 100_000 + b"]" * 100_000 + b"}")}


def _claimed(content: bytes, **changes: int) -> dict[str, object]:
    return {
        "run": {"bytes": len(content), "xxh3_128": xxh3_128_hexdigest(content)}
        | changes
    }


_STATE = safetensors.numpy.save({"w": np.ones(3)}, {"deliralike.order": '["w"]'})
_MANY = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,)}"

# TOML nested 3,000 deep and damaged folders of Orbax are tested with their readers.
# By format and what it does: the files.
HOSTILE: dict[tuple[str, str], Callable[[], Files]] = {
    ("npz", "many members that unfold"): lambda: {
        "x": _zip({f"{n}.npy": bytes(MEBIBYTE) for n in range(80)})
    },
    ("npz", "a shape beyond counting"): lambda: _npz(
        _MANY % "2**62, 2**62, 0".replace("2**62", str(2**62))
    ),
    ("npz", "a shape of truth values"): lambda: _npz(_MANY % "True", bytes(4)),
    ("npz", "a deep header"): lambda: _npz("(" * 9000),
    ("npz", "a header that is a call"): lambda: _npz("__import__('os').abort()"),
    ("npz", "a header of a long number"): lambda: _npz(_MANY % ("9" * 9000)),
    ("npz", "a huge type"): lambda: _npz(
        "{'descr': '|V2147483647', 'fortran_order': False, 'shape': ()}"
    ),
    ("npz", "a type in a type"): lambda: _npz(
        "{'descr': " + "[('a', " * 300 + "'<f4'" + ")]" * 300 + ", 'shape': ()}"
    ),
    ("npz", "a header without end"): lambda: {
        "x": _zip({"w.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff"})
    },
    ("pth", "a zip bomb as a pickle"): lambda: _pth(
        b"}" * (60 * MEBIBYTE), {}, zipfile.ZIP_DEFLATED
    ),
    ("pth", "a zip bomb as a record"): lambda: _pth(
        table(w=tensor()), {"0": bytes(200 * MEBIBYTE)}, zipfile.ZIP_DEFLATED
    ),
    ("pth", "a huge text"): lambda: _pth(b"X\xff\xff\xff\xffabc"),
    ("pth", "a huge text of 64 bits"): lambda: _pth(b"\x8d" + b"\xff" * 7 + b"\x7fabc"),
    ("pth", "a huge place in the memo"): lambda: _pth(b"}r\xff\xff\xff\x7fN"),
    ("pth", "deep tuples as a key"): lambda: _pth(b"})" + b"\x85" * 100_000 + b"Ns"),
    ("pth", "deep tuples"): lambda: _pth(table(w=b")" + b"\x85" * 1_000_000)),
    ("pth", "tuples of themselves twice"): lambda: _pth(
        b"})" + b"q\x00h\x00\x86" * 99 + b"Ns"
    ),
    ("pth", "dicts under every name"): lambda: _pth(_branching(30)),
    ("pth", "many tensors of one storage"): lambda: _pth(
        table(
            **{
                f"w{n}": tensor(shape=(2**10, 2**10), strides=(0, 0))
                for n in range(300)
            }
        )
    ),
    ("pth", "calls in calls"): lambda: _pth(_calls_in_calls(5000)),
    ("pth-legacy", "storages that are missing"): lambda: _legacy(table(w=tensor())),
    ("pth-legacy", "a call"): lambda: _legacy(called(named("os", "abort"))),
    ("safetensors", "a deep header"): lambda: _safetensors(b'{"a":' * 100_000),
    ("safetensors", "a huge header"): lambda: {
        "x.safetensors": struct.pack("<Q", 2**40) + b"{" + bytes(1000)
    },
    ("safetensors", "a deep order"): lambda: _safetensors(
        json.dumps(
            {
                "__metadata__": {"deliralike.order": "[" * 100_000},
                "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            }
        ).encode(),
        b"a",
    ),
    ("msgpack", "deep dicts"): lambda: {"x": b"\x81\xa1a" * 100_000},
    ("msgpack", "a huge dict"): lambda: {"x": b"\xdf\xff\xff\xff\xff"},
    ("msgpack", "a huge text"): lambda: {"x": b"\x81\xa1a\xdb\xff\xff\xff\xff"},
    ("msgpack", "a huge shape"): lambda: {"x": _array([2**40], b"float32", bytes(4))},
    ("msgpack", "a huge type"): lambda: {"x": _array([1], b"V2147483647", bytes(8))},
    ("msgpack", "chunks of a huge shape"): lambda: {
        "x": msgpack.packb(
            {
                "w": {
                    "__msgpack_chunked_array__": True,
                    "shape": {"0": 2**40},
                    "chunks": {"0": 1.0},
                }
            }
        )
    },
    ("checkpoint", "a deep state"): _deep_checkpoint,
    ("checkpoint", "a part outside of the folder"): lambda: _checkpoint(
        {"../../x": _claimed(_STATE)["run"]}, {"../../x": {"$array": "w"}}
    ),
    ("checkpoint", "a huge file claimed"): lambda: _checkpoint(
        _claimed(_STATE, bytes=2**50),
        {"run": {"$array": "w"}},
        {"run.safetensors": _STATE},
    ),
    ("checkpoint", "an array that is not there"): lambda: _checkpoint(
        _claimed(_STATE), {"run": {"$array": "v"}}, {"run.safetensors": _STATE}
    ),
    ("checkpoint", "a deep header"): lambda: _checkpoint(
        _claimed(_safetensors(b'{"a":' * 9999)["x.safetensors"]),
        {"run": {}},
        {"run.safetensors": _safetensors(b'{"a":' * 9999)["x.safetensors"]},
    ),
    ("checkpoint", "a long number"): lambda: {
        "state.json": with_sum(b'{\n "version": ' + b"9" * 9999)
    },
    ("checkpoints-index", "a deep list"): lambda: {"checkpoints.json": b"[" * 100_000},
    ("status", "a deep list"): lambda: {"status.json": b"[" * 100_000},
}


def _branching(depth: int) -> bytes:
    """Dicts with the next one under three usual names, again and again: 3 ** depth ways down."""
    made = b"}q\x00"
    for _ in range(depth):
        made += (
            b"}("
            + b"".join(text(name) + b"h\x00" for name in ("model", "ema", "state_dict"))
            + b"uq\x00"
        )
    return made


def _calls_in_calls(depth: int) -> bytes:
    """The arguments of a tensor's subclass, which are those of a tensor's subclass, and so on."""
    function = named("torch._tensor", "_rebuild_from_type_v2")
    return (
        (function + b"(" + function + b"N")
        + (b"(" + function + b"N") * depth
        + b")"
        + b"Nt" * (depth + 1)
        + b"R"
    )
