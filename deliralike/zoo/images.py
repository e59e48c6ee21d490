"""Pictures for networks with published weights: their preparation, and their classification."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import ArgumentError, CapabilityError, ShapeError
from deliralike.pictures import colours, open_picture, pillow, turned

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """The way from a picture to the input of a network, as its weights were evaluated.

    The picture is resized by Pillow, as torchvision and timm do with pictures (antialiased), cut to
    its centre, scaled to 0 … 1, and normalised for each channel. Its result is equal to
    torchvision's and timm's.

    Attributes:
        resize: The length of the shorter side in pixels, or ``(height, width)``; None leaves the
            size as it is.
        crop: Side of the square that is cut out of the centre; a smaller picture is padded with
            black. None cuts nothing.
        interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
        mean, std: For each channel (red, green, blue), of values from 0 to 1.

    Example:
        >>> prepare = Preprocessing(resize=256, crop=224)
        >>> prepare(np.zeros((300, 400, 3), np.uint8)).shape
        (3, 224, 224)
    """

    resize: int | tuple[int, int] | None = None
    crop: int | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD

    def __call__(self, picture: Any) -> np.ndarray:
        """Prepare one picture, or several of one prepared size.

        Args:
            picture: Whole numbers from 0 to 255 (uint8) of the shape ``(height, width, 3)`` in the
                order red, green, blue, or ``(height, width)`` for grey; a picture of Pillow; the
                path of a file; or a list of those. Files and pictures of Pillow are turned as their
                camera noted, and values of 16 bits are divided by 257.

        Shapes:
            A picture gives ``(3, height, width)`` in float32, a list of them ``(batch, 3, height,
            width)``.

        Raises:
            ShapeError: An array is no such picture, or the pictures of a list differ in size.
            BatchError: A file is no picture or damaged, or its values have no known scale.
            DataUnavailable: Pillow is not installed.
        """
        if isinstance(picture, list | tuple):
            return _stacked([self(one) for one in picture])
        image = self._resized(_image(picture))
        pixels = np.asarray(image)
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., np.newaxis].clip(0, 255), 3, axis=-1)
        if self.crop is not None:
            pixels = _centre(pixels, self.crop)
        scaled = np.moveaxis(pixels, -1, 0).astype(np.float32) / np.float32(255)
        mean = np.array(self.mean, np.float32)[:, None, None]
        std = np.array(self.std, np.float32)[:, None, None]
        return (scaled - mean) / std

    def __str__(self) -> str:
        """Return one line for a table."""
        steps = []
        if isinstance(self.resize, int):
            steps.append(f"shorter side to {self.resize} ({self.interpolation})")
        elif self.resize is not None:
            height, width = self.resize
            steps.append(f"resize to {height} x {width} ({self.interpolation})")
        if self.crop is not None:
            steps.append(f"crop {self.crop}")
        if (self.mean, self.std) == (_IMAGENET_MEAN, _IMAGENET_STD):
            steps.append("mean and std of ImageNet")
        else:
            mean = ", ".join(f"{value:.4g}" for value in self.mean)
            std = ", ".join(f"{value:.4g}" for value in self.std)
            steps.append(f"mean ({mean}), std ({std})")
        return ", ".join(steps)

    def _resized(self, image: Any) -> Any:
        if self.resize is None:
            return image
        width, height = image.size
        if isinstance(self.resize, int):
            shorter = min(width, height)
            # rounded down as torchvision does
            size = (
                int(self.resize * width / shorter),
                int(self.resize * height / shorter),
            )
        else:
            size = (self.resize[1], self.resize[0])
        if size == image.size:
            return image
        method = getattr(pillow("Image").Resampling, self.interpolation.upper())
        return image.resize(size, method)


@dataclass(frozen=True)
class Prediction:
    """One class of a picture.

    Attributes:
        label: The name of the class; ``"class 3"`` where the names are not known.
        probability: The softmax of the outputs.
        index: The number of the class.
    """

    label: str
    probability: float
    index: int


def preprocessing(network: Any) -> Preprocessing:
    """Return the preparation of pictures that belongs to a network's published weights.

    Args:
        network: A network that was built with published weights, or an entry of `weights`.

    Raises:
        ArgumentError: The network has no published weights.
        CapabilityError: Their network takes no pictures.
    """
    published = _published(network)
    if published.preprocessing is None:
        raise CapabilityError(
            f"the preparation of inputs for {published.name} ({published.architecture}) is not "
            "known: its inputs are no pictures, or its publisher does not state it"
        )
    return published.preprocessing


def classify(
    network: Any, picture: Any, top: int = 5, labels: Sequence[str] | None = None
) -> list[Any]:
    """Classify a picture by a network with published weights.

    Args:
        network: A classifier built with ``weights=...``; see `build`.
        picture: A picture, or a list of pictures; see `Preprocessing`.
        top: The number of classes to return, the most probable first.
        labels: The names of the classes; those of the weights when not given.

    Returns:
        A list of `Prediction`; for a list of pictures a list of such lists.

    Raises:
        ArgumentError: The network has no published weights, or the number of labels is not that of
            its outputs.
        CapabilityError: It is no classifier of pictures.
    """
    prepare = preprocessing(network)
    if labels is None:
        labels = _published(network).label_names()
    is_single = not isinstance(picture, list | tuple)
    inputs = prepare([picture] if is_single else picture)
    backend = network.backend
    with network.training_mode(False), backend.evaluating():
        outputs = network(backend.array(inputs, network.dtype_name))
    if isinstance(outputs, dict) or np.ndim(backend.numpy(outputs)) != 2:
        raise CapabilityError(
            f"{type(network).__name__} does not give one score for each class"
        )
    scores = backend.numpy(outputs)
    if labels and len(labels) != scores.shape[1]:
        raise ArgumentError(
            f"{len(labels)} labels came, the network has {scores.shape[1]} outputs"
        )
    predictions = [_predictions(row, top, labels) for row in _softmax(scores)]
    return predictions[0] if is_single else predictions


def _predictions(row: np.ndarray, top: int, labels: Sequence[str]) -> list[Prediction]:
    best = np.argsort(-row, kind="stable")[:top]
    predictions = []
    for index in best:
        label = labels[index] if labels else f"class {index}"
        predictions.append(Prediction(label, float(row[index]), int(index)))
    return predictions


def _softmax(scores: np.ndarray) -> np.ndarray:
    exact = scores.astype(np.float64)
    powers = np.exp(exact - exact.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _published(network: Any) -> Any:
    published = getattr(network, "published_weights", None)
    if published is None and hasattr(network, "label_names"):
        published = network
    if published is None:
        raise ArgumentError(
            f"{type(network).__name__} was not built with published weights: zoo.build(..., "
            "weights='pretrained'); or use zoo.Preprocessing(...) of your own"
        )
    return published


def _image(picture: Any) -> Any:
    """Return a picture as one of Pillow's with red, green and blue, or with floats for 16 bits."""
    if isinstance(picture, str | os.PathLike):
        return colours(open_picture(picture), "RGB", repr(os.fspath(picture)))
    images = pillow("Image")
    if isinstance(picture, images.Image):
        return colours(turned(picture), "RGB", f"of {picture.size}")
    pixels = np.asarray(picture)
    is_colour = pixels.ndim == 3 and pixels.shape[-1] == 3
    if pixels.dtype != np.uint8 or not (is_colour or pixels.ndim == 2):
        raise ShapeError(
            f"a picture came as {pixels.dtype} of {pixels.shape}: wanted uint8 from 0 to 255 of "
            "(height, width, 3) or (height, width)"
        )
    return images.fromarray(pixels).convert("RGB")


def _centre(pixels: np.ndarray, side: int) -> np.ndarray:
    """Cut a square out of the centre, padded with zeros where the picture is smaller."""
    missing = [max(side - size, 0) for size in pixels.shape[:2]]
    margins = [(size // 2, (size + 1) // 2) for size in missing]
    pixels = np.pad(pixels, [*margins, (0, 0)])
    top, left = (round((size - side) / 2) for size in pixels.shape[:2])
    return pixels[top : top + side, left : left + side]


def _stacked(prepared: list[np.ndarray]) -> np.ndarray:
    shapes = {array.shape for array in prepared}
    if len(shapes) != 1:
        raise ShapeError(
            f"pictures of one size are wanted in a batch, these are {sorted(shapes)}"
        )
    return np.stack(prepared)
