"""What the pages hold: blocks of Python with what they print, and commands."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1\s*?$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Some fenced lines of a page; `between` is what stands between them and the block before."""

    language: str
    text: str
    line: int
    between: str


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page in order."""
    text, end, found = page.read_text(encoding="utf-8"), 0, []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start(3))
        found.append(Block(match[2].strip(), match[3], line, text[end : match.start()]))
        end = match.end()
    return found


def examples(page: Path) -> list[tuple[Block, str | None]]:
    """Each block of Python with the ``text`` block right under it, which is what it prints; None
    without one."""
    found = blocks(page)
    following = [*found[1:], None][: len(found)]
    return [
        (block, _printed(after))
        for block, after in zip(found, following, strict=True)
        if block.language == "python"
    ]


def commands(page: Path) -> list[str]:
    """Every ``deliralike`` command in the page's shell blocks, without its prompt and comment."""
    lines = [
        line
        for block in blocks(page)
        if block.language == "console"
        for line in block.text.splitlines()
    ]
    typed = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for line in lines
        if line.startswith("$ ")
    ]
    return [line for line in typed if line.startswith("deliralike ")]


def _printed(after: Block | None) -> str | None:
    return (
        after.text
        if after is not None and after.language == "text" and not after.between.strip()
        else None
    )
