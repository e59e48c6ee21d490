"""``deliralike convert``: weights from one kind of file into another."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    source: Annotated[
        Path, typer.Argument(help="The file to read; its content decides what it is.")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="The file to write; its suffix decides: "
            ".safetensors, .npz, .pth, .msgpack, .orbax."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="The architecture; names are fitted to it. (deliralike zoo lists all)"
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Whose names to write: torchvision, chainer, timm … (default: the zoo's)"
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the model: num_classes=10."),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            help="A CSV file that says which tensor is which of the model's: written where it is "
            "not there, to be read and edited, and followed where it is.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, write nothing.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Build the model from both files and compare outputs in double precision.",
        ),
    ] = False,
) -> None:
    """Convert a file of weights. No code in the file is run."""
    from deliralike import zoo
    from deliralike.cli.console import say
    from deliralike.cli.options import key_values

    settings = key_values(set_ or (), "--set")
    report = zoo.convert(source, target, model, to, dry_run, check, pairs, **settings)
    say(str(report))
