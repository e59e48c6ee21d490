"""Transforms of batches that mix samples and their labels: mixup and CutMix.

A batch is a nest of arrays with the samples along their first axis: arrays of floats are inputs,
and one array of whole numbers holds the classes. The classes become rows of probabilities, which
``cross_entropy`` takes on every backend.

What is drawn follows from the seed, the epoch, the batch's number and each sample's place in it.
With several processes each loads the whole batch, and keeps its own samples afterwards, so that
their number does not matter.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from deliralike import nest
from deliralike.data.transforms import described
from deliralike.errors import BatchError, SettingError, whole_number
from deliralike.nn.start import Shape
from deliralike.setting_types import TypedSettings


@dataclass(frozen=True)
class Mixing(TypedSettings):
    """The base of transforms that mix each sample with another one of its batch."""

    whole_batch: ClassVar[bool] = True
    num_classes: int
    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        whole_number(f"{name}: num_classes", self.num_classes, 2)
        if not 0 < self.alpha < np.inf:  # from infinite ones NumPy draws NaN
            raise SettingError(
                f"{name}: alpha={self.alpha!r} must be a finite number above 0"
            )

    def _rows(
        self, labels: np.ndarray, others: np.ndarray, shares: np.ndarray, dtype: Any
    ) -> np.ndarray:
        """Return classes as rows of probabilities, mixed by the share of each sample."""
        outside = labels[(labels < 0) | (labels >= self.num_classes)]
        if outside.size:
            raise BatchError(
                f"class {outside[0]} is out of range, wanted whole numbers from 0 to "
                f"{self.num_classes - 1}, as num_classes={self.num_classes}"
            )
        rows = np.eye(self.num_classes, dtype=dtype)[labels]
        return _weighted(rows, rows[others], shares)


@dataclass(frozen=True)
class Mixup(Mixing):
    """Mix each sample with another one of its batch: ``share * x + (1 - share) * other``.

    The shares are drawn from ``Beta(alpha, alpha)`` for each sample, the others are a permutation
    of the batch. Labels are mixed in the same way. Source: Zhang et al. 2018, arXiv 1710.09412.

    Args:
        num_classes: The number of classes.
        alpha: The concentration of shares about one half, a finite number above 0.

    Shapes:
        An array of floats ``(batch, ...)`` keeps its shape and type; classes ``(batch,)`` become
        ``(batch, num_classes)`` in the type of the inputs.

    Raises:
        BatchError: The batch is not one of arrays of floats and one of classes.

    Example:
        >>> batch = np.array([[0.0], [1.0]]), np.array([0, 1])
        >>> x, y = Mixup(2)(batch, np.random.default_rng(0))
        >>> np.allclose(x[:, 0], y[:, 1]), np.allclose(y.sum(1), 1)
        (True, True)
    """

    alpha: float = 0.2

    def __call__(self, batch: Any, generator: np.random.Generator) -> Any:
        """Return the batch with mixed inputs, and with rows in the place of its classes."""
        inputs, labels = _parts(batch)
        others = generator.permutation(len(labels))
        shares = generator.beta(self.alpha, self.alpha, len(others))
        rows = self._rows(labels, others, shares, inputs[0].dtype)

        def mixed(leaf: np.ndarray) -> np.ndarray:
            if leaf is labels:
                return rows
            return _weighted(leaf, leaf[others], shares)

        return nest.map(mixed, batch)


@dataclass(frozen=True)
class CutMix(Mixing):
    """Paste a box of another sample of the batch into each picture.

    The box has the share ``1 - s`` of the picture, with s drawn from ``Beta(alpha, alpha)``, the
    picture's proportions and a centre anywhere; what lies outside is cut off. Labels are mixed by
    the shares that the boxes then have. Source: Yun et al. 2019, arXiv 1905.04899.

    Args:
        num_classes: The number of classes.
        alpha: The concentration of shares about one half, a finite number above 0.

    Shapes:
        Pictures ``(batch, channels, *spatial)`` keep their shape and type; classes ``(batch,)``
        become ``(batch, num_classes)`` in the type of the pictures.

    Raises:
        BatchError: The batch is not one of pictures of one size and one of classes.

    Example:
        >>> batch = np.stack([np.zeros((1, 4, 5)), np.ones((1, 4, 5))]), np.array([0, 1])
        >>> x, y = CutMix(2)(batch, np.random.default_rng(0))
        >>> np.allclose(x.mean((1, 2, 3)), y[:, 1])
        True
    """

    alpha: float = 1.0

    def __call__(self, batch: Any, generator: np.random.Generator) -> Any:
        """Return the batch with mixed pictures, and with rows in the place of its classes."""
        inputs, labels = _parts(batch)
        others = generator.permutation(len(labels))
        spatial = _spatial(inputs)
        is_pasted = np.zeros((len(others), 1, *spatial), bool)
        for each in is_pasted[:, 0]:
            each[self._box(spatial, generator)] = True
        shares = 1.0 - is_pasted.reshape(len(others), -1).mean(1)
        rows = self._rows(labels, others, shares, inputs[0].dtype)

        def mixed(leaf: np.ndarray) -> np.ndarray:
            if leaf is labels:
                return rows
            return np.where(is_pasted, leaf[others], leaf)

        return nest.map(mixed, batch)

    def _box(self, spatial: Shape, generator: np.random.Generator) -> tuple[slice, ...]:
        """Return a box within a picture."""
        share = 1.0 - generator.beta(self.alpha, self.alpha)
        part = share ** (1.0 / len(spatial))
        box = []
        for length in spatial:
            size = int(length * part)
            begin = int(generator.integers(length)) - size // 2
            box.append(slice(max(begin, 0), min(begin + size, length)))
        return tuple(box)


def _parts(batch: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the arrays of floats of a batch, and its array of classes."""
    inputs, labels, others = [], [], []
    for path, leaf in nest.leaves_with_paths(batch, "batch"):
        kind = leaf.dtype.kind if isinstance(leaf, np.ndarray) else ""
        if kind == "f" and leaf.ndim > 0:
            inputs.append(leaf)
        elif kind in ("i", "u") and leaf.ndim == 1:
            labels.append(leaf)
        else:
            others.append(f"{path} is {described(leaf)}")
    if others or not inputs or len(labels) != 1:
        raise BatchError(
            "samples are mixed in a batch of arrays of floats and one array of classes, whole "
            f"numbers of shape (batch,): there are {len(inputs)} arrays of floats and "
            f"{'; '.join([f'{len(labels)} of classes', *others])}"
        )
    return inputs, labels[0]


def _spatial(inputs: list[np.ndarray]) -> Shape:
    """Return the spatial shape of pictures."""
    shapes = {array.shape[2:] for array in inputs}
    if len(shapes) != 1 or () in shapes:
        raise BatchError(
            "CutMix wants pictures of one size, (batch, channels, *spatial), and got floats of "
            f"shapes {', '.join(str(array.shape) for array in inputs)}"
        )
    return shapes.pop()


def _weighted(array: np.ndarray, other: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return ``share * array + (1 - share) * other`` with a share for each sample."""
    shares = shares.reshape(-1, *(1,) * (array.ndim - 1))
    return (shares * array + (1.0 - shares) * other).astype(array.dtype)
