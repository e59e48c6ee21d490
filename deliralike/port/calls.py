"""A call in a source, as a framework's table sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import libcst as cst
from libcst import matchers as m

from deliralike.port.values import UNKNOWN, Value

OF_SELF = m.Attribute(m.Name("self"))
START = m.FunctionDef(m.Name("__init__"))
NO_COMMA = cst.MaybeSentinel.DEFAULT
#: Arguments that have two names, as NumPy's have.
KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}
PLACEMENT = ("device", "dtype", "requires_grad", "pin_memory", "layout")
#: Arguments that say where memory lies, or whether it is written over.
DROPPED = ("inplace", "out", *PLACEMENT)
#: Stands for the functions of the backend until it is known how a function gets at them.
NN = "__nn__"


class NeedsHand(Exception):
    """Something that is not translated.

    Args:
        reason: Why, and what to write.
        instead: What stands there until then; the original when empty.
    """

    def __init__(self, reason: str, instead: str = "") -> None:
        super().__init__(reason)
        self.instead = instead


@dataclass(frozen=True)
class Call:
    """A function or method that is called.

    Attributes:
        name: The function's or method's name.
        args: The arguments given by position, as source.
        kwargs: Those given by name.
        x: What the method belongs to, as source; empty for a function.
        value: What is known of `x`.
        values: What is known of the arguments, in their order.
        result: What is known of the array that it returned.
        missing: The sources of arguments that were None at least once.
        returned: The networks that it returned, each with the number of axes of its inputs or 0.
        by_instance: Gives the source of a size that a network has found out when it ran.
        like: Gives the source of an array at hand, whose type and device others take.
        layer: Gives the source of a layer of a class that draws, which `__init__` is to create.
    """

    name: str
    args: tuple[str, ...]
    kwargs: dict[str, str]
    x: str = ""
    value: Value = UNKNOWN
    values: Sequence[Value] = ()
    result: Value = UNKNOWN
    missing: Collection[str] = ()
    returned: Sequence[tuple[Any, int]] = ()
    by_instance: Callable[[str, Sequence[tuple[Any, Any]]], str] = lambda *_: ""
    like: Callable[[], str] = str
    layer: Callable[[str], str] = str

    @property
    def given(self) -> tuple[str, ...]:
        """The arguments by position; what a method belongs to is the first one."""
        return (self.x, *self.args) if self.x else self.args

    @property
    def sources(self) -> tuple[str, ...]:
        """All arguments, those by name last."""
        return (*self.args, *self.kwargs.values())

    @property
    def first(self) -> Value:
        """What is known of the first argument by position, but for what a method belongs to."""
        return self.values[0] if self.args and self.values else UNKNOWN

    @property
    def numpy_type(self) -> str:
        """The type of the array that it returned; floating numbers are those of NumPy."""
        dtype = self.result.dtype
        if not dtype or self.result.is_floating:
            return "float"
        return "bool" if dtype == "bool" else f"np.{dtype}"

    def as_function(self) -> Call:
        """The call of a function that is first given what the method belongs to."""
        values = (self.value, *self.values)
        return replace(self, x="", args=self.given, values=values)

    def bound(self, signature: str) -> dict[str, str]:
        """The arguments by the names of a signature: ``"x axis=1 keepdims"``.

        What a method belongs to has the first name. Of those that are not given there are the ones
        with a default.
        """
        if any(arg.startswith("*") for arg in self.args):
            raise NeedsHand(f"{self.name}(*...): write its arguments out")
        parameters = [one.partition("=") for one in signature.split()]
        defaults = {name: value for name, equal, value in parameters if equal}
        names = [name for name, _, _ in parameters]
        return defaults | dict(zip(names, self.given, strict=False)) | self.kwargs

    def only(self, signature: str) -> dict[str, str]:
        """The same.

        Raises:
            NeedsHand: There is another argument.
        """
        given = self.bound(signature)
        names = [one.partition("=")[0] for one in signature.split()]
        unknown = [*self.given[len(names) :], *sorted(given.keys() - {*names})]
        if unknown and "..." not in signature:
            raise NeedsHand(f"{self.name} with {', '.join(unknown)}")
        return given

    def many(self) -> str:
        """A sequence of whole numbers that is given as one argument or as several, as source."""
        args = [arg for arg in self.args if not arg.startswith("**")]
        args = args or [*self.kwargs.values()][:1]
        return self.as_sequence(args[0]) if len(args) == 1 else tuple_of(args)

    def as_sequence(self, text: str) -> str:
        """An argument that is a shape or another sequence, or the tuple of one that is a number."""
        kinds = {one.kind for one in self.values}
        is_literal = text.startswith(("(", "[")) or text.endswith(".shape")
        if is_literal or (kinds & {"shape", "sequence"} and not text.startswith("*")):
            return text
        return tuple_of([text])

    def array_at_hand(self) -> str:
        """The source of the array whose device or type is asked for, or of another one."""
        for name in ("device", "dtype"):
            given = self.kwargs.get(name, "")
            if given.endswith(f".{name}"):
                return given.removesuffix(f".{name}")
        return self.like()


#: What stands for a call: a function that gives its source, or a text for `written`.
Entry = Callable[[Call], str] | str


_NOISE = {"normal": "NormalNoise", "uniform": "UniformNoise"}
# An argument beside an operator, or of which an attribute or an item is taken.
_BESIDE = re.compile(r"(?<=[-+*/] )\{(\w+)\}|\{(\w+)\}(?= [-+*/]|\.|\[)")
_OPTIONAL = re.compile(r"\{(\w+)\?(\w*)\}")


def written(entry: Entry, call: Call) -> str:
    """The source that an entry of a table gives for a call.

    A text names what a method belongs to ``{x}``, the first arguments ``{a}`` and ``{b}``, all of
    them ``{args}``, a sequence of numbers ``{many}``, an array at hand ``{like}``, a layer of noise
    ``{normal}`` or ``{uniform}``, and NumPy's type of the result ``{type}``, or ``{whole_type}``
    where it is not floating.

    A signature in front of it, ``"x axis=1 -> nn.softmax({x}, {axis})"``, names all arguments that
    there may be, unless ``...`` stands behind them. ``{axis?dim}`` is ``, dim=1``, and nothing
    where there is no such argument.
    """
    if callable(entry):
        return entry(call)
    signature, arrow, text = entry.rpartition(" -> ")
    first, second, *_ = (*call.sources, "", "")
    fields = {"x": call.x, "a": first, "b": second, "args": joined(call.sources)}
    fields["many"] = call.many()
    fields["type"] = call.numpy_type
    if call.numpy_type != "float":
        fields["whole_type"] = call.numpy_type
    if "{like}" in text:
        fields["like"] = call.array_at_hand()
    for name, layer in _NOISE.items():
        if f"{{{name}}}" in text:
            fields[name] = call.layer(layer)
    if arrow:
        fields |= call.only(signature)
    return filled(text, fields)


def filled(text: str, fields: Mapping[str, str]) -> str:
    """The text of an entry with the sources of arguments, see `written`."""

    def optional(found: re.Match[str]) -> str:
        name, other_name = found.groups()
        return f", {other_name or name}={{{name}}}" if name in fields else ""

    text = _OPTIONAL.sub(optional, text.replace("nn.", f"{NN}."))
    whole = {}
    for name in map("".join, _BESIDE.findall(text)):
        if name in fields:
            whole[name] = code(in_brackets(cst.parse_expression(fields[name])))
    try:
        return text.format(**{**fields, **whole})
    except KeyError as name:
        raise NeedsHand(f"a call without {name}: give it") from None


def tuple_of(parts: Sequence[str]) -> str:
    """The source of a tuple."""
    if len(parts) == 1:
        return f"({parts[0]},)"
    return f"({', '.join(parts)})"


def elements(text: str) -> list[str] | None:
    """The sources of the elements of a tuple or list; None for another expression."""
    node = cst.parse_expression(text)
    if not isinstance(node, (cst.Tuple, cst.List)):
        return None
    return [code(one.with_changes(comma=NO_COMMA)) for one in node.elements]


def refused(reason: str) -> Entry:
    """An entry for what is not translated."""

    def refuse(call: Call) -> str:
        raise NeedsHand(f"{call.name}: {reason}")

    return refuse


def code(node: cst.CSTNode) -> str:
    """The source of a node."""
    return cst.Module([]).code_for_node(node)


def statements_in(body: Any) -> list[Any]:
    """The statements of a function, class or block, which may stand behind its colon."""
    if isinstance(body, cst.IndentedBlock):
        return list(body.body)
    return [cst.SimpleStatementLine(body.body)]


def with_statements(definition: Any, statements: Sequence[Any]) -> Any:
    """A class or function with other statements."""
    body = definition.body.with_changes(body=statements)
    return definition.with_changes(body=body)


#: What needs no brackets.
WHOLE = (
    *(cst.Name, cst.Attribute, cst.Call, cst.Subscript),
    *(cst.BaseNumber, cst.SimpleString, cst.List, cst.Dict),
)


def in_brackets(node: Any) -> Any:
    """An expression that binds together wherever it stands."""
    if isinstance(node, WHOLE) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def arguments(args: Sequence[cst.Arg]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The source of arguments, by position and by name."""
    by_position, by_name = [], {}
    for arg in args:
        value: Any = arg.value
        if isinstance(value, WHOLE):
            value = value.with_changes(lpar=[], rpar=[])
        text = code(value).strip()
        if arg.keyword is not None:
            by_name[arg.keyword.value] = text
        else:
            by_position.append(arg.star + text)
    return tuple(by_position), by_name


def call_of_nn(name: str, *args: str, **kwargs: str | None) -> str:
    """The source of a call of `nn`; arguments that are None are left out."""
    given = {key: value for key, value in kwargs.items() if value is not None}
    return f"{NN}.{name}({joined(args, given)})"


def plain(call: Call) -> str:
    """The call of the function of `nn` that has this name, whose first argument is the array."""
    kwargs = {}
    for name, value in call.kwargs.items():
        if name not in DROPPED:
            kwargs[KEYWORDS.get(name, name)] = value
    first = [kwargs.pop("input")] if "input" in kwargs else []
    return call_of_nn(call.name, *first, *call.given, **kwargs)


def detached(call: Call) -> str:
    """The values of an array, which have no gradient."""
    return call_of_nn("detach", call.x) if call.value.is_floating else call.x


def joined(args: Sequence[str], kwargs: Mapping[str, str] | None = None) -> str:
    """The source between the brackets of a call."""
    words = [f"{name}={value}" for name, value in (kwargs or {}).items()]
    return ", ".join([*args, *words])
