"""``deliralike launch``: any other subcommand in several processes that train together."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from deliralike.errors import SettingError, refuse_unknown

CONTEXT = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


def command(
    ctx: typer.Context,
    processes: Annotated[
        int, typer.Option(help="On this machine, and on each other.", min=1)
    ] = 2,
    engine: Annotated[
        str | None,
        typer.Option(
            help="torch: by torchrun; mpi, chainermn: by mpiexec; jax: JAX's own. "
            "(default: by the backend)"
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(help="Machines.", min=1)] = 1,
    node: Annotated[
        int,
        typer.Option(help="Which of them this is, from 0; for torch and jax.", min=0),
    ] = 0,
    address: Annotated[
        str, typer.Option(help="host:port of the first machine; for torch and jax.")
    ] = "",
    restarts: Annotated[
        int, typer.Option(help="How often to start again after a failure.", min=0)
    ] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds that processes wait for each other. (default: 300)", min=1
        ),
    ] = None,
) -> None:
    """Run another subcommand in several processes that train together.

    deliralike launch --processes 2 train settings.toml

    Each loads its shares of the batches; together they make the updates of one process. The first
    one writes and shows.
    """
    from deliralike.backends.processes.environment import PATIENCE
    from deliralike.backends.processes.launch import launched, usual_engine, watched

    if not ctx.args:
        raise SettingError(
            "launch: what is to be run? deliralike launch --processes 2 train settings.toml"
        )
    group: Any = ctx.find_root().command
    name = ctx.args[0]
    refuse_unknown(
        name,
        group.list_commands(ctx),
        f"launch: {name!r} is no subcommand (a program of your own is started by torchrun, "
        "mpiexec or srun)",
    )
    engine = engine or usual_engine(_backend_in(ctx.args))
    command, environment = launched(
        engine,
        processes,
        ["deliralike", *ctx.args],
        nodes=nodes,
        node=node,
        address=address,
        restarts=restarts,
    )
    if timeout is not None:
        environment[PATIENCE] = str(timeout)
    raise typer.Exit(watched(engine, command, environment, restarts))


def _backend_in(arguments: list[str]) -> str | None:
    """Return the backend that a subcommand's arguments name.

    They name it by an option, or in a file or folder of settings.
    """
    from deliralike.training.experiment.files import read_content
    from deliralike.training.experiment.folder import SETTINGS

    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option == "--backend" or option.startswith("--backend="):
            return option.partition("=")[2] or value
    for path in map(Path, arguments):
        if path.is_dir():
            path = path / SETTINGS
        if path.is_file():
            # The subcommand reports the mistake in the file.
            with suppress(SettingError):
                return read_content(path).get("backend")
    return None
