"""A package's entry points, as pip leaves them beside it."""

from pathlib import Path


def write_entry_points(folder: Path, name: str, entry_points: str) -> None:
    """Write what an installed distribution of a name says, for a folder on the path."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(entry_points)
