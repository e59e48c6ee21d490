"""``deliralike convert``: weights from one kind of file into another."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    source: Annotated[Path, typer.Argument(help="The file to read; its content decides what it is.")],
    target: Annotated[Path, typer.Argument(help="The file to write; its suffix decides: .safetensors, .npz, .pth …")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check everything, write nothing.")] = False,
) -> None:
    """Convert a file of weights. No code in the file is run."""
    from deliralike import weights
    from deliralike.cli.console import say

    say(str(weights.convert(source, target, dry_run=dry_run)))
