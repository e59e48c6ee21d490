"""The text of a port: its definitions in an order in which they run, and what they import."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import libcst as cst
from libcst import matchers as m
from libcst import metadata

from deliralike.port.calls import code


def text_of(title: str, definitions: Iterable[str], imports: Iterable[str]) -> str:
    """The source of a module.

    Args:
        title: Its docstring.
        definitions: The sources of classes, functions and constants.
        imports: Statements of which those come along that the definitions use.
    """
    body = "\n\n\n".join(definitions)
    used = {one.id for one in ast.walk(ast.parse(body)) if isinstance(one, ast.Name)}
    lines = []
    for line in imports:
        bound = line.split()[-1].partition(".")[0]
        if bound in used:
            lines.append(line)
    head = "\n".join([f'"""{title}"""', "", *_joined(lines)])
    return f"{head}\n\n\n{body}\n"


def _joined(lines: Iterable[str]) -> list[str]:
    """Imports, whole modules first; names of one module in one line."""
    names: dict[str, list[str]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: (line.startswith("from"), line)):
        begin, word, name = line.partition(" import ")
        names[begin + word].append(name)
    return [begin + ", ".join(given) for begin, given in names.items()]


def undefined(text: str) -> list[str]:
    """Names, with what follows behind points, that a source uses and does not define."""
    module = metadata.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    parents: Any = module.resolve(metadata.ParentNodeProvider)
    scopes: Any = module.resolve(metadata.ScopeProvider)
    found = set()
    for scope in set(scopes.values()) - {None}:
        for access in scope.accesses:
            node = access.node
            while m.matches(parents[node], m.Attribute(value=node)):
                node = parents[node]
            if not access.referents:
                found.add(code(node))
    return sorted(found)


def in_order(sources: Mapping[str, str]) -> list[str]:
    """The names of definitions, each behind those that it needs when it is created."""
    ordered: dict[str, None] = {}
    waiting: set[str] = set()

    def put(name: str) -> None:
        if name in waiting or name not in sources:
            return
        waiting.add(name)
        for needed in _needed_at_once(sources[name]):
            put(needed)
        ordered[name] = None

    for name in sources:
        put(name)
    return list(ordered)


def _needed_at_once(source: str) -> Collection[str]:
    """The names that a definition needs when it is created, rather than when it is called."""
    names: dict[str, None] = {}
    waiting: list[Any] = [ast.parse(source.strip())]
    for one in waiting:  # which grows
        if isinstance(one, ast.Name):
            names[one.id] = None
        elif isinstance(one, ast.FunctionDef):
            waiting += [*one.decorator_list, one.args]
        else:
            waiting += ast.iter_child_nodes(one)
    return names
