"""Mistakes of data pipelines: each turns a right stream of batches into a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deliralike import data

Batches = list[tuple[np.ndarray, np.ndarray]]

MEAN, DEVIATION = (
    np.array(each).reshape(1, 3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
)
SAMPLES, SIZE, EPOCHS = 11, 4, 2


@dataclass(frozen=True)
class StreamMistake:
    """One mutant of a pipeline and the finding expected of a proof; fields are as in `Mistake`.

    Attributes:
        name: In a few words: ``"second epoch not reshuffled"``.
        group: ``"order"``, ``"batches"``, ``"targets"``, ``"values"`` or ``"augmentation"``.
        plant: From the batches of `right` to wrong ones.
        place: Texts of which one must stand in a finding's place or what, for it to count as
            located.
        cause: Texts of which one must stand in the explanation's cause, for it to count as
            explained.
    """

    name: str
    group: str
    plant: Callable[[Batches], Batches]
    place: tuple[str, ...]
    cause: tuple[str, ...]


def plain(seed: int = 0) -> Batches:
    """Two epochs of normalised pictures and their labels, before augmentation."""
    random = np.random.default_rng(seed)
    pictures = random.random((SAMPLES, 3, 7, 6)).astype(np.float32)
    labels = random.integers(0, 4, SAMPLES)
    inputs = ((pictures - MEAN) / DEVIATION).astype(np.float32)
    return [
        batch
        for epoch in range(EPOCHS)
        for batch in data.batches((inputs, labels), SIZE, seed=seed, epoch=epoch)
    ]


def right(seed: int = 0) -> Batches:
    """The same, some pictures flipped left to right."""
    return _flipped(plain(seed), _drawn(seed))


def _drawn(seed: int = 0) -> np.ndarray:
    """Which of all pictures are flipped; never the same for all."""
    return np.concatenate(
        [[True, False, False], np.random.default_rng(seed + 100).random(EPOCHS * SAMPLES - 3) < 0.5]
    )


def _flipped(batches: Batches, which: np.ndarray) -> Batches:
    x, y = _whole(batches)
    return _cut(np.where(which.reshape(-1, 1, 1, 1), x[..., ::-1], x), y, batches)


def _whole(batches: Batches) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def _cut(x: np.ndarray, y: np.ndarray, like: Batches) -> Batches:
    ends = np.cumsum([len(labels) for _, labels in like])[:-1]
    return list(zip(np.split(x, ends), np.split(y, ends), strict=True))


def _samples(index: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batches], Batches]:
    """The samples taken in another order, in batches of the same sizes as far as they reach."""

    def plant(batches: Batches) -> Batches:
        x, y = _whole(batches)
        chosen = index(np.arange(len(y)))
        return [batch for batch in _cut(x[chosen], y[chosen], batches) if len(batch[1])]

    return plant


def _inputs(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batches], Batches]:
    return lambda batches: [(change(x), y) for x, y in batches]


def _floats(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batches], Batches]:
    return _inputs(lambda x: change(x.astype(np.float64)).astype(np.float32))


def _targets(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batches], Batches]:
    return lambda batches: [(x, change(y)) for x, y in batches]


def _all_targets(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batches], Batches]:
    """Targets of the whole stream against the inputs."""

    def plant(batches: Batches) -> Batches:
        x, y = _whole(batches)
        return _cut(x, change(y), batches)

    return plant


def _not_reshuffled(batches: Batches) -> Batches:
    return batches[: len(batches) // EPOCHS] * EPOCHS


def _ends(change: Callable[[np.ndarray], Sequence[np.ndarray]]) -> Callable[[Batches], Batches]:
    """Something else in the place of each batch that is smaller than the others."""

    def plant(batches: Batches) -> Batches:
        found: Batches = []
        for x, y in batches:
            places = [np.arange(len(y))] if len(y) == SIZE else change(np.arange(len(y)))
            found += [(x[at], y[at]) for at in places]
        return found

    return plant


def _noisy(x: np.ndarray) -> np.ndarray:
    return x + np.random.default_rng(9).normal(0.0, 0.01, x.shape)


def _unflipped(batches: Batches) -> Batches:
    return _flipped(batches, _drawn())


def _drawn_otherwise(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Batches], Batches]:
    return lambda batches: _flipped(_unflipped(batches), change(_drawn()))


def _exchanged(place: np.ndarray) -> np.ndarray:
    place[[3, 12]] = place[[12, 3]]
    return place


def _with_replacement(place: np.ndarray) -> np.ndarray:
    return np.random.default_rng(7).integers(0, SAMPLES, len(place))


_INPUTS, _TARGET, _ORDER, _COUNT = (
    ("inputs",),
    ("target",),
    ("order of samples",),
    ("size", "number of batches"),
)
_TURNED = ("augmentation",)

MISTAKES = (
    StreamMistake("reversed", "order", _samples(lambda i: i[::-1]), _ORDER, ("reversed",)),
    StreamMistake(
        "second epoch not reshuffled",
        "order",
        _not_reshuffled,
        ("batch 3, sample 0",),
        ("not reshuffled",),
    ),
    StreamMistake(
        "samples shuffled by another seed",
        "order",
        _samples(np.random.default_rng(3).permutation),
        _ORDER,
        ("shuffled",),
    ),
    StreamMistake(
        "two samples exchanged",
        "order",
        _samples(_exchanged),
        ("batch 0, sample 3",),
        ("sample 3",),
    ),
    StreamMistake(
        "one sample early", "order", _samples(lambda i: np.roll(i, -1)), _ORDER, ("1 sample early",)
    ),
    StreamMistake(
        "interleaved over workers",
        "order",
        _samples(lambda i: np.concatenate([i[::2], i[1::2]])),
        _ORDER,
        ("2th", "2 workers"),
    ),
    StreamMistake(
        "batches exchanged in pairs",
        "order",
        lambda b: [b[1], b[0], *b[2:]],
        _ORDER,
        ("exchanged", "shuffled"),
    ),
    StreamMistake(
        "drawn with replacement", "order", _samples(_with_replacement), _ORDER, ("duplicated",)
    ),
    StreamMistake(
        "the same batch again and again",
        "order",
        lambda b: [(b[0][0][: len(y)], b[0][1][: len(y)]) for _, y in b],
        _ORDER,
        ("first one",),
    ),
    StreamMistake(
        "last batch dropped", "batches", _ends(lambda i: []), _COUNT, ("last batch dropped",)
    ),
    StreamMistake(
        "last batch padded with its own samples",
        "batches",
        _ends(lambda i: [np.resize(i, SIZE)]),
        _COUNT,
        ("padded",),
    ),
    StreamMistake(
        "last batch padded with its last sample",
        "batches",
        _ends(lambda i: [np.pad(i, (0, SIZE - len(i)), "edge")]),
        _COUNT,
        ("padded with its last",),
    ),
    StreamMistake(
        "another batch size",
        "batches",
        lambda b: [(x[i : i + 2], y[i : i + 2]) for x, y in b for i in range(0, len(y), 2)],
        _COUNT,
        ("batch size",),
    ),
    StreamMistake("first batch lost", "batches", lambda b: b[1:], _COUNT, ("left out",)),
    StreamMistake(
        "targets off by one sample",
        "targets",
        _all_targets(lambda y: np.roll(y, 1)),
        _TARGET,
        ("1 sample late",),
    ),
    StreamMistake(
        "targets reversed in each batch",
        "targets",
        _targets(lambda y: y[::-1]),
        _TARGET,
        ("each batch reversed",),
    ),
    StreamMistake(
        "targets shuffled",
        "targets",
        _all_targets(np.random.default_rng(2).permutation),
        _TARGET,
        ("shuffled against",),
    ),
    StreamMistake(
        "labels from one", "targets", _targets(lambda y: y + 1), _TARGET, ("off by one",)
    ),
    StreamMistake(
        "labels one-hot",
        "targets",
        _targets(lambda y: np.eye(4, dtype=np.int64)[y]),
        _TARGET,
        ("one-hot",),
    ),
    StreamMistake(
        "labels of 32 bits", "targets", _targets(lambda y: y.astype(np.int32)), _TARGET, ("int32",)
    ),
    StreamMistake(
        "labels with an axis more", "targets", _targets(lambda y: y[:, None]), _TARGET, ("axes",)
    ),
    StreamMistake(
        "two classes exchanged",
        "targets",
        _targets(lambda y: np.array([1, 0, 2, 3])[y]),
        _TARGET,
        ("renamed",),
    ),
    StreamMistake(
        "normalisation missing",
        "values",
        _floats(lambda x: x * DEVIATION + MEAN),
        _INPUTS,
        ("normalisation missing",),
    ),
    StreamMistake(
        "normalised twice", "values", _floats(lambda x: (x - MEAN) / DEVIATION), _INPUTS, ("twice",)
    ),
    StreamMistake(
        "another mean and deviation",
        "values",
        _floats(lambda x: (x * DEVIATION + MEAN - 0.5) / 0.25),
        _INPUTS,
        ("another normalisation", "another scale"),
    ),
    StreamMistake(
        "deviation forgotten",
        "values",
        _floats(lambda x: x * DEVIATION),
        _INPUTS,
        ("not divided by",),
    ),
    StreamMistake("scaled to 0..255", "values", _floats(lambda x: 255 * x), _INPUTS, ("255",)),
    StreamMistake("scaled twice", "values", _floats(lambda x: x / 255), _INPUTS, ("twice",)),
    StreamMistake("channels swapped", "values", _inputs(lambda x: x[:, ::-1]), _INPUTS, ("BGR",)),
    StreamMistake(
        "channels last", "values", _inputs(lambda x: x.transpose(0, 2, 3, 1)), ("shape",), ("NHWC",)
    ),
    StreamMistake(
        "reshape for a transpose",
        "values",
        _inputs(lambda x: x.transpose(0, 2, 3, 1).reshape(x.shape)),
        _INPUTS,
        ("reshape",),
    ),
    StreamMistake(
        "upside down", "values", _inputs(lambda x: x[:, :, ::-1]), _INPUTS, ("upside down",)
    ),
    StreamMistake(
        "rotated by 180 degrees",
        "values",
        _inputs(lambda x: x[:, :, ::-1, ::-1]),
        _INPUTS,
        ("180",),
    ),
    StreamMistake(
        "transposed",
        "values",
        _inputs(lambda x: x.transpose(0, 1, 3, 2)),
        ("shape",),
        ("transposed",),
    ),
    StreamMistake(
        "half precision on the way",
        "values",
        _inputs(lambda x: x.astype(np.float16).astype(np.float32)),
        _INPUTS,
        ("float16",),
    ),
    StreamMistake(
        "double precision",
        "values",
        _inputs(lambda x: x.astype(np.float64)),
        ("inputs",),
        ("float64",),
    ),
    StreamMistake("noise", "values", _floats(_noisy), _INPUTS, ("noise",)),
    StreamMistake("augmentation not at all", "augmentation", _unflipped, _INPUTS, _TURNED),
    StreamMistake(
        "augmentation one sample late",
        "augmentation",
        _drawn_otherwise(lambda d: np.roll(d, 1)),
        _INPUTS,
        _TURNED,
    ),
    StreamMistake(
        "augmentation in another order",
        "augmentation",
        _drawn_otherwise(np.random.default_rng(1).permutation),
        _INPUTS,
        _TURNED,
    ),
    StreamMistake(
        "augmentation drawn once",
        "augmentation",
        _drawn_otherwise(lambda d: np.ones_like(d)),
        _INPUTS,
        _TURNED,
    ),
)
