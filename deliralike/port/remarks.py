"""What a port says of the lines of the original."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from deliralike.port.resolving import Source


@dataclass(frozen=True)
class Remark:
    """Something to know about a line of the original.

    Attributes:
        where: ``"file.py:12"``.
        text: What it is.
    """

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class Remarks:
    """The remarks of a port.

    Attributes:
        hands: Lines that a person has to write.
        left_out: Lines that are not in the port, or of which it has one case.
    """

    def __init__(self) -> None:
        self.hands: list[Remark] = []
        self.left_out: list[Remark] = []

    def needs_hand(self, where: str, reason: str) -> None:
        """Note a line that a person has to write."""
        remark = Remark(where, reason)
        if remark not in self.hands:
            self.hands.append(remark)

    def leave_out(self, source: Source, node: cst.CSTNode, why: str) -> None:
        """Note lines that are not in the port, and take back what was said of them."""
        first, last = source.begin(node)[0], source.end(node)[0]
        places = {f"{source.file}:{line}" for line in range(first, last + 1)}
        self.hands = [one for one in self.hands if one.where not in places]
        self.left_out = [one for one in self.left_out if one.where not in places]
        self.specialise(f"{source.file}:{first}", why)

    def specialise(self, where: str, why: str) -> None:
        """Note what the port has of a line; what was said of the line before still holds."""
        remark = Remark(where, why)
        if remark not in self.left_out:
            self.left_out.append(remark)
