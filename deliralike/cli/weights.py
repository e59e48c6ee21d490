"""``deliralike weights``: published weights in the cache of this machine, and on the network."""

from typing import Annotated, Any

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Published weights: download and list them.",
)

_ARCHITECTURE = typer.Argument(help="An architecture of the zoo.")
_NAME = typer.Argument(help="A name of 'deliralike zoo ARCHITECTURE --weights'.")


@app.command()
def pull(
    architecture: Annotated[str, _ARCHITECTURE],
    name: Annotated[str, _NAME] = "pretrained",
) -> None:
    """Download weights into the cache, or check the hash of those that are there."""
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


def _entry(architecture: str, name: str) -> Any:
    from deliralike import zoo
    from deliralike.zoo import published

    return published.choose(architecture, name, zoo.find(architecture).settings)
