"""An error that a network raised, with the layer and the line of its own code where that was."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import FrameType

from deliralike.conformance.findings import RAISES, Finding
from deliralike.conformance.observe import recording
from deliralike.conformance.observe.units import Unit
from deliralike.network.core import unwrap

_MOST = 400  # letters of an error's text


@dataclass(frozen=True)
class Raised:
    """An error of a network, its loss or its backward pass.

    Attributes:
        text: ``"ValueError: no such mode"``.
        path: The innermost block that was being called, by its own name; empty for the network;
            ``"loss"`` outside of it.
        kind: The block's class.
        line: ``"port.py:31, in forward"``; empty where no code of the network's is known.
        backward: Whether the forward pass had ended.
    """

    text: str
    path: str = ""
    kind: str = ""
    line: str = ""
    backward: bool = False

    @classmethod
    def of(cls, error: BaseException, unit: Unit) -> Raised:
        """What a run of a unit ended with; places are read from the traceback."""
        frames = [(frame, number) for frame, number in walk_tb(error.__traceback__)]
        codes = {frame.f_code for frame, _ in frames}
        line = _line_of(frames, unit)
        if Unit.output.__code__ not in codes:
            return cls(in_words(error), line=line, backward=True)
        calls = [frame.f_locals for frame, _ in frames if recording.is_call(frame)]
        if not calls:
            return cls(in_words(error), "loss", line=line)
        innermost = calls[-1]
        return cls(
            in_words(error), innermost["path"], type(innermost["block"]).__name__, line
        )

    def finding(self, mode: str) -> Finding:
        """The error as what a level finds."""
        what = (
            f"{RAISES}{self.text}{' (in the backward pass)' if self.backward else ''}"
        )
        remarks = (f"Raised at {self.line}.",) if self.line else ()
        return Finding(
            "L1", self.path, what, float("inf"), self.kind, mode, remarks=remarks
        )

    def __str__(self) -> str:
        """The error with its place."""
        where = [self.path and f"in {self.path}", self.kind and f"({self.kind})"]
        where += [
            "in the backward pass" if self.backward else "",
            self.line and f"at {self.line}",
        ]
        place = " ".join(filter(None, where))
        return f"{self.text} [{place}]" if place else self.text


def in_words(error: BaseException) -> str:
    """The class and text of an error as one line."""
    text = " ".join(str(error).split())
    if len(text) > _MOST:
        text = f"{text[:_MOST]} …"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line_of(frames: list[tuple[FrameType, int]], unit: Unit) -> str:
    """The innermost line of the network's own code, or of any that is no package's."""
    native = unwrap(unit.network)
    package = type(native).__module__.partition(".")[0]
    for frame, number in reversed(frames):
        file = Path(frame.f_code.co_filename).absolute()
        if file.is_file() and _is_own(file, package):
            return f"{_short(file)}:{number}, in {frame.f_code.co_name}"
    return ""


def _is_own(file: Path, package: str) -> bool:
    """Whether a file is a network's: no part of Python, nor of a package that is not its own."""
    if file.is_relative_to(_OURS):
        return file.is_relative_to(_OURS / "zoo")
    for folder in _PACKAGES:
        if file.is_relative_to(folder):
            return file.relative_to(folder).parts[0].removesuffix(".py") == package
    return not file.is_relative_to(_PYTHON)


_OURS = Path(__file__).parents[2]
_PACKAGES = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")]
_PYTHON = Path(sysconfig.get_path("stdlib"))


def _short(file: Path) -> str:
    """A file from the current folder on, or else its name."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else file.name
