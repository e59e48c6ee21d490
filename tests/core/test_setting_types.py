"""Settings of another type than their class states are refused where they are made by name."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest

from deliralike.errors import SettingError
from deliralike.setting_types import refuse_other_types
from deliralike.training.by_name import make_by_name
from deliralike.training.experiment.parts import BATCH_TRANSFORMS, TRANSFORMS
from deliralike.training.metrics.named import METRICS
from deliralike.training.schedules import SCHEDULES

TABLES = {
    "transform": TRANSFORMS,
    "batch": BATCH_TRANSFORMS,
    "metric": METRICS,
    "schedule": SCHEDULES,
}
WRONG = {
    bool: ["no", None, 2],
    int: ["3", None, 2.5, True, [1]],
    float: ["3", None, [1]],
}
WANTED = {bool: "true or false", int: "a whole number", float: "a number"}


def with_default(of):
    """Every setting of every table whose default is of a type, and which takes no other."""
    for kind, table in TABLES.items():
        for name, made in table.items():
            for setting in inspect.signature(made).parameters.values():
                stated = str(setting.annotation)
                if type(setting.default) is of and stated in (of.__name__, str(of)):
                    yield kind, table, name, setting.name


@pytest.mark.parametrize("of", WRONG)
def test_what_is_made_by_name_refuses_another_type(of, monkeypatch):
    found = list(with_default(of))
    assert len(found) > 1
    for kind, table, name, setting in found:
        for value in WRONG[of]:
            monkeypatch.setitem(table, name, lacking_nothing(table[name]))
            wanted = f"{setting}=.* must be {WANTED[of]}"
            with pytest.raises(SettingError, match=wanted):
                make_by_name(kind, table, name, {setting: value})


def lacking_nothing(made):
    """The same, with a value for what has no default."""
    given = {}
    for each in inspect.signature(made).parameters.values():
        if each.default is each.empty:
            given[each.name] = 1
    return partial(made, **given) if given else made


def takes(
    flag: bool = False,
    number: float = 0.5,
    sizes: int | Sequence[int] = 3,
    rows: Sequence[tuple[str, int]] = (),
    shape: tuple[int, ...] = (),
    mode: Literal["a", "b"] = "a",
    names: Mapping[str, int] | None = None,
    way: Literal["up"] | None = None,  # a Union of typing's
    anything: Any = None,
):
    pass


@pytest.mark.parametrize(
    "settings",
    [
        {"flag": 1},
        {"flag": np.False_},
        {"number": 3},
        {"number": np.float32(3)},
        {"number": float("inf")},
        {"number": float("nan")},
        {"sizes": np.int16(3)},
        {"sizes": [3, np.int64(4)]},
        {"sizes": np.array([3, 4])},
        {"rows": [["a", 3], ("b", 4)]},
        {"shape": [3, 4, 5]},
        {"mode": "b"},
        {"names": {}},
        {"names": None},
        {"way": None},
        {"way": "up"},
        {"anything": object()},
        {"further": "no"},
    ],
)
def test_what_fits_is_taken(settings):
    refuse_other_types("it", takes, settings)
    refuse_other_types("it", partial(takes, flag=True), settings)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"flag": "off"}, "flag='off' must be true or false"),
        ({"flag": np.ones(2)}, "must be true or false"),
        ({"number": "0.5"}, "number='0.5' must be a number"),
        ({"number": True}, "must be a number"),
        (
            {"sizes": 3.0},
            "must be a whole number, or a list, each entry a whole number",
        ),
        ({"sizes": [3, "4"]}, "each entry a whole number"),
        ({"sizes": "34"}, "each entry a whole number"),
        ({"sizes": np.array(3.0)}, "each entry a whole number"),
        ({"rows": [["a", 3, 3]]}, "each entry a row of 2: a text, a whole number"),
        ({"rows": [[3, "a"]]}, "each entry a row of 2"),
        ({"shape": [3, "4"]}, "must be a list, each entry a whole number"),
        ({"mode": "c"}, "must be one of 'a', 'b'"),
        ({"mode": ["a"]}, "must be one of 'a', 'b'"),
        ({"names": 3}, "must be a mapping, or None"),
        ({"way": "down"}, "must be one of 'up', or None"),
    ],
)
def test_what_does_not_fit_says_what_was_wanted(settings, wanted):
    with pytest.raises(SettingError, match=f"it: .*{wanted}"):
        refuse_other_types("it", takes, settings)


def test_a_row_of_any_length_is_a_list():
    made = make_by_name("schedule", SCHEDULES, "step", {"milestones": [3, 5, 8]})
    assert [made.factor(step) for step in (2, 4, 6, 9)] == pytest.approx(
        [1.0, 0.1, 0.01, 0.001]
    )
