"""The cases on which the zoo's architectures are tested, one module a family; each has ``CASES``
and may have ``FULL``.

``CASES``: a list of `tests.zoo.case.Case`. ``FULL``: for names of the zoo, functions that make the
whole reference (its names and shapes are compared on PyTorch's meta device, where nothing is
computed).
"""

from importlib import import_module
from pkgutil import iter_modules

from deliralike import zoo

_modules = [
    import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)
]
CASES = {case.label: case for module in _modules for case in module.CASES}
FULL = {
    name: make
    for module in _modules
    for name, make in getattr(module, "FULL", {}).items()
}
assert len(CASES) == sum(len(module.CASES) for module in _modules), (
    "two cases have one label"
)


def _first_of_each_class():
    first = {}
    for label, case in CASES.items():
        first.setdefault(zoo.find(case.name).network, label)
    return frozenset(first.values())


#: One case of each class of networks; the others vary its settings.
FAMILIES = _first_of_each_class()
