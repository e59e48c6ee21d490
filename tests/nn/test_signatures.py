"""Every backend's functions and layers take the arguments of the vocabulary, by the same names and
defaults."""

import inspect

import torch

from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS
from tests.nn.agreement import FunctionCase, agree_all, get, normal

FUNCTIONS = [
    name
    for name, value in inspect.getmembers(Functions, inspect.isfunction)
    if not name.startswith("_")
]


def arguments(function):
    """Names, defaults and kinds; a backend may have more of them than the vocabulary, if they are
    optional."""
    return [
        (p.name, p.default, p.kind)
        for p in inspect.signature(function).parameters.values()
    ]


def test_functions_take_the_arguments_of_the_vocabulary(name):
    wrong = {}
    for function in FUNCTIONS:
        wanted = arguments(getattr(Functions, function))
        found = arguments(getattr(type(get(name).nn), function))
        more = found[len(wanted) :]
        if found[: len(wanted)] != wanted or any(
            default is inspect.Parameter.empty for _, default, _ in more
        ):
            wrong[function] = {"found": found, "wanted": wanted}
    assert not wrong


def test_layers_are_called_with_the_arguments_of_the_vocabulary(name):
    """The first input may be called as the framework does: nobody gives it by name."""
    wrong = {}
    for layer in sorted(set(LAYERS) - {"ModuleList", "ModuleDict"}):
        wanted = arguments(LAYERS[layer].forward)
        found = arguments(getattr(get(name).nn, layer).forward)
        if found[2:] != wanted[2:] or found[1][1:] != wanted[1][1:]:
            wrong[layer] = {"found": found, "wanted": wanted}
    assert not wrong


def test_layers_are_made_with_the_arguments_of_the_vocabulary(name):
    wrong = {}
    for layer, vocabulary in LAYERS.items():
        bound = getattr(get(name).nn, layer)
        found = (
            bound.__name__,
            arguments(getattr(bound, "written_once", bound).__init__),
            bool(bound.__doc__),
        )
        wanted = layer, arguments(vocabulary.__init__), True
        if found != wanted:
            wrong[layer] = {"found": found, "wanted": wanted}
    assert not wrong


def test_a_backend_fills_in_every_primitive(name):
    functions = type(get(name).nn)
    assert not getattr(functions, "__abstractmethods__", ())


# PyTorch guesses the axis, with a warning; a function as a default is a name here.
OTHER_DEFAULTS = {
    ("ParameterList", "values"),
    *((name, "dim") for name in ("Softmax", "Softmin", "LogSoftmax")),
    *((name, "dim") for name in ("softmax", "softmin", "log_softmax")),
    ("Transformer", "activation"),
    ("TransformerEncoderLayer", "activation"),
    ("TransformerDecoderLayer", "activation"),
}


def parameters(function):
    """The parameters of a function; none of PyTorch's that are written in C++."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return {}


def test_defaults_are_those_of_pytorch():
    pairs = {
        name: (cls.__init__, getattr(torch.nn, name, None))
        for name, cls in LAYERS.items()
    }
    for name in FUNCTIONS:
        pairs[name] = getattr(Functions, name), getattr(torch.nn.functional, name, None)
    compared, others = 0, set()
    for name, (ours, theirs) in pairs.items():
        wanted = {} if theirs is None else parameters(theirs)
        for key, parameter in parameters(ours).items():
            if key in wanted:
                compared += 1
                if parameter.default != wanted[key].default:
                    others.add((name, key))
    assert others == OTHER_DEFAULTS
    assert compared > 590


NAMED = {
    "relu": (lambda nn, x: nn.relu(x=x), lambda x: torch.relu(x)),
    "sub": (lambda nn, x: nn.sub(x, other=x * 2.0), lambda x: -x),
    "softmax": (lambda nn, x: nn.softmax(dim=0, x=x), lambda x: torch.softmax(x, 0)),
}


def test_arrays_may_be_given_by_name(name):
    cases = {}
    for label, (ours, theirs) in NAMED.items():
        cases[label] = FunctionCase(ours, theirs, [normal(0, 3)])
    agree_all(name, cases)
