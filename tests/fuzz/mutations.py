"""Damage by seed: bits, numbers, lengths and pieces, inside of archives too, with checksums made
right again."""

import io
import json
import re
import zipfile
import zlib
from contextlib import suppress

import numpy as np
from xxhash import xxh3_128_hexdigest

Files = dict[str, bytes]  # by their names in a folder

_NUMBERS = [
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    *(2**bits - 1 for bits in (16, 31, 32, 63, 64)),
    2**31,
    2**40,
    2**62,
]
_WRITTEN = [
    b"-1",
    b"0",
    b"1",
    b"3",
    b"65536",
    b"2147483648",
    b"1099511627776",
    b"4611686018427387904",
    b"9" * 30,
    b"1e400",
    b"0.5",
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"true",
    b"NaN",
]
_NUMBER = re.compile(rb"\d+")
_HEAD = 400  # bytes; half of the damage is done to the beginning, where lengths and types stand
_ZIP = b"PK\x03\x04"
_SUM = b',\n "crc32": '


def mutated(files: Files, rng: np.random.Generator) -> Files:
    """Files of which one or two are damaged; checksums that stand beside them may be right all the
    same."""
    changed = dict(files)
    for _ in range(rng.integers(1, 3)):
        name = str(rng.choice(sorted(files)))
        if len(files) > 1 and rng.random() < 0.05:
            changed.pop(name, None)
        elif name in changed:
            changed[name] = _damaged(changed[name], rng)
    return _summed(changed, rng)


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    if content.startswith(_ZIP) and rng.random() < 0.6:
        with suppress(Exception):  # it was damaged before
            return _in_archive(content, rng)
    if content.endswith(b"}\n") and _SUM in content and rng.random() < 0.7:
        return with_sum(_bytes_changed(content.rpartition(_SUM)[0], rng))
    return _bytes_changed(content, rng)


def _bytes_changed(content: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(rng.integers(1, 4)):
        change = _CHANGES[rng.integers(len(_CHANGES))]
        content = change(content, rng) if content else b"\x00"
    return content


def _place(content: bytes, rng: np.random.Generator) -> int:
    end = min(len(content), _HEAD) if rng.random() < 0.5 else len(content)
    return int(rng.integers(end))


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    place = _place(content, rng)
    return (
        content[:place]
        + bytes([content[place] ^ 1 << rng.integers(8)])
        + content[place + 1 :]
    )


def _replace(content: bytes, rng: np.random.Generator) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.bytes(1) + content[place + 1 :]


def _number(content: bytes, rng: np.random.Generator) -> bytes:
    place, size = _place(content, rng), int(rng.choice([1, 2, 4, 8]))
    order = "little" if rng.random() < 0.7 else "big"
    value = _NUMBERS[rng.integers(len(_NUMBERS))] % 2 ** (8 * size)
    return content[:place] + value.to_bytes(size, order) + content[place + size :]


def _written(content: bytes, rng: np.random.Generator) -> bytes:
    """Another number in the place of one that is written in digits."""
    found = list(_NUMBER.finditer(content[: 64 * _HEAD]))
    if not found:
        return _number(content, rng)
    match = found[rng.integers(len(found))]
    value = _WRITTEN[rng.integers(len(_WRITTEN))]
    if rng.random() < 0.3:  # of the same length, for headers whose length is known
        value = value[: match.end() - match.start()].ljust(match.end() - match.start())
    return content[: match.start()] + value + content[match.end() :]


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: _place(content, rng)]


def _remove(content: bytes, rng: np.random.Generator) -> bytes:
    place = _place(content, rng)
    return content[:place] + content[place + int(rng.integers(1, 20)) :]


def _insert(content: bytes, rng: np.random.Generator) -> bytes:
    place = _place(content, rng)
    return content[:place] + rng.bytes(int(rng.integers(1, 9))) + content[place:]


def _repeat(content: bytes, rng: np.random.Generator) -> bytes:
    place, length = _place(content, rng), int(rng.integers(1, 60))
    return (
        content[:place]
        + content[place : place + length] * int(rng.choice([2, 3, 200]))
        + content[place + length :]
    )


def _swap(content: bytes, rng: np.random.Generator) -> bytes:
    """A piece from somewhere else in the file."""
    source, place, length = (
        _place(content, rng),
        _place(content, rng),
        int(rng.integers(1, 30)),
    )
    piece = content[source : source + length]
    return content[:place] + piece + content[place + len(piece) :]


_CHANGES = [
    _flip,
    _replace,
    _number,
    _written,
    _written,
    _cut,
    _remove,
    _insert,
    _repeat,
    _swap,
]


def _in_archive(content: bytes, rng: np.random.Generator) -> bytes:
    """An archive with one member changed, renamed, doubled or left out, and right checksums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = int(rng.integers(len(members)))
    name, inner = members[place]
    match rng.integers(8):
        case 0:
            members.pop(place)
        case 1:
            members.append((name, _bytes_changed(inner, rng)))
        case 2:
            members[place] = (
                _bytes_changed(name.encode(), rng).decode("latin1"),
                inner,
            )
        case _:
            members[place] = (name, _bytes_changed(inner, rng))
    written = io.BytesIO()
    packing = zipfile.ZIP_DEFLATED if rng.random() < 0.2 else zipfile.ZIP_STORED
    with zipfile.ZipFile(written, "w", packing) as archive:
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner, packing)
    return written.getvalue()


def with_sum(text: bytes) -> bytes:
    """The text of a checkpoint with its checksum; see `deliralike.training.checkpoint`."""
    return text + _SUM + str(zlib.crc32(text)).encode() + b"\n}\n"


def _summed(files: Files, rng: np.random.Generator) -> Files:
    """Most checkpoints say what their damaged files are like, so that the damage is looked at."""
    state = files.get("state.json", b"")
    if _SUM not in state or rng.random() < 0.3:
        return files
    try:
        described = json.loads(state)
        for part, claimed in described["files"].items():
            content = files[f"{part}.safetensors"]
            claimed |= {"bytes": len(content), "xxh3_128": xxh3_128_hexdigest(content)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return files
    described.pop("crc32", None)
    return files | {
        "state.json": with_sum(
            json.dumps(described, indent=1).removesuffix("\n}").encode()
        )
    }
