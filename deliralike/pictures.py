"""The one reader of picture files: for training, masks, predictions and published weights."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from deliralike.errors import BatchError, DataUnavailable
from deliralike.weights.inflate import refuse_expansion

# Decoders that run no other program: Pillow's for PostScript starts Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# The colours of Okabe and Ito 2008.
COLOURS = ("E69F00", "56B4E9", "009E73", "CC79A7", "F0E442", "0072B2", "D55E00")
_ALWAYS_ALLOWED = 2**29  # bytes of pixels
_BYTES = 4  # of a channel of a pixel, in single precision


def open_picture(file: str | os.PathLike[str]) -> Any:
    """Read a picture of Pillow from a file, turned as its camera noted.

    Raises:
        BatchError: It is no picture of a known format, is damaged, or claims to hold far more than
            the file has; the file is named.
        DataUnavailable: Pillow is not installed.
    """
    images = pillow("Image")
    path = Path(file)
    try:
        with images.open(path, formats=FORMATS) as picture:
            width, height = picture.size
            size = width * height * len(picture.getbands()) * _BYTES
            refuse_expansion(path, size, allowed=_ALWAYS_ALLOWED)
            picture.load()
            return turned(picture)
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        images.DecompressionBombError,
    ) as error:
        raise BatchError(
            f"picture {str(path)!r} cannot be read ({error}): replace it, or take it out"
        ) from error


def turned(picture: Any) -> Any:
    """Return a picture of Pillow turned as its camera noted."""
    return pillow("ImageOps").exif_transpose(picture)


def colours(picture: Any, mode: str, name: str) -> Any:
    """Return a picture of Pillow in a mode, whose values are from 0 to 255.

    Values of 16 bits stay floats, as Pillow would cut them off: they are divided by 257.

    Args:
        mode: ``"RGB"``, or ``"L"`` for grey; then values of 16 bits have the mode ``"F"`` in both.
        name: What the picture is called in messages.

    Raises:
        BatchError: It holds floats, or whole numbers past 16 bits, whose scale is unknown.
    """
    if picture.mode.startswith("I"):
        low, high = picture.getextrema()
        if low >= 0 and high <= 65535:
            return pillow("Image").fromarray(
                np.asarray(picture).astype(np.float32) / 257
            )
        kind = "whole numbers past 16 bits"
    elif picture.mode == "F":
        kind = "floats"
    else:
        return picture.convert(mode)
    raise BatchError(
        f"picture {name} holds {kind}, whose scale is unknown: save it with 8 or 16 bits"
    )


def palette_picture(labels: np.ndarray, size: tuple[int, int]) -> Any:
    """Return class numbers as a picture of Pillow with a colour for each, scaled by the nearest.

    The colours are those of Okabe and Ito 2008; class 0 is black.

    Args:
        labels: Class numbers below 256, ``(height, width)``.
        size: Width and height of the picture.
    """
    images = pillow("Image")
    picture = images.fromarray(labels.astype(np.uint8))
    colours_in_turn = [COLOURS[number % len(COLOURS)] for number in range(255)]
    picture.putpalette(bytes(3) + b"".join(map(bytes.fromhex, colours_in_turn)))
    return picture.resize(size, images.Resampling.NEAREST)


def overlay(picture: Any, mask: Any) -> Any:
    """Return a picture with the colours of a mask over it; class 0 stays as it is.

    Args:
        mask: A picture of `palette_picture`, of the same size.
    """
    images = pillow("Image")
    below = colours(picture, "RGB", "below a mask").convert("RGB")
    cover = np.where(np.asarray(mask) == 0, 0, 115).astype(np.uint8)
    return images.composite(mask.convert("RGB"), below, images.fromarray(cover))


def pillow(module: str) -> Any:
    """Import and return a module of Pillow.

    Raises:
        DataUnavailable: It is not installed.
    """
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise DataUnavailable(
            "reading pictures needs the package 'pillow', which cannot be imported here "
            f"({error}): pip install 'deliralike[images]'"
        ) from error
