"""The table of our architectures: what is said of each without importing its family.

``make table`` writes it anew from the registrations, after any change of them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from deliralike.zoo.inputs import Input

_PACKAGE = "deliralike.zoo."
_COLUMNS = ("name", "module", "task", "dims", "parameters", "inputs")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: The architecture's.
        module: The family, whose import registers the architecture.
        task, dims: Those of the `Architecture`.
        parameters: Their number under the default settings.
        inputs: The inputs under the default settings, for one sample.
    """

    name: str
    module: str
    task: str
    dims: tuple[int, ...]
    parameters: int
    inputs: tuple[Input, ...]


@cache
def rows() -> Mapping[str, Row]:
    """Return the table by the architectures' names, in the order of the file."""
    text = files("deliralike.zoo").joinpath("table.csv").read_text(encoding="utf-8")
    found = {}
    for line in csv.DictReader(io.StringIO(text)):
        found[line["name"]] = Row(
            name=line["name"],
            module=_PACKAGE + line["module"],
            task=line["task"],
            dims=tuple(map(int, line["dims"].split())),
            parameters=int(line["parameters"]),
            inputs=tuple(map(_input, line["inputs"].split())),
        )
    return MappingProxyType(found)


def written(described: Iterable[Row]) -> str:
    """Return the text of a file that `rows` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in described:
        dims = " ".join(map(str, row.dims))
        stated = " ".join(map(_input_text, row.inputs))
        module = row.module.removeprefix(_PACKAGE)
        writer.writerow([row.name, module, row.task, dims, row.parameters, stated])
    return text.getvalue()


def _input_text(entry: Input) -> str:
    """Return an input as ``3x224x224``, or as ``128<30522`` for whole numbers below 30522."""
    sizes = "x".join(map(str, entry.shape)) or _SCALAR
    return sizes if entry.below is None else f"{sizes}<{entry.below}"


def _input(text: str) -> Input:
    sizes, _, below = text.partition("<")
    shape = () if sizes == _SCALAR else tuple(map(int, sizes.split("x")))
    return Input(shape, int(below) if below else None)


_SCALAR = "scalar"
