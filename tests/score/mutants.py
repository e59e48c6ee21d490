"""Mutants: classes with one mistake in their source, what they change, and where that is.

Whether a mutant changes anything is found out by running PyTorch itself, in float64 and both modes.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import random
import re
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.references import allow_torchvision
from tests.score.case import Mistake, Right
from tests.score.classes import CLASSES, NETWORK, Subclass
from tests.score.rules import RULES, Change, changes

CHANGED = 1e-9  # relative, from here on something differs
_NOTHING = 1e-12  # of the largest gradient: rounding
_count = itertools.count()
_REGISTERS = re.compile(r"^(register|auto_docstring)|^ *register\w*\(", re.MULTILINE)

allow_torchvision()


@dataclass(frozen=True)
class Mutation:
    """One mistake in a class, or the class as it is on another backend.

    Attributes:
        name_of_class: In `CLASSES`.
        port: The backend of the candidate.
        index: Which of `changes` of the class's module; None for none.
        rule: Its rule.
        line: Where it is.
    """

    name_of_class: str
    port: str
    index: int | None = None
    rule: str = "as it is"
    line: int = 0

    @property
    def is_mistake(self) -> bool:
        return self.index is not None

    @property
    def name(self) -> str:
        """``"timm cait/torch/epsilon, line 40 (12)"``."""
        where = f", line {self.line} ({self.index})" if self.is_mistake else ""
        return f"{self.name_of_class}/{self.port}/{self.rule}{where}"

    @property
    def module(self) -> str:
        """What a process imports before it is given the case."""
        return find(self.name_of_class).module

    @property
    def group(self) -> str:
        """The row of the table that it counts in."""
        return self.rule

    @property
    def case(self) -> Mistake | Right:
        """What is known before it runs."""
        if not self.is_mistake:
            return Right(self.rule, self.port)
        return Mistake(self.rule, self.port, (), (), ())


def find(name: str) -> Subclass:
    """The class of a name."""
    return next(each for each in CLASSES if each.name == name)


@cache
def source(module: str) -> str:
    """The source of a module without what registers its models under names that are taken."""
    text = Path(importlib.util.find_spec(module).origin).read_text()
    lines = text.splitlines(keepends=True)
    for node in _registrations(ast.parse(text)):
        lines[node.lineno - 1 : node.end_lineno] = ["\n"] * (
            node.end_lineno - node.lineno + 1
        )
    return "".join(lines)


def _registrations(tree: ast.Module) -> Iterator[ast.AST]:
    """Decorators and statements that would register a name twice, or read the file for its docs."""
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", ()):
            if _REGISTERS.search(ast.unparse(decorator)):
                # The sign before it is on the line, too.
                yield decorator
    for node in tree.body:
        if isinstance(node, ast.Expr | ast.For) and _REGISTERS.search(
            ast.unparse(node)
        ):
            yield node


@cache
def changes_of(module: str) -> tuple[Change, ...]:
    """The mistakes that can be made in a module."""
    return tuple(changes(source(module)))


def as_module(module: str, text: str, folder: Path) -> ModuleType:
    """A source, executed in the package of the module that it comes from.

    It is written into a folder for `inspect` to find.
    """
    name = f"{module}_{next(_count)}"
    path = folder / f"{name}.py"
    path.write_text(text)
    specification = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(specification)
    sys.modules[name] = made
    specification.loader.exec_module(made)
    return made


# Drawing
# -----------------------------------------------------------------------------


def draw(
    count: int, seed: int, port: str = "torch", of: str = ""
) -> Iterator[Mutation]:
    """So many mutations, evenly from all rules that apply, and from all classes.

    Args:
        of: Part of the name of the classes.
    """
    generator = random.Random(seed)
    waiting: dict[str, dict[str, list[Mutation]]] = {name: {} for name in RULES}
    for each in CLASSES:
        if of in each.name and (port == "torch" or each.is_ours):
            owners = _owners(each.name)
            for index, change in enumerate(changes_of(each.module)):
                if change.owner in owners:
                    row = waiting[change.rule].setdefault(each.name, [])
                    row.append(
                        Mutation(each.name, port, index, change.rule, change.line)
                    )
    while any(waiting.values()):
        for rule in [name for name, left in waiting.items() if left]:
            name = generator.choice(sorted(waiting[rule]))
            row = waiting[rule][name]
            if not count:
                return
            yield row.pop(generator.randrange(len(row)))
            count -= 1
            if not row:
                del waiting[rule][name]


def as_they_are(port: str, of: str = "") -> Iterator[Mutation]:
    """Our classes without a mistake, on another backend."""
    for each in CLASSES:
        if each.is_ours and of in each.name:
            yield Mutation(each.name, port)


@cache
def _owners(name: str) -> set[str]:
    """The classes and functions of a module that what is built of it goes through."""
    kind = find(name)
    tree = ast.parse(source(kind.module))
    defined = {
        node.name: {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    used = set(kind.build.__code__.co_names)
    if kind.part == NETWORK:
        module = importlib.import_module(kind.module)
        built = kind.build(module)
        built = built("torch") if kind.is_ours else built
        kinds = {one for each in built.modules() for one in type(each).__mro__}
        used |= {each.__name__ for each in kinds if each.__module__ == kind.module}
        used |= {part for each in kinds for part in each.__qualname__.split(".")}
        classes = {
            node.name for node in tree.body if isinstance(node, ast.ClassDef)
        } - used
    else:
        used, classes = {name.split()[-1]}, set()
    reached: set[str] = set()
    while more := (used & defined.keys()) - reached:
        reached |= more
        used = {each for one in more for each in defined[one]} - classes
    return reached


# Networks
# -----------------------------------------------------------------------------


def varied(network: Any) -> Any:
    """A network of PyTorch whose norms, biases and running statistics are not those of a start."""
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
            elif value.is_floating_point() and (value.ndim < 2 or not value.any()):
                value.add_(0.2 * torch.randn(value.shape))
    return network


def with_weights(network: Any, reference: Any) -> Any:
    """A network with the weights of another one, as far as there are the same ones."""
    own, given = network.state_dict(), reference.state_dict()
    same = [
        name for name in own if name in given and own[name].shape == given[name].shape
    ]
    network.load_state_dict({name: given[name] for name in same}, strict=False)
    return network


def small_network() -> Any:
    """What losses and optimizers are tried with."""
    import torch

    layers = (
        torch.nn.Linear(5, 8),
        torch.nn.LayerNorm(8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 4),
    )
    return torch.nn.Sequential(*layers)


# What a mutant changes
# -----------------------------------------------------------------------------


def observed(network: Any, batch: tuple[Any, ...], mode: str) -> dict[str, Any]:
    """Outputs, gradients and statistics of a network of PyTorch in float64."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    network = deepcopy(network).double().train(mode == "train")
    given = tree_map(_tensor, batch)
    torch.manual_seed(0)
    outputs = [each for each in tree_leaves(network(*given)) if torch.is_tensor(each)]
    loss = sum(
        ((each - _wanted(each)) ** 2).mean() for each in outputs if each.requires_grad
    )
    loss.backward()
    found = {f"output {i}": each for i, each in enumerate(outputs)}
    found |= {
        f"gradient of the input {i}": each.grad
        for i, each in enumerate(tree_leaves(given))
    }
    found |= {
        name: each.grad
        for name, each in network.named_parameters(remove_duplicate=False)
    }
    return found | dict(network.named_buffers())


