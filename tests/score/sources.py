"""Pairs of networks as files: their cases, and the sources of ports after edits."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.score.case import Mistake, Right

FOLDER = Path(__file__).parent / "pairs"
PORTS = ("jax", "chainer")
_count = itertools.count()


class EditError(ValueError):
    """An edit that does not fit its source."""


@dataclass(frozen=True)
class Task:
    """One case of a pair; `case` is a mistake or a right variant."""

    pair: str
    case: Mistake | Right

    @property
    def is_mistake(self) -> bool:
        return isinstance(self.case, Mistake)

    @property
    def name(self) -> str:
        """``"unet/jax/tanh GELU"``, and ``"unet/jax/right: scanned"``."""
        kind = "" if self.is_mistake else "right: "
        return f"{self.pair}/{self.case.port}/{kind}{self.case.name}"

    @property
    def module(self) -> str:
        """What a process imports before it is given the case."""
        return f"tests.score.pairs.{self.pair}.reference"

    @property
    def group(self) -> str:
        """The row of the table that it counts in."""
        return self.pair


def pairs() -> list[str]:
    """The names of all pairs."""
    return sorted(path.parent.name for path in FOLDER.glob("*/reference.py"))


def tasks(pair: str) -> Iterator[Task]:
    """All cases of a pair, the mistakes first."""
    edits = importlib.import_module(f"tests.score.pairs.{pair}.edits")
    for case in (*edits.MISTAKES, *edits.RIGHT):
        yield Task(pair, case)


def edited(task: Task) -> str:
    """The source of a case.

    Raises:
        EditError: A text to replace does not stand exactly once in what came out so far.
    """
    source = (FOLDER / task.pair / f"{task.case.port}.py").read_text()
    for old, new in task.case.edits:
        count = source.count(old)
        if count != 1:
            raise EditError(f"{task.name}: wanted once, found {count} times: {old!r}")
        source = source.replace(old, new)
    return source


def imported(source: str, stem: str, folder: Path, package: str = "") -> ModuleType:
    """The module of a source, which is written into a folder for `inspect` to find.

    Args:
        package: Where its relative imports look.
    """
    stem = f"{stem}_{next(_count)}"
    name = f"{package}.{stem}" if package else stem
    path = folder / f"{stem}.py"
    path.write_text(source)
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module
