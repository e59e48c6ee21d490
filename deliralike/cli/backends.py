"""``deliralike backends``: the installed backends and the missing packages; their devices."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deliralike.cli.console import say, show_table
from deliralike.cli.options import backend_names
from deliralike.errors import refuse_unknown

if TYPE_CHECKING:
    from deliralike.backends import Entry


def command(
    names: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAMES]",
            help="Backends to load and show in detail: torch,jax, or all.",
        ),
    ] = None,
) -> None:
    """Show every backend with its version, or how to install it; with NAMES: devices and precision.

    No framework is loaded without NAMES.
    """
    from deliralike import backends

    known = backends.known()
    if names is None:
        rows: list[Sequence[str]] = []
        for name, entry in known.items():
            packages = entry.versions().items()
            versions = [f"{package} {version}" for package, version in packages]
            state = _how_to_install(entry) if entry.missing else "installed"
            rows.append((name, ", ".join(versions) or "-", state))
        show_table(["backend", "version", "state"], rows)
        if folder := os.environ.get(backends.PROGRAMS):
            say(f"Compiled programs are kept in {folder}")
        say("Devices and precision in force: deliralike backends all, or a name")
        return
    chosen = list(known)
    if names != "all":
        chosen = backend_names(names)
    rows = [_loaded(name, known) for name in chosen]
    show_table(["backend", "version", "devices", "precision in force", "state"], rows)


def _loaded(name: str, known: Mapping[str, "Entry"]) -> Sequence[str]:
    """Return the row of a backend; an error of the backend is shown in its row."""
    from deliralike import backends

    refuse_unknown(name, known, f"there is no backend {name!r}")
    if known[name].missing:
        return name, "-", "-", "-", _how_to_install(known[name])
    # A broken installation may fail in any way, and must not hide the other backends.
    try:
        backend = backends.get(name)
        precision = [f"{key}: {value}" for key, value in backend.precision().items()]
        devices = ", ".join(backend.devices())
        return name, backend.version(), devices, ", ".join(precision), "ready"
    except Exception as error:  # noqa: BLE001
        return name, "-", "-", "-", f"broken: {error}"


def _how_to_install(entry: "Entry") -> str:
    return f"not installed: {', '.join(entry.missing)}; {entry.install}"
