"""The functions that are written for ports compute what Chainer's do."""

import numpy as np
import pytest

from deliralike import backends, nest

pytest.importorskip("libcst")
chainer = pytest.importorskip("chainer")

from chainer import functions as F  # noqa: E402

from deliralike.port import chainer_links  # noqa: E402


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


IMAGE, MATRIX, ROWS = drawn(2, 4, 6, 6), drawn(4, 6), drawn(3, 4, 5)
LABELS = np.array([[0, 1, -1], [1, 1, 0]], np.int32)
SCORES = drawn(2, 3)
WIDTHS = ((0, 0), (0, 0), (1, 2), (2, 0))
CALLS = [
    ("pad", (IMAGE, WIDTHS, "edge"), {}),
    ("pad", (IMAGE, 1, "constant"), {"constant_values": 0.5}),
    ("scale", (IMAGE, MATRIX), {}),
    ("bias", (IMAGE, MATRIX), {}),
    ("normalize", (ROWS,), {"axis": 2}),
    ("embed_id", (LABELS, SCORES), {"ignore_label": -1}),
    ("accuracy", (SCORES, np.array([1, 2], np.int32)), {}),
    ("huber_loss", (SCORES, -SCORES, 0.7), {}),
    ("huber_loss", (SCORES, -SCORES, 0.7), {"reduce": "no"}),
    ("lstm", (drawn(3, 2), drawn(2, 8)), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_a_function_written_for_ports_is_chainers(name, args, kwargs):
    torch = backends.get("torch")

    def native(value):
        return torch.array(value) if isinstance(value, np.ndarray) else value

    function = getattr(chainer_links, name)
    found = function(torch.nn, *nest.map(native, args), **kwargs)
    expected = getattr(F, name)(*args, **kwargs)
    pairs = zip(nest.leaves(found), nest.leaves(expected), strict=True)
    for one, other in pairs:
        value = np.asarray(torch.to_numpy(one))
        np.testing.assert_allclose(value, other.array, rtol=1e-4, atol=1e-5)
