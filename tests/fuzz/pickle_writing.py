"""Pickles and checkpoints byte by byte, so that they may say what PyTorch would never write."""

import io
import zipfile


def text(value):
    """A text."""
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def number(value):
    """A whole number of 32 bits, or a longer one; a pickle is left as it is."""
    if isinstance(value, bytes):
        return value
    if -(2**31) <= value < 2**31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def named(module, name):
    """Something that is imported."""
    return f"c{module}\n{name}\n".encode()


def many(*items):
    """A tuple."""
    return b"(" + b"".join(items) + b"t"


def called(function, *arguments):
    """The result of a call."""
    return function + many(*arguments) + b"R"


def raw(content):
    """Bytes, as the second protocol has them."""
    return called(
        named("_codecs", "encode"), text(content.decode("latin1")), text("latin1")
    )


def table(**items):
    """A dict."""
    return b"}(" + b"".join(text(name) + value for name, value in items.items()) + b"u"


def storage(elements=4, key="0", kind="FloatStorage", *more):
    """A reference to a storage."""
    return (
        many(
            text("storage"),
            named("torch", kind),
            text(key),
            text("cpu"),
            number(elements),
            *more,
        )
        + b"Q"
    )


def tensor(where=None, offset=0, shape=(4,), strides=(1,)):
    """A tensor, of four numbers unless told otherwise."""
    return called(
        named("torch._utils", "_rebuild_tensor_v2"),
        storage() if where is None else where,
        number(offset),
        many(*map(number, shape)),
        many(*map(number, strides)),
        b"\x89",
        called(named("collections", "OrderedDict")),
    )


def dtype(code, order="<", size=-1, flags=0):
    """A type of NumPy's, with the state that it is given afterwards."""
    made = called(named("numpy", "dtype"), text(code), b"\x89", b"\x88")
    return (
        made
        + many(
            number(3),
            text(order),
            b"N",
            b"N",
            b"N",
            number(size),
            number(-1),
            number(flags),
        )
        + b"b"
    )


def checkpoint_bytes(
    value, records=None, compression=zipfile.ZIP_STORED, order=b"little"
):
    """A zip of PyTorch's with this pickle and these records; one of 16 bytes where none are
    given."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + value + b".")
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", order)
        for name, content in ({"0": bytes(16)} if records is None else records).items():
            archive.writestr(f"archive/data/{name}", content)
    return written.getvalue()


def checkpoint(path, *args, **kwargs):
    """The same as a file."""
    path.write_bytes(checkpoint_bytes(*args, **kwargs))
    return path
