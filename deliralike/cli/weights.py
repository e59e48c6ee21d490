"""``deliralike weights``: published weights in the cache of this machine, and on the network."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Published weights: download, list, remove and check them.",
)

_ARCHITECTURE = typer.Argument(help="An architecture of the zoo.")
_NAME = typer.Argument(help="A name of 'deliralike zoo ARCHITECTURE --weights'.")


@app.command()
def pull(
    architecture: Annotated[str, _ARCHITECTURE],
    name: Annotated[str, _NAME] = "pretrained",
) -> None:
    """Download weights into the cache, or check those that are there."""
    from deliralike.cli.console import say

    entry = _entry(architecture, name)
    path = entry.fetch()
    size = path.stat().st_size
    say(f"{entry.architecture}, {entry.name}: {path} ({size / 2**20:.1f} MiB)")


@app.command("list")
def list_(
    pattern: Annotated[
        str, typer.Argument(help="Architectures to list: 'resnet*'.")
    ] = "*",
) -> None:
    """List the published weights that are in the cache."""
    from deliralike import zoo
    from deliralike.cli.console import say, show_table

    rows = []
    total = 0
    for entry in zoo.weights(pattern):
        path = entry.file.stored()
        if path is not None:
            size = path.stat().st_size
            total += size
            rows.append(
                (entry.architecture, entry.name, f"{size / 2**20:.1f} MiB", path)
            )
    if not rows:
        say(
            "no published weights in the cache; deliralike zoo --weights lists what there is"
        )
        return
    show_table(["architecture", "name", "size", "file"], rows, right=["size"])
    say(f"{len(rows)} files, {total / 2**20:.1f} MiB")


@app.command()
def remove(
    architecture: Annotated[str, _ARCHITECTURE],
    name: Annotated[str, _NAME],
) -> None:
    """Delete weights from the cache."""
    from deliralike.cli.console import say

    entry = _entry(architecture, name)
    freed = entry.file.remove()
    if freed:
        say(
            f"{entry.architecture}, {entry.name}: removed, {freed / 2**20:.1f} MiB are free again"
        )
    else:
        say(f"{entry.architecture}, {entry.name}: not in the cache")


@app.command()
def check(
    pattern: Annotated[
        str, typer.Argument(help="Architectures to check: 'resnet*'.")
    ] = "*",
    name: Annotated[
        str, typer.Option("--name", help="Only weights of these names: 'timm/*'.")
    ] = "*",
    download: Annotated[
        bool,
        typer.Option(
            "--download", help="Download every file, and check its hash and its keys."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FOLDER",
            help="Measure the accuracy on pictures: a folder for each class, by name or in order.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="The backend for --data. (default: the first available)"),
    ] = None,
) -> None:
    """Hold the registry against the network: addresses, sizes, hashes, keys, accuracy.

    Without --download only the addresses are asked, and files in the cache are read.
    """
    import fnmatch

    from deliralike import zoo
    from deliralike.cli.console import progress, say, show_table
    from deliralike.errors import UnknownName
    from deliralike.zoo.published import checking

    entries = [
        entry for entry in zoo.weights(pattern) if fnmatch.fnmatchcase(entry.name, name)
    ]
    if not entries:
        raise UnknownName(f"no published weights match {pattern!r} and --name {name!r}")
    results = []
    with progress() as show:
        for number, entry in enumerate(entries):
            show(f"{entry.architecture} {entry.name}", number / len(entries))
            results.append(checking.check(entry, download, data, backend))
    show_table(checking.COLUMNS, [result.row() for result in results])
    say(checking.summary(results))
    if not all(result.agrees for result in results):
        raise typer.Exit(1)


def _entry(architecture: str, name: str) -> Any:
    from deliralike import zoo
    from deliralike.zoo import published

    return published.choose(architecture, name, zoo.find(architecture).settings)
