"""``deliralike backends``: the installed backends, their devices, and the missing packages."""


def command() -> None:
    """Show every backend: version, devices, precision in force, or how to install it."""
    from deliralike import backends
    from deliralike.cli.console import show_table

    rows = [_row(name) for name in backends.known()]
    show_table(["backend", "version", "devices", "precision in force", "state"], rows)


def _row(name: str) -> tuple[str, ...]:
    """Return the row of a backend; an error of the backend is shown in its row."""
    from deliralike import backends

    entry = backends.known()[name]
    if entry.missing:
        missing = ", ".join(entry.missing)
        return (name, "-", "-", "-", f"not installed: {missing}\n{entry.install}")
    # A broken installation may fail in any way, and must not hide the other backends.
    try:
        backend = backends.get(name)
        precision = [f"{key}: {value}" for key, value in backend.precision().items()]
        devices = "\n".join(backend.devices())
        return (name, backend.version(), devices, "\n".join(precision), "ready")
    except Exception as error:  # noqa: BLE001
        return (name, "-", "-", "-", f"broken: {error}")
