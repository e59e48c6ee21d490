"""``deliralike convert``: weights from one kind of file into another."""

from pathlib import Path
from typing import Annotated

import typer

from deliralike.cli.console import say
from deliralike.cli.options import Pairs, key_values, settings_option
from deliralike.errors import ProofFailed
from deliralike.terminal import say_error


def command(
    source: Annotated[
        Path, typer.Argument(help="The file to read; its content decides what it is.")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="The file to write; its suffix decides: .safetensors, .npz, .pth."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The architecture; names are fitted to it. (deliralike zoo lists all)",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Whose names to write: torchvision, chainer, timm … (default: the zoo's)",
        ),
    ] = None,
    set_: Annotated[
        Pairs, settings_option("A setting of the model: num_classes=10.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="OURS=THEIRS",
            help="A name of the model and the one in the file that it is: fc.weight=dense.kernel.",
        ),
    ] = None,
    guess: Annotated[
        bool,
        typer.Option(
            "--guess", help="Take what the file does not tell as it is usually."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Read and check everything, write nothing."),
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="NETWORK",
            help="The network that the file was made for, torchvision.models:resnet18 or "
            "file.py:Net: outputs are compared in double precision.",
        ),
    ] = None,
) -> None:
    """Convert a file of weights. No code in the file is run.

    The exit code is 1 where --check finds other outputs, and nothing is written then.
    """
    from deliralike import zoo

    settings = key_values(set_ or (), "--set")
    names = key_values(name or (), "--name")
    try:
        report = zoo.convert(
            source, target, model, to, dry_run, check, names, guess, **settings
        )
    except ProofFailed as error:
        say_error(f"deliralike: {error}")
        raise typer.Exit(1) from None
    say(str(report))
