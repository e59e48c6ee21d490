"""The level "data": planted mistakes of a pipeline are detected, located and explained; right ones
give no alarm."""

import numpy as np
import pytest

from deliralike import data
from deliralike.conformance.levels import pipelines
from deliralike.errors import BatchError
from tests.planted import pipelines as planted


def _texts(level):
    return [f"{finding.place}, {finding.what}" for finding in level.findings]


@pytest.mark.parametrize("mistake", planted.MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_detected_located_and_explained(mistake):
    level = pipelines.level(planted.right(), mistake.plant(planted.right()))
    assert level.status == "failed"
    assert any(text in found for text in mistake.place for found in _texts(level)), _texts(level)
    causes = [finding.explanation.cause for finding in level.findings]
    assert any(text in cause for text in mistake.cause for cause in causes), causes
    if mistake.name != "noise":
        assert any(finding.explanation.known for finding in level.findings)


def test_there_are_as_many_mistakes_as_names():
    assert len({mistake.name for mistake in planted.MISTAKES}) == len(planted.MISTAKES) >= 35


@pytest.mark.parametrize("seed", range(2))
def test_right_pipelines_give_no_alarm(backend, seed):
    native = [(backend.array(x), [backend.array(y)]) for x, y in planted.right(seed)]
    level = pipelines.level(planted.right(seed), native)
    assert level.status == "passed", level.findings
    assert (level.worst, level.figures["samples"]) == (0.0, 22)


@pytest.mark.parametrize("seed", range(2))
def test_another_order_of_rounding_is_no_mistake(seed):
    def normalised(scale):
        return [(scale(x), y) for x, y in planted.right(seed)]

    one = normalised(lambda x: (x - np.float32(0.4)) / np.float32(0.3))
    two = normalised(lambda x: x * np.float32(1 / 0.3) - np.float32(0.4 / 0.3))
    level = pipelines.level(one, two)
    assert level.status == "passed" and 0.0 < level.worst < 1e-6
    assert "rounding" in level.notes[0]


def test_loaders_of_every_kind_give_the_same():
    import chainer
    import torch

    x, y = np.random.default_rng(0).random((7, 2, 3)).astype(np.float32), np.arange(7)
    ours = data.Loader((x, y), 3, shuffle=False)
    of_torch = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)), 3
    )
    of_chainer = chainer.iterators.SerialIterator(
        chainer.datasets.TupleDataset(x, y), 3, repeat=False, shuffle=False
    )
    dicts = ({"label": y[i : i + 3], "data": x[i : i + 3], "name": ["a"]} for i in range(0, 7, 3))
    for other in (of_torch, of_chainer, dicts):
        level = pipelines.level(ours.batches(), other)
        assert level.status == "passed", level.findings
    shuffled = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)),
        3,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    (finding,) = pipelines.level(ours.batches(), shuffled).findings
    assert finding.what == "order of samples" and "shuffled" in finding.explanation.cause


def test_storage_that_is_written_again_is_read_in_time():
    def reused():
        storage = np.empty((4, 3))
        for value in range(3):
            storage[:] = value + np.arange(3)
            yield storage

    separate = [value + np.tile(np.arange(3.0), (4, 1)) for value in range(3)]
    assert pipelines.level(separate, reused()).status == "passed"
    assert pipelines.level(separate, iter(list(reused()))).status == "failed"


def test_a_stream_without_an_end_is_read_as_far_as_asked():
    def endless(start):
        while True:
            yield np.full((2, 3), start)
            start += 1

    assert pipelines.level(endless(0), endless(0), batches=5).figures["batches"] == 5
    (finding,) = pipelines.level(endless(0), endless(1), batches=5).findings
    assert finding.place.startswith("batch 0, sample 0")


def test_unlisted_scales_are_fitted_by_channel():
    scale, shift = (
        np.array([1.5, 0.25, 2.0]).reshape(3, 1, 1),
        np.array([0.1, -0.2, 0.7]).reshape(3, 1, 1),
    )
    x = np.random.default_rng(0).normal(size=(5, 3, 4, 4))
    (finding,) = pipelines.level([x], [scale * x + shift]).findings
    assert "scale [1.5, 0.25, 2] by channel, shift [0.1, -0.2, 0.7]" in finding.explanation.cause
    assert finding.explanation.known


def test_noise_is_called_unknown():
    x = np.random.default_rng(0).normal(size=(5, 3, 4, 4))
    (finding,) = pipelines.level(
        [x], [x + 1e-3 * np.random.default_rng(1).normal(size=x.shape)]
    ).findings
    assert "noise" in finding.explanation.cause and not finding.explanation.known
    assert str(finding.explanation).startswith("Cause unknown")


def test_other_fields_and_empty_streams_are_told():
    x = np.ones((2, 3))
    (finding,) = pipelines.level([(x, x)], [(x, x, x)]).findings
    assert finding.what == "structure"
    (finding,) = pipelines.level([(x, x)], []).findings
    assert "no batches" in finding.explanation.cause
    with pytest.raises(BatchError, match="has no batches"):
        pipelines.level([], [(x, x)])
    with pytest.raises(BatchError, match="one length along their first axis"):
        pipelines.level([(x, x[:1])], [(x, x)])
