"""Folders of pictures as datasets: listed at once, decoded one by one when a sample is read."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.data.dataset import Samples
from deliralike.errors import BatchError, SettingError, refuse_unknown
from deliralike.nn.geometry import per_axis
from deliralike.pictures import colours, open_picture, pillow
from deliralike.setting_types import refuse_other_types

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
VOLUMES = frozenset({".nii", ".nii.gz"})
LOSSY = (".jpg", ".jpeg")  # which blur values
MODES = ("RGB", "L")
Size = tuple[int, int]  # height and width
AnySize = int | Size  # one number for both


@dataclass(frozen=True, repr=False)
class ImageFolder:
    """Pictures with the folder that they lie in as their class: an indexable dataset of `Samples`.

    Attributes:
        files: Every picture, class by class, in the order of their names.
        labels: The class of each picture, as its place in `classes`.
        classes: The names of the classes.
        size: Height and width that pictures are scaled to; as they are if None.
        mode: ``"RGB"``, or ``"L"`` for grey.

    Shapes:
        A sample is a picture ``(C, H, W)``, float32 in [0, 1], and a label ``()``, int64.
    """

    files: tuple[Path, ...]
    labels: np.ndarray
    classes: tuple[str, ...]
    size: Size | None = None
    mode: str = "RGB"

    def __repr__(self) -> str:
        return (
            f"ImageFolder({len(self)} pictures, classes={self.classes}, size={self.size}, "
            f"mode={self.mode!r})"
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Samples:
        file = self.files[index]
        return Samples(read_picture(file, self.size, self.mode), self.labels[index])


def image_folder(
    path: str | Path,
    *,
    size: AnySize | None = None,
    mode: str = "RGB",
    classes: Sequence[str] | None = None,
) -> ImageFolder:
    """Return the pictures under a folder that has a subfolder for each class.

    Names that begin with a dot, and files that are no pictures by their suffix, are ignored;
    pictures in deeper folders belong to the class. A picture is turned as its camera noted.

    Args:
        size: Height and width to scale to (bilinear, with a filter when shrinking), or one number
            for both. Batches need it where pictures differ in size.
        mode: ``"RGB"``, or ``"L"`` for grey.
        classes: The subfolders to read, in the order of their labels; all, sorted by name, if not
            given.

    Raises:
        SettingError: There is no such folder, it has no subfolders, or one of them has no pictures.
        BatchError: When a sample is read: a file is no picture, or damaged; the file is named.
        DataUnavailable: When a sample is read: Pillow is not installed.
    """
    root = Path(path)
    if not root.is_dir():
        reason = ": it is a file" if root.exists() else ""
        raise SettingError(f"there is no folder {str(root)!r}{reason}")
    name = f"folder {str(root)!r}"
    refuse_other_types(name, image_folder, {"classes": classes})
    present = subfolders(root)
    if not present:
        raise SettingError(
            f"{name} has no subfolders, one for each class of pictures; where a "
            "table names files and classes, give the table"
        )
    names = tuple(present if classes is None else classes)
    for each in names:
        message = f"{name} has no subfolder {each!r}"
        refuse_unknown(each, present, message, SettingError)
    files: list[Path] = []
    labels: list[int] = []
    for label, each in enumerate(names):
        pictures = _pictures(root / each)
        files.extend(pictures)
        labels.extend([label] * len(pictures))
    return listed_pictures(files, labels, names, size, mode)


def listed_pictures(
    files: Sequence[Path],
    labels: Sequence[int] | np.ndarray,
    classes: Sequence[str],
    size: AnySize | None = None,
    mode: str = "RGB",
) -> ImageFolder:
    """Return pictures that are listed one by one; a label is the place of a class in `classes`."""
    refuse_unknown(mode, MODES, f"mode {mode!r} is unknown", SettingError)
    return ImageFolder(
        tuple(files),
        np.array(labels, np.int64),
        tuple(classes),
        None if size is None else picture_size(size),
        mode,
    )


def pictures_of(
    paths: Iterable[str | PathLike[str]], suffixes: frozenset[str] = SUFFIXES
) -> dict[Path, Path]:
    """Return the pictures among files and folders, those of a folder sorted by name.

    Returns:
        For each file its path without suffix below the folder that was named, or its name alone.

    Raises:
        SettingError: There is no such file or folder, a file is no picture by its suffix, or a
            folder has none.
    """
    files: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.is_dir():
            for file in _pictures(path, suffixes):
                files[file] = without_suffix(file.relative_to(path))
        elif not path.is_file():
            raise SettingError(f"there is no picture or folder {str(path)!r}")
        elif suffix_of(path) not in suffixes:
            raise SettingError(
                f"{str(path)!r} is no picture ({', '.join(sorted(suffixes))})"
            )
        else:
            files[path] = without_suffix(Path(path.name))
    return files


def picture_form(shape: Sequence[int]) -> tuple[Size, str] | None:
    """Return the size and the mode of pictures that are samples of a shape; None if none are.

    Example:
        >>> picture_form((3, 32, 48)), picture_form((2, 32, 48))
        (((32, 48), 'RGB'), None)
    """
    modes = {len(mode): mode for mode in MODES}
    if len(shape) != 3 or shape[0] not in modes:
        return None
    return (shape[1], shape[2]), modes[shape[0]]


# Listing ------------------------------------------------------------------------------------------


def subfolders(root: Path) -> dict[str, Path]:
    """Return the subfolders of a folder by name, in order, without hidden ones."""
    paths = [path for path in root.iterdir() if path.is_dir()]
    return {path.name: path for path in sorted(paths) if path.name[0] != "."}


def subfolder_called(root: Path, names: Sequence[str]) -> Path | None:
    """Return the subfolder that has the first of these names, in small letters or large ones."""
    by_name = {name.lower(): path for name, path in subfolders(root).items()}
    for name in names:
        if name in by_name:
            return by_name[name]
    return None


def suffix_of(file: Path) -> str:
    """Return the suffix of a file in small letters, that of a compressed volume as a whole.

    Example:
        >>> suffix_of(Path("scan.NII.gz"))
        '.nii.gz'
    """
    name = file.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else file.suffix.lower()


def without_suffix(file: Path) -> Path:
    """Return a path without the suffix of `suffix_of`."""
    return file.with_name(file.name[: -len(suffix_of(file))])


def _pictures(folder: Path, suffixes: frozenset[str] = SUFFIXES) -> list[Path]:
    files = sorted(
        path for path in folder.rglob("*") if is_picture(path, folder, suffixes)
    )
    if not files:
        listed_suffixes = ", ".join(sorted(suffixes))
        raise SettingError(
            f"folder {str(folder)!r} has no pictures ({listed_suffixes})"
        )
    return files


def is_picture(file: Path, folder: Path, suffixes: frozenset[str] = SUFFIXES) -> bool:
    """Return whether a path is a picture, by its suffix, and not hidden below the folder."""
    if suffix_of(file) not in suffixes or not file.is_file():
        return False
    parts = file.relative_to(folder).parts
    return not any(part.startswith(".") for part in parts)


def by_stem(folder: Path, suffixes: frozenset[str]) -> dict[str, Path]:
    """Return the pictures below a folder by their names without suffix.

    Raises:
        SettingError: There is none, or two have the same name.
    """
    files: dict[str, Path] = {}
    for file in _pictures(folder, suffixes):
        name = without_suffix(file.relative_to(folder)).as_posix()
        if name in files:
            raise SettingError(
                f"{str(files[name])!r} and {str(file)!r} have the same name: which of them is "
                "meant?"
            )
        files[name] = file
    return files


def picture_size(size: AnySize) -> Size:
    """Return a height and a width, which may be given as one number.

    Raises:
        SettingError: One of them is not above zero.
    """
    height, width = per_axis(size, 2, "size", least=1)
    return height, width


# Reading ------------------------------------------------------------------------------------------


def read_picture(file: Path, size: Size | None, mode: str) -> np.ndarray:
    """Return a picture as floats in [0, 1], channels first.

    Raises:
        BatchError: The file is damaged.
    """
    coloured = colours(open_picture(file), mode, repr(str(file)))
    array = np.asarray(_scaled(coloured, size), dtype=np.float32) / np.float32(255)
    if array.ndim == 2:
        # A mode has a letter for each channel.
        return np.repeat(array[np.newaxis], len(mode), axis=0)
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def read_mask(file: Path, size: Size | None) -> np.ndarray:
    """Return the number of each pixel of a mask; colours have those of `colour_number`.

    Raises:
        BatchError: The file is damaged, or holds floats.
    """
    raw = open_picture(file)
    if raw.mode in ("RGB", "RGBA"):
        channels = np.asarray(_scaled(raw, size, nearest=True)).astype(np.int64)
        return -1 - (channels[..., :3] @ np.array([1 << 16, 1 << 8, 1]))
    if raw.mode not in ("1", "L", "P") and not raw.mode.startswith("I"):
        raise BatchError(
            f"mask {str(file)!r} has mode {raw.mode!r}, not one number for each pixel: save it as "
            "grey"
        )
    scaled = _scaled(raw, size, nearest=True)
    return np.asarray(scaled).astype(np.int64)


def colour_number(value: int | str) -> int:
    """Return the number that stands for a colour in a mask, below 0; a number is itself.

    Raises:
        SettingError: It is no colour.

    Example:
        >>> colour_number("#00ff00"), colour_number(255)
        (-65281, 255)
    """
    if isinstance(value, int):
        return value
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", str(value)):
        raise SettingError(f"{value!r} is no value of a mask, nor a colour '#ff0000'")
    return -1 - int(value[1:], 16)


def colour_text(number: int) -> str:
    """Return the text of a number of `colour_number`."""
    return str(number) if number >= 0 else f"#{-number - 1:06x}"


def mask_classes(mask: np.ndarray, values: Sequence[int], file: Path) -> np.ndarray:
    """Return the place of each value of a mask among `values`; in a JPEG of the nearest.

    Raises:
        BatchError: A value is not among them.
    """
    if suffix_of(file) in LOSSY:
        pixels = _rgb(mask)
        distances = [np.square(pixels - _rgb(value)).sum(-1) for value in values]
        return np.argmin(distances, axis=0)
    order = np.argsort(values, kind="stable")
    known = np.asarray(values)[order]
    places = np.minimum(np.searchsorted(known, mask), len(known) - 1)
    if (known[places] != mask).any():
        wrong = int(mask[known[places] != mask][0])
        shown = ", ".join(map(colour_text, values))
        raise BatchError(
            f"mask {str(file)!r} has the value {colour_text(wrong)}, which is not among ({shown})"
        )
    return order[places]


def _rgb(number: Any) -> np.ndarray:
    """Return red, green and blue of numbers of `colour_number`, along the last axis."""
    colour = np.where(np.less(number, 0), np.subtract(-1, number), 0x010101 * number)
    return np.stack([colour >> 16, colour >> 8, colour], axis=-1) & 255


def _scaled(picture: Any, size: Size | None, nearest: bool = False) -> Any:
    if size is None:
        return picture
    filters = pillow("Image").Resampling
    height, width = size
    resampling = filters.NEAREST if nearest else filters.BILINEAR
    return picture.resize((width, height), resampling)
