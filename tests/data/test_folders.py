"""Folders of pictures: classes by folder, files by name, values as they were written, errors that
name the file."""

import struct
import sys
import zlib

import numpy as np
import pytest

from deliralike import data, zoo
from deliralike.data.folders import read_mask
from deliralike.errors import BatchError, DataUnavailable, SettingError

Image = pytest.importorskip("PIL.Image")


def pixels(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(array, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


@pytest.fixture
def animals(tmp_path):
    """Two classes, with files in odd order, a hidden one, a text and a deeper folder."""
    for seed, name in enumerate(
        ["cat/b.png", "cat/a.PNG", "ape/deep/z.png", "ape/10.png", "ape/9.bmp"]
    ):
        save(pixels(seed, 7, 5, 3), tmp_path / name)
    save(pixels(9, 7, 5, 3), tmp_path / "ape/.hidden.png")
    (tmp_path / "cat/notes.txt").write_text("nothing")
    (tmp_path / ".cache").mkdir()
    return tmp_path


def test_classes_are_folders_and_files_come_by_name(animals):
    found = data.image_folder(animals)
    assert (found.classes, found.labels.tolist(), found.labels.dtype) == (
        ("ape", "cat"),
        [0, 0, 0, 1, 1],
        np.int64,
    )
    assert [file.name for file in found.files] == [
        "10.png",
        "9.bmp",
        "z.png",
        "a.PNG",
        "b.png",
    ]


def test_a_picture_has_the_values_that_were_written(animals):
    picture, label = data.image_folder(animals)[4]
    assert (picture.shape, picture.dtype, label, label.dtype) == (
        (3, 7, 5),
        np.float32,
        1,
        np.int64,
    )
    assert np.array_equal(
        picture, pixels(0, 7, 5, 3).transpose(2, 0, 1) / np.float32(255)
    )
    assert picture.flags.c_contiguous


def test_pictures_are_scaled_to_a_size(tmp_path):
    save(np.kron(pixels(0, 7, 5), np.ones((4, 4), np.uint8)), tmp_path / "a/x.png")
    (small,) = (data.image_folder(tmp_path, size=(7, 5), mode="L")[0].inputs,)
    assert small.shape == (1, 7, 5)
    assert np.corrcoef(small.ravel(), pixels(0, 7, 5).ravel())[0, 1] > 0.95
    assert data.image_folder(tmp_path, size=9)[0].inputs.shape == (3, 9, 9)


def test_classes_can_be_chosen(animals):
    found = data.image_folder(animals, classes=["cat"])
    assert (found.classes, found.labels.tolist()) == (("cat",), [0, 0])


def test_sixteen_bits_are_not_cut_off(tmp_path):
    raw = np.random.default_rng(0).integers(0, 65536, (7, 5)).astype(np.uint16)
    save(raw, tmp_path / "a/x.png")
    assert np.allclose(
        data.image_folder(tmp_path, mode="L")[0].inputs[0], raw / 65535, atol=1e-6
    )
    assert np.allclose(
        data.image_folder(tmp_path)[0].inputs, np.stack([raw / 65535] * 3), atol=1e-6
    )


def test_the_rotation_that_a_camera_noted_is_followed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    save(pixels(0, 7, 5, 3), tmp_path / "a/x.png", exif=exif)
    wanted = np.rot90(pixels(0, 7, 5, 3), k=-1).transpose(2, 0, 1) / np.float32(255)
    assert np.array_equal(data.image_folder(tmp_path)[0].inputs, wanted)


@pytest.mark.parametrize(
    "way",
    [{}, {"workers": 2}, {"workers": 1, "worker_kind": "process"}],
    ids=["plain", "threads", "process"],
)
def test_a_loader_reads_a_folder(animals, way):
    loader = data.Loader(data.image_folder(animals, size=6), 2, shuffle=False, **way)
    batches = list(loader)
    assert [type(batch) for batch in batches] == [data.Samples] * 3
    assert [batch.labels.tolist() for batch in batches] == [[0, 0], [0, 1], [1]]
    assert batches[0].inputs.shape == (2, 3, 6, 6)


@pytest.mark.parametrize(
    "damage", [b"", b"no picture", None], ids=["empty", "text", "truncated"]
)
def test_a_damaged_file_is_named(animals, damage):
    file = animals / "cat/b.png"
    file.write_bytes(file.read_bytes()[:90] if damage is None else damage)
    folder = data.image_folder(animals)
    with pytest.raises(
        BatchError,
        match=r"picture '.*cat/b.png' cannot be read \(.*\): replace it, or take it out",
    ):
        folder[4]
    with pytest.raises(BatchError) as raised:
        list(data.Loader(folder, 5))
    assert raised.value.__notes__ == ["while sample 4 was read"]


READERS = {
    "a folder": lambda path: data.image_folder(path.parents[1])[0].inputs,
    "published weights": zoo.Preprocessing(mean=(0, 0, 0), std=(1, 1, 1)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("values", "kind"),
    [(np.float32(0.5), "floats"), (np.int32(100_000), "whole numbers past 16 bits")],
    ids=["floats", "32 bits"],
)
def test_values_without_a_known_scale_are_refused(values, kind, read, tmp_path):
    save(np.full((3, 2), values), tmp_path / "a/x.tif")
    with pytest.raises(
        BatchError, match=f"x.tif' holds {kind}, whose scale is unknown"
    ):
        read(tmp_path / "a/x.tif")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_reader_turns_a_picture_and_scales_sixteen_bits(read, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    raw = np.random.default_rng(0).integers(0, 65536, (7, 5)).astype(np.uint16)
    save(raw, tmp_path / "a/x.png", exif=exif)
    wanted = np.stack([np.rot90(raw, k=-1) / 65535] * 3)
    assert np.allclose(read(tmp_path / "a/x.png"), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_would_start_another_program_is_refused(read, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 7\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(
        BatchError, match="x.png' cannot be read .cannot identify image file"
    ):
        read(tmp_path / "a/x.png")


def test_a_small_file_of_a_huge_picture_is_not_unpacked(tmp_path):
    """The header alone claims 8,000 rows and columns of RGB: 768 MB in single precision."""
    chunk = struct.pack(">IIBBBBB", 8_000, 8_000, 8, 2, 0, 0, 0)
    body = b"IHDR" + chunk
    header = struct.pack(">I", len(chunk)) + body + struct.pack(">I", zlib.crc32(body))
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + header + b"\0\0\0\4IDAT" + b"\0" * 8
    )
    with pytest.raises(
        BatchError, match="x.png' cannot be read .*claims to hold 768,000,000"
    ):
        data.image_folder(tmp_path)[0]


@pytest.mark.parametrize("index", [5, -6])
def test_an_index_past_the_end_is_refused(animals, index):
    with pytest.raises(IndexError, match="index out of range"):
        data.image_folder(animals)[index]


def test_folders_that_hold_no_pictures_are_refused(animals):
    for path, message in [
        (animals / "none", "there is no folder '.*none'$"),
        (animals / "cat/b.png", "there is no folder '.*b.png': it is a file"),
        (animals / "cat", "folder '.*cat' has no subfolders, one for each class"),
    ]:
        with pytest.raises(SettingError, match=message):
            data.image_folder(path)
    (animals / "empty").mkdir()
    with pytest.raises(
        SettingError, match=r"folder '.*empty' has no pictures \(.bmp, .gif"
    ):
        data.image_folder(animals)


def test_unknown_classes_modes_and_sizes_are_refused(animals):
    with pytest.raises(SettingError, match="no subfolder 'cats'. Did you mean 'cat'"):
        data.image_folder(animals, classes=["cats"])
    with pytest.raises(
        SettingError, match="mode 'RGBA' is unknown. Did you mean 'RGB'"
    ):
        data.image_folder(animals, mode="RGBA")
    with pytest.raises(
        SettingError, match=r"size=\(0, 0\): every number must be at least 1"
    ):
        data.image_folder(animals, size=0)


# Masks
# -----------------------------------------------------------------------------


def test_a_mask_is_turned_as_its_picture_is(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3  # half a turn
    save(pixels(0, 7, 5), tmp_path / "a.png", exif=exif)
    mask = read_mask(tmp_path / "a.png", None)
    assert np.array_equal(mask, np.rot90(pixels(0, 7, 5), k=2))


def test_masks_are_scaled_by_the_nearest_value(tmp_path):
    save(pixels(0, 7, 5) % 3, tmp_path / "a.bmp")
    mask = read_mask(tmp_path / "a.bmp", (14, 10))
    assert np.array_equal(mask, np.kron(pixels(0, 7, 5) % 3, np.ones((2, 2), int)))


def test_colours_of_a_palette_count_as_their_numbers(tmp_path):
    palette = Image.new("P", (5, 7))
    palette.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    palette.putdata((pixels(0, 7, 5) % 3).ravel().tolist())
    palette.save(tmp_path / "a.png")
    assert np.array_equal(read_mask(tmp_path / "a.png", None), pixels(0, 7, 5) % 3)


def test_two_masks_of_one_name_are_refused(tmp_path):
    save(pixels(0, 7, 5, 3), tmp_path / "images/p1.png")
    for suffix in ("bmp", "png"):
        save(pixels(0, 7, 5), tmp_path / f"masks/p1.{suffix}")
    with pytest.raises(SettingError, match="p1.bmp' and '.*p1.png' have the same name"):
        data.load(f"{tmp_path}/")


def test_pictures_of_different_sizes_need_one_for_a_batch(animals):
    save(pixels(0, 9, 5, 3), animals / "ape/a.png")
    with pytest.raises(
        BatchError,
        match=r"sample.inputs has shape \(3, 7, 5\) .* and shape \(3, 9, 5\)",
    ):
        list(data.Loader(data.image_folder(animals), 6, shuffle=False))


def test_a_missing_pillow_is_named(animals, monkeypatch):
    folder = data.image_folder(animals)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(
        DataUnavailable,
        match=r"reading pictures needs the package 'pillow'.*'deliralike\[images\]'",
    ):
        folder[0]
