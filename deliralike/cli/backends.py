"""``deliralike backends``: what is installed, what it can use, and what is missing."""


def command() -> None:
    """Show every backend: version, devices, precision in force, or what is missing and how to install it."""
    from deliralike import backends
    from deliralike.cli.console import show_table

    rows = [_row(name) for name in backends.known()]
    show_table(["backend", "version", "devices", "precision in force", "state"], rows)


def _row(name: str) -> tuple[str, ...]:
    """One backend; whatever goes wrong with it is shown in its own row."""
    from deliralike import backends

    entry = backends.known()[name]
    if entry.missing:
        return (name, "-", "-", "-", f"not installed: {', '.join(entry.missing)}\n{entry.install}")
    try:
        backend = backends.get(name)
        precision = "\n".join(f"{what}: {value}" for what, value in backend.precision().items())
        return (name, backend.version(), "\n".join(backend.devices()), precision, "ready")
    except Exception as error:  # noqa: BLE001 - a broken install may fail in any way, and must not hide the others
        return (name, "-", "-", "-", f"broken: {error}")
