"""The table of architectures says what their registrations say."""

from deliralike import zoo
from deliralike.zoo import table
from tests.zoo.table import PATH, written


def test_the_table_is_what_the_registrations_make():
    assert PATH.read_text(encoding="utf-8") == written(), "run: make table"


def test_inputs_of_every_kind_are_read_as_they_were_written():
    stated = (zoo.Input((3, 7, 5)), zoo.Input((4,), below=9), zoo.Input((), below=2))
    row = table.Row(
        "own", "deliralike.zoo.classification.own", "none", (1, 2), 12, stated
    )
    line = table.written([row]).splitlines()[1]
    assert line == "own,classification.own,none,1 2,12,3x7x5 4<9 scalar<2"
    assert tuple(map(table._input, "3x7x5 4<9 scalar<2".split())) == stated
