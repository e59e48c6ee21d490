"""PyTorch's names: every row of the table agrees with PyTorch on every backend, every name has a
row or a reason, and layers have PyTorch's signatures."""

import inspect
import re

import torch

from deliralike.nn.layers import LAYERS
from tests.nn import vocabulary
from tests.nn.agreement import COMPILED, agree_all
from tests.nn.drawn_calls import TABLE

# Not taken: deprecated ones, and those that name memory, a device or a type.
LEFT_OUT = {
    "size_average",
    "reduce",
    "inplace",
    "out",
    "dtype",
    "device",
    "_stacklevel",
    "_weight",
}
LEFT_OUT |= {"_freeze", "min_value", "max_value"}
# Arrays are given by position, so that their names may differ; containers have arguments of theirs.
CONTAINERS = {
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
}
CONTAINERS |= {"Identity"}
RECURRENT = {"RNN", "LSTM", "GRU"}  # PyTorch's have no signature


def test_every_layer_agrees_with_pytorch(name):
    rows = {f"{index} {row.name}": row for index, row in enumerate(vocabulary.LAYERS)}
    if name in COMPILED:  # the last row of each layer, with the most settings
        rows = {row.name: row for row in rows.values()}
    agree_all(name, {label: row.case() for label, row in rows.items()})


def test_every_name_of_pytorch_has_a_row_or_a_reason():
    layers = {row.name for row in vocabulary.LAYERS} | set(vocabulary.ELSEWHERE)
    functions = set(TABLE)
    assert vocabulary.layers_of_pytorch() - layers == set(vocabulary.ABSENT_LAYERS)
    assert vocabulary.functions_of_pytorch() - functions == set(
        vocabulary.ABSENT_FUNCTIONS
    )
    assert not functions & set(vocabulary.ABSENT_TENSORS)


def test_the_page_has_the_rows_of_the_table():
    wanted = []
    for rows in vocabulary.entries().values():
        wanted += [(name, remark) for name, _, remark in rows]
    text = vocabulary.PAGE.read_text()
    found = re.findall(r"^\| `(\w+)` \| .* \| .* \| (.*) \|$", text, re.MULTILINE)
    assert found == wanted


def test_layers_are_made_with_the_arguments_of_pytorch():
    wrong = {}
    for name in set(LAYERS) & vocabulary.layers_of_pytorch() - CONTAINERS - RECURRENT:
        wanted = settings(getattr(torch.nn, name).__init__)
        found = settings(LAYERS[name].__init__)
        if found[: len(wanted)] != wanted:
            wrong[name] = {"found": found, "wanted": wanted}
    assert not wrong


def settings(function):
    """Names and defaults; none at all and None are the same, as PyTorch only warns of some."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (
            one.name,
            None
            if one.default is one.empty
            else getattr(one.default, "__name__", one.default),
        )
        for one in parameters
        if one.name not in LEFT_OUT | {"self", "args", "kwargs"}
    ]
