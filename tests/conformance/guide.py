"""The guide for authors of backends: three pages of the documentation, as one text."""

from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "docs" / "howto"
_PAGES = ("backend", "backend_networks", "conformance")
# a line of a page may end within a sentence
GUIDE = "\n".join((_FOLDER / f"{page}.md").read_text() for page in _PAGES)
ONE_LINE = " ".join(GUIDE.split())
