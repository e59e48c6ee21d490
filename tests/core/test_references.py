"""The places that a function reads beside its arguments."""

import math
from functools import partial
from types import SimpleNamespace

from deliralike.references import References

OUTER, OTHER = 2.0, 3.0
CONFIG = SimpleNamespace(rate=1.0, unread=0.0, nested=SimpleNamespace(decay=0.5))


def names(function, is_whole=lambda value: False):
    return set(References([function], is_whole).names)


def values(references):
    return [read() for read in references.reads]


def by_helper(x):
    return OUTER * x


class Loss:
    """Reads one attribute itself, and one in a method."""

    def __init__(self):
        self.beta, self.gamma, self.unread = 1.0, 2.0, 3.0

    def inner(self):
        return self.gamma

    def __call__(self, x):
        return self.beta * self.inner() * x


def test_globals_of_a_function_and_of_the_users_functions_that_it_calls():
    assert names(lambda x: by_helper(x) * math.pi) == {"by_helper", "OUTER"}


def test_attributes_that_the_code_names_however_deep():
    found = names(lambda x: CONFIG.rate * CONFIG.nested.decay * x)
    assert found == {"CONFIG", "CONFIG.rate", "CONFIG.nested", "CONFIG.nested.decay"}


def test_attributes_of_an_object_that_is_called_and_of_a_bound_method():
    assert names(Loss()) == {"beta", "gamma"}
    assert names(Loss().inner) == {"gamma"}


def test_closures_defaults_and_partials():
    weight, loss = 1.0, Loss()

    def function(x, scale=OTHER, *, shift=0.0):
        return weight * loss(x) * scale + shift

    assert names(partial(function, scale=4.0)) >= {"weight", "loss", "loss.beta"}
    assert values(References([function], lambda value: False)).count(OTHER) == 1


def test_values_are_those_of_the_time_of_asking_and_none_where_a_name_is_gone():
    loss = Loss()
    references = References([loss], lambda value: False)
    loss.beta = 7.0
    del loss.gamma
    found = dict(zip(references.names, values(references), strict=True))
    assert found == {"beta": 7.0, "gamma": None}


def test_what_is_taken_as_a_whole_is_not_looked_into():
    loss = Loss()
    found = names(lambda x: loss(x), is_whole=lambda value: value is loss)
    assert found == {"loss"}
