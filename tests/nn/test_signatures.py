"""Every backend's functions and layers take the arguments of the vocabulary, by the same names and defaults."""

import inspect

import pytest

from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS
from tests.nn.agreement import NAMES, get

FUNCTIONS = [name for name, value in inspect.getmembers(Functions, inspect.isfunction) if not name.startswith("_")]


def arguments(function):
    """Names, defaults and kinds; a backend may have more of them than the vocabulary, if they are optional."""
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_functions_take_the_arguments_of_the_vocabulary(name, function):
    wanted = arguments(getattr(Functions, function))
    found = arguments(getattr(type(get(name).nn), function))
    assert found[: len(wanted)] == wanted
    assert all(default is not inspect.Parameter.empty for _, default, _ in found[len(wanted) :])


@pytest.mark.parametrize("layer", sorted(set(LAYERS) - {"ModuleList", "ModuleDict"}))
@pytest.mark.parametrize("name", NAMES)
def test_layers_are_called_with_the_arguments_of_the_vocabulary(name, layer):
    """The first input may be called as the framework does: nobody gives it by name."""
    wanted = arguments(LAYERS[layer].forward)
    found = arguments(getattr(get(name).nn, layer).forward)
    assert found[2:] == wanted[2:]
    assert found[1][1:] == wanted[1][1:]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_layers_are_made_with_the_arguments_of_the_vocabulary(name, layer):
    bound = getattr(get(name).nn, layer)
    assert bound.__name__ == layer
    assert arguments(getattr(bound, "written_once", bound).__init__) == arguments(LAYERS[layer].__init__)
    assert bound.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_fills_in_every_primitive(name):
    functions = type(get(name).nn)
    assert not getattr(functions, "__abstractmethods__", ())
