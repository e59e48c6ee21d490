"""Batches of one size: a smaller one is padded, and the outputs of its own samples returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import batching
from deliralike.errors import BatchError, whole_number
from deliralike.inference.predictor import described, predictor_of


@dataclass(frozen=True)
class PaddedBatchInferer:
    """A function of inputs and network that pads each batch to `batch_size`.

    A smaller batch repeats its last sample, so that one compiled program does for all batches. It
    is what `training.evaluate`, `predict` and `Trainer` take as `inferer`, for networks that
    compute each sample by itself: outputs that depend on other samples of the batch, or on their
    number, would be others.

    Attributes:
        batch_size: The number of samples in every batch but the last.

    Shapes:
        Inputs and outputs are nests of arrays ``(batch, ...)``.

    Raises:
        BatchError: A batch has more samples, or an output is not an array with the batch first.
        SettingError: `batch_size` is below 1.

    Example:
        >>> inferer = PaddedBatchInferer(4)
        >>> inferer(np.arange(3.0), lambda batch: 2 * batch)
        array([0., 2., 4.])
    """

    batch_size: int

    def __post_init__(self) -> None:
        whole_number("batch_size", self.batch_size, 1)

    def __call__(self, inputs: Any, network: Any) -> Any:
        """Return the outputs of the samples given, as a nest of NumPy arrays."""
        inputs = batching.on_host(inputs)
        samples = batching.size(inputs)
        if samples > self.batch_size:
            raise BatchError(
                f"a batch has {samples} samples, and PaddedBatchInferer pads to "
                f"batch_size={self.batch_size}: give it the size of the largest batch"
            )
        rows = np.minimum(np.arange(self.batch_size), samples - 1)
        padded = batching.take(inputs, rows)
        arguments = padded if isinstance(padded, tuple) else (padded,)
        outputs = predictor_of(network)(*arguments)
        for path, output in nest.leaves_with_paths(outputs, "output"):
            self._check(path, output)
        return batching.take(outputs, np.arange(samples))

    def _check(self, path: str, output: Any) -> None:
        """Refuse an output without the batch along its first axis, in a full batch as well."""
        if output is None:
            return
        if not isinstance(output, np.ndarray) or output.shape[:1] != (self.batch_size,):
            raise BatchError(
                f"{path} is {described(output)}, and PaddedBatchInferer returns the samples' own "
                f"part of arrays with the {self.batch_size} samples of a batch along their first "
                "axis: leave it out of the outputs, or give no such inferer"
            )
