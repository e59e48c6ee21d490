"""No module imports itself through others, imports for type checking counted."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import deliralike

ROOT = Path(deliralike.__file__).parent.parent


def modules(root):
    """Every module of the package by its dotted name."""
    found = {}
    for file in sorted((root / "deliralike").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = file
    return found


def imported_by(file):
    """The dotted names that a file imports, anywhere in it, modules and their attributes alike."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph(root):
    known = modules(root)
    edges = {}
    for name, file in known.items():
        targets = set(imported_by(file))
        targets |= {
            target.rpartition(".")[0] for target in targets if target not in known
        }
        edges[name] = targets & known.keys() - {name}
    return edges


def test_modules_import_each_other_in_one_direction():
    edges = graph(ROOT)
    assert len(edges) > 400
    TopologicalSorter(edges).prepare()


def test_an_import_for_type_checking_alone_closes_a_cycle(tmp_path):
    package = tmp_path / "deliralike"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("from deliralike.two import two\n")
    (package / "two.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from deliralike import one\n"
    )
    with pytest.raises(CycleError, match="cycle"):
        TopologicalSorter(graph(tmp_path)).prepare()
