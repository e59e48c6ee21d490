"""``deliralike conformance``: the suite for a backend, and the score of the proof."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    backends: Annotated[
        str | None,
        typer.Argument(
            metavar="[BACKENDS]",
            help="Such as torch,jax. (default: all that are installed)",
        ),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(help="A file for the report: .json or .md; may be given again."),
    ] = None,
    score: Annotated[
        bool,
        typer.Option(
            "--score",
            help="Judge the proof on ports by hand, or on classes with mistakes (in a checkout).",
        ),
    ] = False,
    port: Annotated[
        str | None, typer.Option(help="With --score: ports, such as jax,chainer.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="With --score: cases whose name contains this.")
    ] = None,
    mutants: Annotated[
        int | None,
        typer.Option(
            help="With --score: so many classes with a mistake, instead of ports."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="With --score: of the draw of mutants.")
    ] = None,
    workers: Annotated[
        int, typer.Option(help="With --score: processes at once.", min=1)
    ] = 2,
    save: Annotated[
        list[Path] | None,
        typer.Option(help="With --score: a file .json or .md; may be given again."),
    ] = None,
) -> None:
    """Run the conformance suite on backends, or score the proof.

    The exit code is 0 when everything passes, 1 when something does not, 2 when the input is wrong.
    """
    from deliralike import backends as known
    from deliralike.cli.options import backend_names

    _check_endings("--report", report or ())
    _check_endings("--save", save or ())
    if score:
        drawn = {"mutants": mutants, "seed": seed}
        words = _words(port=port, only=only, **drawn, workers=workers)
        raise typer.Exit(_score(words, save or ()))
    names = backend_names(backends)
    for name in names:
        known.get(name)
    raise typer.Exit(0 if _suite(names, report or ()) else 1)


def _suite(names: list[str], files: Any) -> bool:
    from deliralike.cli.console import say
    from deliralike.conformance import suite

    reports = [suite.run(name) for name in names]
    for report in reports:
        say(str(report))
    values = [report.as_json() for report in reports]
    _write(files, values, "\n\n".join(map(str, reports)))
    return all(report.passed for report in reports)


def _score(words: list[str], files: Any) -> int:
    """Run the score in the checkout that this package is imported from; return its exit code.

    Raises:
        SettingError: The package is installed without its tests.
    """
    root = _checkout()
    for path in files:
        words += ["--save", str(path.resolve())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths(root))}
    command = [sys.executable, "-m", "tests.score", *words]
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


def _checkout() -> Path:
    """Return the folder of the repository that this package is part of."""
    import deliralike
    from deliralike.errors import SettingError

    root = Path(deliralike.__file__).resolve().parents[1]
    if not (root / "tests" / "score" / "__main__.py").exists():
        raise SettingError(
            "--score: its networks are tests, which are not installed with the package. In a "
            "checkout of the repository: pip install -e '.[all]', then: deliralike conformance "
            "--score"
        )
    return root


def _paths(root: Path) -> list[str]:
    given = os.environ.get("PYTHONPATH")
    return [str(root), given] if given else [str(root)]


def _words(**options: Any) -> list[str]:
    """Return options as they are typed, without those that were not given."""
    words = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return words


def _check_endings(option: str, files: Any) -> None:
    """Raise an error about a file's name before all the work, not after it."""
    from deliralike.errors import SettingError

    for path in files:
        if path.suffix not in (".json", ".md"):
            raise SettingError(
                f"{option} {str(path)!r}: wanted a file that ends in .json or .md"
            )


def _write(files: Any, values: Any, text: str) -> None:
    for path in files:
        if path.suffix == ".json":
            path.write_text(json.dumps(values, indent=2, default=str) + "\n")
        else:
            path.write_text(text)
