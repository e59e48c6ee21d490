"""Ports by hand: networks of PyTorch in flax and Chainer, as they are and with mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.score.case import Mistake, Right
from tests.score.ports.mistakes import MISTAKES

PACKAGE = "tests.score.ports."
BACKENDS = ("jax", "chainer")


class EditError(ValueError):
    """A mistake that does not fit the source of its port."""


@dataclass(frozen=True)
class Task:
    """A port, right or with a mistake in its file.

    Attributes:
        port: Its name in `PORTS` of the file.
        case: What is known of it.
    """

    port: str
    case: Mistake | Right

    module = f"{PACKAGE}references"

    @property
    def name(self) -> str:
        """``"jax/pair, texts first: scale without exp"``."""
        return f"{self.case.port}/{self.port}: {self.case.name}"

    @property
    def group(self) -> str:
        """The row of the table that it counts in."""
        return f"by hand, {self.case.port}"


def tasks(backend: str) -> Iterator[Task]:
    """All ports to a backend as they are, and all mistakes."""
    _, table = source(backend).split("\nPORTS = {")
    for port in re.findall(r'^    "(.*?)": ', table, re.MULTILINE):
        yield Task(port, Right("as it is", backend))
    for port, mistake in MISTAKES:
        if mistake.port == backend:
            yield Task(port, mistake)


def source(backend: str) -> str:
    """The file of a backend's ports."""
    return (Path(__file__).parent / f"{backend}.py").read_text()


def edited(task: Task) -> str:
    """The file with the mistake of a case.

    Raises:
        EditError: The text to replace does not stand there exactly once.
    """
    text = source(task.case.port)
    for old, new in getattr(task.case, "edits", ()):
        count = text.count(old)
        if count != 1:
            raise EditError(f"{task.name}: wanted once, found {count} times: {old!r}")
        text = text.replace(old, new)
    return text
