"""What the room of the port asks of a source framework is declared in one class."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("libcst")

import deliralike.port
from deliralike.port.calls import Call, NeedsHand
from deliralike.port.framework import Framework
from deliralike.port.porting import FRAMEWORKS

ROOM = Path(deliralike.port.__file__).parent
DECLARED = {*Framework.__annotations__, *vars(Framework)}


def asked_of_frameworks(file):
    """The attributes that a file takes of what it calls a framework."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute):
            owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
            if owner == "framework":
                found.add(node.attr)
    return found


def test_the_room_asks_for_nothing_that_is_not_declared():
    asked = set().union(*map(asked_of_frameworks, ROOM.glob("*.py")))
    assert len(asked) > 20
    assert asked <= DECLARED


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.title)
def test_a_framework_answers_what_is_declared_and_no_more(framework):
    missing = {name for name in DECLARED if not hasattr(framework, name)}
    assert missing == set()
    classes = type(framework).__mro__
    below = classes[: classes.index(Framework)]
    public = {name for cls in below for name in vars(cls) if not name.startswith("_")}
    assert public <= DECLARED
    inherited = {"describe", "blocks", "members", "in_numpy", "masking"}
    assert inherited <= public  # which raise NotImplementedError in `Framework`


def test_an_argument_that_a_table_does_not_know_is_never_left_out():
    assert Call("f", ("x", "1"), {}).only("input dim") == {"input": "x", "dim": "1"}
    with pytest.raises(NeedsHand, match="f with 2"):
        Call("f", ("x", "1", "2"), {}).only("input dim")
    with pytest.raises(NeedsHand, match="f with eps"):
        Call("f", ("x", "1"), {"eps": "2"}).only("input dim")
