"""How many samples each device gets."""

import numpy as np
import pytest

from deliralike.errors import SettingError
from deliralike.parallel.batches.scatter import partition


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_no_samples_make_one_share(parts):
    assert partition(0, parts) == (0,)


def test_numpy_integers_count_as_whole_numbers():
    assert partition(np.int64(5), np.int32(2)) == (3, 2)


@pytest.mark.parametrize(
    ("size", "parts", "message"),
    [
        (-1, 2, r"partition: size=-1 must be a whole number of at least 0"),
        (3, 0, r"partition: parts=0 must be a whole number of at least 1"),
        (2.0, 2, r"partition: size=2\.0 must be a whole number of at least 0"),
        (2, "2", r"partition: parts='2' must be a whole number of at least 1"),
    ],
)
def test_what_is_no_count_is_an_error(size, parts, message):
    with pytest.raises(SettingError, match=message):
        partition(size, parts)