def observed_loss(loss: Any, network: Any, batch: tuple[Any, ...]) -> dict[str, Any]:
    """A loss and its gradient in float64."""
    import torch

    outputs = network.double()(_tensor(batch[0])).detach().requires_grad_()
    value = loss(outputs, torch.as_tensor(batch[1]))
    value.backward()
    return {"loss": value, "gradient": outputs.grad}


def observed_updates(make: Any, network: Any, batch: tuple[Any, ...]) -> dict[str, Any]:
    """Parameters after four steps in float64."""
    network = deepcopy(network).double()
    optimizer = make(network)
    for _ in range(4):
        optimizer.zero_grad()
        (network(_tensor(batch[0])) ** 2).mean().backward()
        optimizer.step()
    return dict(network.named_parameters())


def _tensor(array: Any) -> Any:
    import torch

    tensor = torch.as_tensor(array)
    return tensor.double().requires_grad_() if tensor.is_floating_point() else tensor


def _wanted(output: Any) -> Any:
    import torch

    generator = torch.Generator().manual_seed(5)
    return torch.randn(output.shape[1:], generator=generator, dtype=output.dtype)


def differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two observations are of different things, not just rounded otherwise."""
    if one.keys() != other.keys():
        return True
    largest = max(float(each.norm()) for each in one.values() if _is_float(each))
    return any(_differs(one[name], other[name], largest) for name in one)


def _is_float(value: Any) -> bool:
    return value is not None and value.is_floating_point()


def _differs(one: Any, other: Any, largest: float) -> bool:
    if one is None or other is None:
        present = other if one is None else one
        return present is not None and float(present.norm()) > _NOTHING * largest
    if one.shape != other.shape:
        return True
    far = float((one.detach() - other.detach()).double().norm())
    return not far <= CHANGED * float(one.detach().double().norm()) + _NOTHING * largest


# Where a mutant is changed
# -----------------------------------------------------------------------------


def places(change: Change, text: str, module: str, network: Any) -> tuple[str, ...]:
    """Paths of blocks and names of parameters that the changed statement is about."""
    owners = _classes_of(change, text)
    parameters = [name for name, _ in network.named_parameters(remove_duplicate=False)]
    names = [name for name, _ in network.named_modules()] + parameters
    names += [name for name, _ in network.named_buffers()]
    found: list[str] = []
    for path, block in network.named_modules():
        kinds = [each for each in type(block).__mro__ if each.__module__ == module]
        if not any(each.__name__ in owners for each in kinds):
            continue
        roots = [f"{path}.{each}".lstrip(".") for each in change.attributes]
        inner = _below(roots, names)
        if change.builds and not inner:
            inner = _below([path], names)
        found += inner
        is_another = change.rule in ("other norm", "norm without weights")
        if is_another or not change.builds or not _below(roots, parameters):
            found.append(path)  # the layer is not the same one any more, or has no name
    return tuple(dict.fromkeys(found))


def _below(roots: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names of these blocks and of all that is in them."""
    starts = tuple(f"{root}." if root else "" for root in roots)
    return [name for name in names if name in roots or name.startswith(starts)]


def _classes_of(change: Change, text: str) -> set[str]:
    """The class of a change; of a function outside of classes those that name it."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    if any(node.name == change.owner for node in classes):
        return {change.owner}
    return {
        node.name
        for node in classes
        if any(
            isinstance(each, ast.Name) and each.id == change.owner
            for each in ast.walk(node)
        )
    }
