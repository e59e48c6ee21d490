"""What a framework may change without notice is in one file of each backend."""

import ast
from pathlib import Path

import pytest

import deliralike

PACKAGE = Path(deliralike.__file__).parent
FRAMEWORKS = {
    "torch",
    "jax",
    "jnp",
    "flax",
    "nnx",
    "optax",
    "chainer",
    "chainermn",
    "cupy",
    "dist",
}
UNSTABLE_MODULES = ("jax.extend", "jax.interpreters", "jax._src")
# The tables in which modules and links keep what is theirs: see the docstrings of unstable.py.
TABLES = {"_parameters", "_buffers", "_modules", "_params", "_children", "_persistent"}
# A subclass of DistributedDataParallel, whose methods it overrides.
SUBCLASSES = {"backends/torch/distributed/reducing.py"}
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "unstable.py")
TREES = {path: ast.parse(path.read_text()) for path in SOURCES}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def names_of_our_own():
    """Every name that a file of the package defines or sets."""
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute | ast.Name) and isinstance(
                node.ctx, ast.Store
            ):
                found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).rpartition(".")[2])
    return found


def root_of(node):
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def unstable_uses(tree, own):
    """Yield the line and the name of each use of what is not public."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [
                getattr(node, "module", None) or "",
                *(each.name for each in node.names),
            ]
            for module in modules:
                parts = module.split(".")
                is_framework = parts[0] in FRAMEWORKS and any(map(is_private, parts))
                if is_framework or module.startswith(UNSTABLE_MODULES):
                    yield node.lineno, module
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            of_framework = root_of(node) in FRAMEWORKS
            if node.attr not in TABLES and (of_framework or node.attr not in own):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith("xla_"):
                yield node.lineno, node.value


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_each_backend_has_one_file_for_what_is_not_public(backend):
    tree = ast.parse((PACKAGE / "backends" / backend / "unstable.py").read_text())
    assert list(unstable_uses(tree, names_of_our_own()))
    assert all(
        ast.get_docstring(each)
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
    )


def test_nothing_else_uses_what_is_not_public():
    own = names_of_our_own() | {"_exit", "_call_lock"}  # of os; set by its name
    found = []
    for path, tree in TREES.items():
        file = path.relative_to(PACKAGE).as_posix()
        if file not in SUBCLASSES:
            found += [
                f"{file}:{line} {name}" for line, name in unstable_uses(tree, own)
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch._C._nothing()",
        "from jax.extend.core import Primitive",
        "from jax._src import core",
        "def f(x):\n    return x._never_defined_here",
        "options = {'xla_backend_optimization_level': 0}",
    ],
)
def test_such_a_use_is_seen(source):
    assert list(unstable_uses(ast.parse(source), names_of_our_own()))
