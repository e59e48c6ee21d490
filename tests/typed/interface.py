"""Write the types of `self.nn` for editors and type checkers: ``make types``.

The functions of `nn` have their types in the code. Layers are bound to a backend at run time, and
some are made by functions: here each gets a class that says what it takes.
"""

import ast
import builtins
import inspect
import sys
import textwrap
from pathlib import Path

from deliralike import nn
from deliralike.network.base import Network
from deliralike.nn.layers import LAYERS

PATH = Path(nn.__file__).with_name("interface.pyi")

_TEXT = '''\
"""The types of `self.nn`. Written by ``make types``: do not edit."""

{imports}

class Vocabulary(Functions, metaclass=ABCMeta):
    """The layers and functions of `nn`."""

{layers}'''
_CONTAINER = (
    "__len__",
    "__iter__",
    "__contains__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
)
_IMPORTS = {
    "ABCMeta": "abc",
    "Any": "typing",
    "Array": "deliralike.nn.primitives",
    "Functions": "deliralike.nn.functional",
    "Network": "deliralike.network.base",
}
_GENERICS = (
    ("collections.abc", "Sequence"),
    ("collections.abc", "Callable"),
    ("typing", "Any"),
)


def written():
    """Return the text of the file."""
    modules = dict(_IMPORTS)  # by the name that is imported from them
    layers = [_layer(name, layer, modules) for name, layer in sorted(LAYERS.items())]
    imports = sorted(f"from {module} import {name}" for name, module in modules.items())
    return _TEXT.format(
        imports="\n".join(imports), layers=textwrap.indent("\n".join(layers), "    ")
    )


def _layer(name, layer, modules):
    summary = inspect.getdoc(layer).split("\n\n")[0].replace("\n", " ")
    lines = [f"class {name}(Network):", f'    """{summary}"""', ""]
    for method, function in _methods(layer).items():
        lines.append(f"    def {method}{_signature(method, function, modules)}: ...")
    return "\n".join(lines) + "\n"


def _methods(layer):
    """Return the functions that say how a layer is made, called, and used as a container."""
    methods = {"__init__": layer.__init__, "__call__": layer.forward}
    if hasattr(layer, "__len__"):
        for name in sorted(dir(layer)):
            is_public = name in _CONTAINER or not name.startswith("_")
            if is_public and not hasattr(Network, name):
                methods[name] = inspect.getattr_static(layer, name)
    return {
        name: value for name, value in methods.items() if value is not Network.forward
    }


def _signature(method, function, modules):
    result = "None" if method == "__init__" else "Any"
    if not inspect.isfunction(function):
        return f"(self) -> {result}"  # no __init__ of its own
    if hasattr(function, "__signature__"):
        return f"({', '.join(_settings(function, modules))}) -> {result}"
    [node] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    _annotate(node.args)
    annotations = [argument.annotation for argument in _arguments(node.args)] + [
        node.returns
    ]
    for annotation in filter(None, annotations):
        _import_names(annotation, function, modules)
    if node.returns is not None:
        result = ast.unparse(node.returns)
    return f"({ast.unparse(node.args)}) -> {result}"


def _settings(function, modules):
    """Yield the arguments of a layer that is made of a function, with the function's types."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            yield name
            continue
        annotation = inspect.formatannotation(parameter.annotation).strip("'")
        for module, generic in _GENERICS:
            if f"{module}.{generic}" in annotation:
                modules[generic] = module
                annotation = annotation.replace(f"{module}.{generic}", generic)
        is_required = parameter.default is parameter.empty
        default = "" if is_required else f"={parameter.default!r}"
        yield f"{name}: {annotation}{default}"


def _annotate(arguments):
    """Give the arguments without a type one: those of a call that are required are arrays."""
    required = arguments.args[1 : len(arguments.args) - len(arguments.defaults)]
    for argument in _arguments(arguments)[1:]:
        if argument.annotation is None:
            argument.annotation = ast.Name("Array" if argument in required else "Any")


def _arguments(arguments):
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *filter(None, (arguments.vararg, arguments.kwarg))]


def _import_names(annotation, function, modules):
    """Add the names in an annotation of a function, with the modules that they come from."""
    for node in ast.walk(annotation):
        is_name = isinstance(node, ast.Name) and not hasattr(builtins, node.id)
        if is_name and node.id not in modules:
            modules[node.id] = _module_with(node.id, sys.modules[function.__module__])


def _module_with(name, module):
    """Return the module that a module has a name from, or the module itself."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and name in [
            alias.name for alias in node.names
        ]:
            return node.module
    return module.__name__


if __name__ == "__main__":
    PATH.write_text(written())
    print(PATH)
