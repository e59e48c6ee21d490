"""``deliralike weights``: published weights, into the cache of this machine."""

from typing import Annotated

import typer

from deliralike.cli.console import say

app = typer.Typer(
    no_args_is_help=True,
    help="Published weights: download them.",
)

_ARCHITECTURE = typer.Argument(help="An architecture of the zoo.")
_NAME = typer.Argument(help="A name of 'deliralike zoo ARCHITECTURE --weights'.")


@app.command()
def pull(
    architecture: Annotated[str, _ARCHITECTURE],
    name: Annotated[str, _NAME] = "pretrained",
) -> None:
    """Download weights into the cache, or check the hash of those that are there."""
    from deliralike import zoo
    from deliralike.zoo import published

    entry = published.choose(architecture, name, zoo.find(architecture).settings)
    path = entry.fetch()
    size = path.stat().st_size
    say(f"{entry.architecture}, {entry.name}: {path} ({size / 2**20:.1f} MiB)")
