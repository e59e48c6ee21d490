"""Iterators and converters that the bridge corrects."""

import json
import subprocess
import sys
from pathlib import Path

import chainer
import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("error")


# Chainer forks its workers, which is safe only in a process where no other test has started JAX's
# threads.
FORKED = """
from deliralike.backends import chainer_bridge as bridge
bridge.install()
import chainer, json, numpy as np
options = {"n_processes": 2}
ordered = chainer.iterators.MultiprocessIterator(
    np.arange(13), 5, repeat=False, shuffle=False, **options
)
batches = [[int(sample) for sample in batch] for batch in ordered]
ordered.finalize()
shuffled = chainer.iterators.MultiprocessIterator(np.arange(15), 5, shuffle=True, **options)
samples = sorted(int(sample) for _ in range(3) for sample in shuffled.next())
print(json.dumps([batches, samples, shuffled.epoch]))
shuffled.finalize()
"""


def test_the_iterator_with_processes_gives_each_sample_once(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    options = [
        "-W",
        "error",
        "-W",
        "ignore:This process:DeprecationWarning",
    ]  # of forking, from Python 3.12 on
    run = subprocess.run(
        [sys.executable, *options, "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    batches, samples, epoch = json.loads(run.stdout)
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]]
    assert samples == list(range(15))
    assert epoch == 1


def test_examples_are_padded_to_the_largest_of_the_batch():
    batch = [(np.ones((1, 3)), 1), (np.ones((2, 1)), 0)]
    x, labels = chainer.dataset.concat_examples(batch, padding=(-1, None))
    np.testing.assert_array_equal(
        x, [[[1, 1, 1], [-1, -1, -1]], [[1, -1, -1], [1, -1, -1]]]
    )
    np.testing.assert_array_equal(labels, [1, 0])
